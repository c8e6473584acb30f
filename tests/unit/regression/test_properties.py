"""Generated meanings, and how those that fail are shrunk."""

from __future__ import annotations

from pathlib import Path

import pytest

from vllm_harness._errors import UsageError
from vllm_harness._exchange.delivery import Delivery
from vllm_harness._regression.cases.meanings import load_meanings
from vllm_harness._regression.cases.properties import MOST, GeneratedMeaning, failure_kinds, generate
from vllm_harness._regression.results.mismatches import Mismatch
from vllm_harness._scripted.families import load_families

HERMES = load_families()["hermes"]
WHOLE = Delivery.parse("whole")
CALL_LOST, TEXT_LOST = Mismatch.parse("call_lost"), Mismatch.parse("text_lost")
FailureKind = tuple[Delivery, Mismatch]


@pytest.mark.parametrize("family", [name for name, each in load_families().items() if each.form])
def test_a_seed_always_generates_the_same_meanings(family: str) -> None:
    once = generate(load_families()[family], budget=4, seed=3)
    assert once == generate(load_families()[family], budget=4, seed=3)
    assert len(once) >= 3
    lengths = [len(generated.text) for generated in once]
    assert lengths == sorted(lengths)


def test_another_seed_generates_other_meanings() -> None:
    assert generate(HERMES, budget=15, seed=3) != generate(HERMES, budget=15, seed=4)


def _with(piece: str, kind: FailureKind) -> list[tuple[FailureKind, GeneratedMeaning]]:
    def kinds(generated: GeneratedMeaning) -> list[FailureKind]:
        return [kind] if piece in generated.text else []

    return list(failure_kinds(HERMES, kinds, budget=200, seed=0))


def test_a_failure_is_shrunk_to_the_smallest() -> None:
    ((kind, generated),) = _with("</tool_call>", (WHOLE, CALL_LOST))
    assert kind == (WHOLE, CALL_LOST)
    assert generated.text == '<tool_call>\n{"name": "tool_a", "arguments": {}}\n</tool_call><|im_end|>'
    assert generated.cuts == ()


def test_a_marker_beginning_in_a_text_is_found() -> None:
    def kinds(generated: GeneratedMeaning) -> list[FailureKind]:
        return [(WHOLE, TEXT_LOST)] if "<tool_c" in generated.meaning.text else []

    ((_, generated),) = failure_kinds(HERMES, kinds, budget=400, seed=0)
    assert generated.meaning.text == "So <tool_c it is."


def test_a_marker_in_a_string_is_found_and_spelled() -> None:
    def kinds(generated: GeneratedMeaning) -> list[FailureKind]:
        return [(WHOLE, CALL_LOST)] if generated.spelled_spans else []

    ((_, generated),) = failure_kinds(HERMES, kinds, budget=200, seed=0)
    (call,) = generated.meaning.calls
    assert call.arguments == {"p0": "<tool_call>"}
    assert generated.tools == {"tool_a": {"p0": {"type": "string"}}}
    ((start, end),) = generated.spelled_spans
    assert generated.text[start:end] == "<tool_call>"


def test_the_number_of_kinds_is_limited() -> None:
    def kinds(_: GeneratedMeaning) -> list[int]:
        return list(range(MOST + 3))

    found = list(failure_kinds(HERMES, kinds, budget=5, seed=0))
    none: list[int] = []
    assert [kind for kind, _ in found] == list(range(MOST))
    assert not list(failure_kinds(HERMES, lambda _: none, budget=5, seed=0))


def test_the_error_of_a_malformed_file_names_it(tmp_path: Path) -> None:
    broken = tmp_path / "mine.yaml"
    broken.write_text("cases: 3")
    with pytest.raises(UsageError, match=r"mine.yaml is not a valid file of meanings(.|\n)*tools"):
        load_meanings(broken)
