"""Predicates over values, and the outputs that they select."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import TypeAdapter

from vllm_harness._scenarios.format import Tool
from vllm_harness._scenarios.predicates import Predicate, PredicateSpec, objections, same
from vllm_harness._scenarios.tools import outcome_of, output_for, run_tool

PREDICATE: TypeAdapter[PredicateSpec] = TypeAdapter(Predicate)
HOLDS: list[tuple[Any, Any]] = [
    ("Paris", "Paris"),
    (64, 64.0),
    (None, None),
    (["a", 1], ["a", 1]),
    ({"equals": {"a": [1]}}, {"a": [1]}),
    ({"contains": "MEMORY"}, "out of memory"),
    ({"contains": ["out", "memory"]}, "out of memory"),
    ({"contains": '"a": 1'}, {"a": 1}),
    ({"matches": "^job-[0-9]+$"}, "job-382"),
    ({"one_of": ["ERROR", "FATAL"]}, "FATAL"),
    ({"at_least": 1, "at_most": 3}, 3),
]
HOLDS_NOT: list[tuple[Any, Any, str]] = [
    ("Paris", "paris", '"Paris"'),
    (1, True, "1"),
    (False, 0, "false"),
    (None, "", "null"),
    ({"contains": ["out", "disk"]}, "out of memory", '"out" and "disk"'),
    ({"matches": "^job$"}, "job-382", "'^job$'"),
    ({"one_of": [1]}, True, "one of 1"),
    ({"at_least": 1, "at_most": 3}, 4, "at least 1 and at most 3"),
    ({"at_least": 1}, True, "at least 1"),
    ({"at_most": 3}, "2", "at most 3"),
    ({"absent": True}, None, "nothing"),
]


def test_predicates_that_hold() -> None:
    for predicate, value in HOLDS:
        assert PREDICATE.validate_python(predicate).objection(value) is None, (predicate, value)


def test_an_objection_says_what_a_value_should_be() -> None:
    for predicate, value, words in HOLDS_NOT:
        objection = PREDICATE.validate_python(predicate).objection(value)
        assert objection is not None, (predicate, value)
        assert words in objection


def test_missing_and_absent_arguments() -> None:
    expected = {name: PREDICATE.validate_python(of) for name, of in {"a": 1, "b": {"absent": True}}.items()}
    assert objections(expected, {"a": 1, "c": 2}) == []
    assert objections(expected, {"b": 1}) == [("a", "a value"), ("b", "nothing")]


@pytest.mark.parametrize(
    ("left", "right"), [(1, True), (0, False), ([1], [True]), ({"a": 1}, {"a": 1, "b": 2})]
)
def test_values_that_differ_in_json(left: Any, right: Any) -> None:
    assert not same(left, right)


def test_the_first_matching_output_is_used() -> None:
    tool = Tool.model_validate(
        {
            "parameters": {"type": "object"},
            "outputs": [
                {"when": {"id": 1}, "output": {"é": [1, None]}},
                {"when": {"id": {"at_least": 2}}, "output": "xy", "times": 3},
                {"when": {"id": "slow"}, "error": "gave up"},
            ],
        }
    )
    first, second, third = tool.outputs
    assert output_for(tool, {"id": 1}) is first
    assert output_for(tool, {"id": 2}) is second
    assert output_for(tool, {"id": 0}) is None
    assert [outcome_of(each).text for each in (first, second)] == ['{"é": [1, null]}', "xyxyxy"]
    assert run_tool(third) == ("gave up", True, ())
