"""Wherever the chunks of a stream end, the stream of each of several families says the same as the body."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest

from tests.boundaries import EVEN, SHAPES, Asked, BoundaryApi, Shape, expect_none, written
from tests.choice import few
from vllm_harness._defects.registry import known_deviations, load_defects
from vllm_harness._environments import resolve
from vllm_harness._regression.engines.over_http import served_by
from vllm_harness._scripted.book import ScriptBook
from vllm_harness._scripted.dialects import DialectError
from vllm_harness._scripted.families import entry_of, load_families
from vllm_harness._testing.checks import BodyCheck, Checker, SameCheck, StreamCheck

pytestmark = [pytest.mark.vllm_slow, pytest.mark.timeout(900)]

VLLM = "0.32.0"
FAMILIES = (
    *("hermes", "qwen3_coder", "glm45", "deepseek_v32", "kimi_k2", "minimax_m2", "seed_oss"),
    *("pythonic", "mistral", "granite4", "gemma4", "inkling"),
)
"""Families without a known defect here; those of llama3_json, for example, lose a call within one chunk."""
OF_A_FAMILY = ("reasoning", "hard_call", "thought_call", "choices_of_calls")
DRAWN = 16
"""How many cuts are drawn for the APIs other than Chat Completions, on which every cut is made."""
AT_ONCE = 64


@pytest.mark.parametrize("name", FAMILIES)
def test_stream_equals_body_at_every_boundary(name: str) -> None:
    family = load_families()[name]
    entry, found = entry_of(family), dict[str, list[str]]()
    with served_by(entry, lane="scripted", vllm=resolve(VLLM)) as server:
        check = _checks(Checker(known_deviations("", VLLM, load_defects()), VLLM, exact=True))
        for shape in SHAPES:
            if shape.id not in OF_A_FAMILY or set(shape.needs) - {*entry.capabilities, "parallel_tools"}:
                continue
            for api in shape.more:
                if api == "completions":
                    continue
                assert server.books is not None
                book = ScriptBook(server.books, entry)
                try:
                    tokens = written(book.script, shape, api, harmony=entry.harmony)
                except DialectError:
                    break
                asked = Asked(book.endpoint, server.model, check, family.request, AT_ONCE)
                problems = asked.problems(shape, api, [*_cuts(shape, api, tokens), *EVEN])
                found |= {f"{shape.id} over {api}: {problem}": codes for problem, codes in problems.items()}
                book.finish()
    expect_none(found)


def _cuts(shape: Shape, api: BoundaryApi, tokens: int) -> Iterable[str]:
    cuts = [cut for number, cut in enumerate(shape.cuts(tokens)) if cut.endswith("_with_end") == number % 2]
    return cuts if api == "chat" else sorted(few(cuts, DRAWN, 0))


def _checks(checker: Checker) -> Callable[[str], Callable[..., Any]]:
    checks = {"check_stream": StreamCheck, "check_body": BodyCheck, "check_same": SameCheck}
    return lambda name: checks[name](checker)
