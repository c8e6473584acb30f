"""Made up meanings, and what is kept of those that fail."""

from __future__ import annotations

from pathlib import Path

import pytest

from vllm_harness.environments.spec import Environment
from vllm_harness.errors import UsageError
from vllm_harness.regression.cases.meanings import load_meanings, sayable
from vllm_harness.regression.cases.properties import MOST, Kind, Made, failures, made
from vllm_harness.regression.cases.questions import Search
from vllm_harness.regression.cases.search import CUT, keep, kept
from vllm_harness.scripted.families import load_families

HERMES = load_families()["hermes"]
VLLM = Environment("release", Path("python"), "3.12", "0.0.0", "cpu", None)


@pytest.mark.parametrize("family", [name for name, one in load_families().items() if one.form])
def test_made_up_meanings_come_again_from_their_seed(family: str) -> None:
    once = made(load_families()[family], budget=9, seed=3)
    assert once == made(load_families()[family], budget=9, seed=3)
    assert len(once) >= 6
    lengths = [len(one.text) for one in once]
    assert lengths == sorted(lengths)


def test_another_seed_makes_up_others() -> None:
    assert made(HERMES, budget=15, seed=3) != made(HERMES, budget=15, seed=4)


def _with(piece: str, kind: Kind) -> list[tuple[Kind, Made]]:
    return list(failures(HERMES, lambda one: [kind] if piece in one.text else [], budget=200, seed=0))


def test_a_failure_is_shrunk_to_the_smallest() -> None:
    ((kind, one),) = _with("</tool_call>", ("whole", "call lost"))
    assert kind == ("whole", "call lost")
    assert one.text == '<tool_call>\n{"name": "tool_a", "arguments": {}}\n</tool_call><|im_end|>'
    assert one.cuts == ()


def test_a_marker_in_a_string_is_found_and_quoted() -> None:
    def held(one: Made) -> list[Kind]:
        return [("whole", "cut")] if one.quoted else []

    ((_, one),) = failures(HERMES, held, budget=200, seed=0)
    (call,) = one.meaning.calls
    assert call.arguments == {"p0": "<tool_call>"}
    assert one.tools == {"tool_a": {"p0": {"type": "string"}}}
    ((start, end),) = one.quoted
    assert one.text[start:end] == "<tool_call>"


def test_every_kind_is_shrunk_by_itself_and_no_more_than_most() -> None:
    def kinds(one: Made) -> list[Kind]:
        return [("1", str(number)) for number in range(MOST + 3)]

    found = list(failures(HERMES, kinds, budget=5, seed=0))
    assert [kind for kind, _ in found] == [("1", str(number)) for number in range(MOST)]
    assert not list(failures(HERMES, lambda _: [], budget=5, seed=0))


def test_what_is_kept_asks_the_same_again(tmp_path: Path) -> None:
    one = next(one for one in made(HERMES, budget=200, seed=1) if one.quoted and one.cuts)
    found: list[tuple[Kind, Made]] = [((CUT, "call lost"), one), (("whole", "text lost"), one)]
    keep(VLLM, HERMES, found, Search(200, 1), tmp_path / "hermes")
    first, second = kept(HERMES, tmp_path / "hermes")
    assert (first.way, first.wrong, first.file.name) == (one.cut, "call lost", "1.yaml")
    assert (second.way, second.wrong) == ("whole", "text lost")
    (case,), _ = sayable(HERMES, load_meanings(first.file))
    assert (case.text, case.ways) == (one.text, (one.cut,))
    assert case.tools == one.case("made").tools
    assert case.quoted == one.quoted
    assert "--budget 200 --seed 1" in first.file.read_text()


def test_a_file_that_is_none_is_named(tmp_path: Path) -> None:
    broken = tmp_path / "mine.yaml"
    broken.write_text("cases: 3")
    with pytest.raises(UsageError, match=r"mine.yaml is no file of meanings(.|\n)*tools"):
        load_meanings(broken)
