"""Growing answers, and how their cost curves are judged."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest

from tests.unit.regression.named_cases import missing_cases
from vllm_harness._defects.repro import parser_cases
from vllm_harness._regression.cases.case import Case
from vllm_harness._regression.engines.answer import AnswerError, CaseAnswer, CostPoint, Curve, ErrorCode
from vllm_harness._regression.results.judge import cost_mismatches
from vllm_harness.extras.costs.curves import (
    ORDINARY_TOKENS,
    blocked_at,
    curve_mismatches,
    memory_exponent,
    time_exponent,
)
from vllm_harness.extras.costs.growing import BLOCKED_S, LONGEST, load_growing_answers

SIZES = [256 << shift for shift in range(8)]


def curve(cpu_s: Callable[[int], float], *, longest_s: float = 0.001, stopped_at: int | None = None) -> Curve:
    points = (CostPoint(size=size, cpu_s=cpu_s(size), longest_s=longest_s) for size in SIZES)
    return Curve(points=tuple(points), stopped_at=stopped_at)


def codes(measured: Curve) -> list[str]:
    return [str(mismatch) for mismatch in curve_mismatches(measured)]


def cases_of(family: str) -> dict[str, Case]:
    return {case.name: case for case in parser_cases.cases_of("cost", family)}


def test_entries_name_existing_cases() -> None:
    assert missing_cases(lambda group: group == "cost") == []


def test_time_exponent() -> None:
    for power in (1.0, 1.5, 2.0, 3.0):
        assert time_exponent(curve(lambda size, power=power: 1e-5 * size**power)) == pytest.approx(power)
    constant = curve(lambda size: 1.0)
    assert time_exponent(constant) == pytest.approx(0)


def test_one_outlier_is_no_finding() -> None:
    def disturbed(place: int) -> Curve:
        return curve(lambda size: 1e-5 * size * (3 if size == SIZES[place] else 1))

    for place in range(len(SIZES)):
        assert codes(disturbed(place)) == []


def test_steep_tail_after_a_flat_start() -> None:
    assert codes(curve(lambda size: 0.01 + 1e-7 * size**2)) == ["time_superlinear"]
    assert codes(curve(lambda size: 1e-11 * size**3)) == ["time_superquadratic"]
    assert codes(curve(lambda size: 0.01 + 1e-6 * size)) == []


def test_times_too_short_to_measure() -> None:
    assert time_exponent(curve(lambda size: 1e-12 * size**2)) is None


def test_deadline_is_a_finding_if_there_are_too_few_lengths() -> None:
    points = curve(lambda size: 1e-5 * size).points
    assert codes(Curve(points=points[:2], stopped_at=SIZES[2])) == ["time_superlinear"]
    assert codes(Curve(points=points, stopped_at=LONGEST)) == []


def test_jump_at_the_end() -> None:
    jumping = [1e-4, 1e-4, 2e-4, 4e-4, 0.6]
    measured = zip(SIZES, jumping, strict=False)
    points = tuple(CostPoint(size=size, cpu_s=cpu_s, longest_s=0.001) for size, cpu_s in measured)
    assert codes(Curve(points=points)) == ["time_superlinear"]
    assert codes(Curve(points=points[:4], stopped_at=SIZES[4])) == ["time_superlinear"]
    assert codes(Curve(points=points[:4])) == []


def test_grammar_refusal_is_no_finding() -> None:
    refused = AnswerError(code=ErrorCode.GRAMMAR_REFUSED, message="No.")
    assert cost_mismatches(CaseAnswer(family="any", error=refused)) == ()
    failed = CaseAnswer(family="any", error=AnswerError(code="http_500"))
    assert [str(each) for each in cost_mismatches(failed)] == ["error:http_500"]


def test_repeated_calls_have_no_end_of_reasoning() -> None:
    for family in ("glm47", "qwen3_json", "deepseek_v32"):
        text = cases_of(family)["calls without an end"].input.text
        assert text.count("</think>") == 1, "the end of the reasoning before them"


def test_a_step_blocks_only_at_an_ordinary_length() -> None:
    blocked = curve(lambda size: 1e-5 * size, longest_s=2 * BLOCKED_S)
    assert codes(blocked) == ["loop_blocked"]
    assert blocked_at(blocked) == blocked.points[0]
    beyond = [point for point in blocked.points if point.size > 1.1 * ORDINARY_TOKENS]
    assert codes(Curve(points=tuple(beyond))) == []


def test_memory_exponent() -> None:
    points = (
        CostPoint(size=size, cpu_s=1e-5 * size, longest_s=0.0, peak_bytes=size**2) for size in SIZES[-5:]
    )
    measured = Curve(points=tuple(points))
    assert memory_exponent(measured) == pytest.approx(2)
    assert codes(measured) == ["memory_superlinear"]


def test_each_growing_answer_is_a_case_of_some_family() -> None:
    families = ("hermes", "qwen3_json", "kimi_k3", "pythonic", "hunyuan_a13b", "deepseek_v3")
    names = {name.partition(",")[0] for family in families for name in cases_of(family)}
    assert names == {answer.name for answer in load_growing_answers()}


def test_lengths_double() -> None:
    for name, case in cases_of("hermes").items():
        lengths = [len(grown.text) for grown in case.input.grown]
        if name in ("tools", "small tools"):
            assert [grown.tools for grown in case.input.grown] == [4, 8, 16, 32, 64, 128]
            continue
        assert len(lengths) >= 6
        assert all(shorter < longer for shorter, longer in pairwise(lengths))
        assert case.input.text == case.input.grown[0].text
    longest = cases_of("hermes")["string"].input.grown[-1]
    assert LONGEST <= len(longest.text) < 1.1 * LONGEST
    assert longest.text.startswith('<tool_call>\n{"name": "f", "arguments": {"s": "the quick')
    assert longest.runs[1] == ("the quick brown fox ", 3276)


def test_truncated_answer_still_ends_its_turn() -> None:
    case = cases_of("hermes")["string without an end"]
    assert case.input.text.endswith("the quick brown fox<|im_end|>")


def test_each_marker_has_a_case() -> None:
    cases = cases_of("qwen3_json")
    for marker in ("<tool_call>", "</tool_call>", "<think>", "</think>"):
        assert marker * 100 in cases[f"text of a marker, {marker}"].input.text
