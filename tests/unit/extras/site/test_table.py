"""The site's table of the features that work for each family and vLLM version."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.extras.site.samples import cell, entry, failing
from vllm_harness._errors import UsageError
from vllm_harness._exchange.delivery import Delivery
from vllm_harness._regression.cases.case import Topic
from vllm_harness._regression.results.cells import Cell
from vllm_harness.extras.site.features import LETTERS, TITLES, Feature, feature_of
from vllm_harness.extras.site.table import Column, Compatibility, FamilyOnVersion, FeatureState, compatibility

NEW, OLD = Column("0.32.0"), Column("0.31.0")


def table(*cells: Cell, **changes: Any) -> Compatibility:
    defect = entry(**changes)
    return compatibility(cells, {defect.id: defect})


def hermes(*cells: Cell, **changes: Any) -> FamilyOnVersion:
    return table(*cells, **changes).families["hermes"][NEW]


@pytest.mark.parametrize(
    ("group", "case", "topic", "delivery", "feature"),
    [
        ("canonical", "text", Topic.PLAIN, "whole", Feature.TEXT),
        ("canonical", "call", Topic.CALLS, "whole", Feature.CALLS),
        ("canonical", "call, markers in the prompt", Topic.PROMPT, "whole", Feature.CALLS),
        ("canonical", "two calls", Topic.CALLS, "whole", Feature.PARALLEL),
        ("canonical", "reasoning and call", Topic.MIXED, "chat:whole", Feature.REASONING),
        ("canonical", "two calls", Topic.CALLS, "chat:tokens_1", Feature.STREAMING),
        ("chunks", "two calls", Topic.SEGMENTATION, "held_back", Feature.STREAMING),
        ("canonical", "two calls", Topic.CALLS, "tokens_1_with_end", Feature.SEVERAL_TOKENS),
        (
            "chunks",
            "text and call, markers spelled",
            Topic.MARKERS_SPELLED,
            "every_cut",
            Feature.SEVERAL_TOKENS,
        ),
        ("canonical", "call, x in a string", Topic.MARKER_IN_STRING, "tokens_1", Feature.MARKERS),
        ("forced", "call, required", Topic.REQUIRED, "tokens_3", Feature.FORCED),
        ("malformed", "cut off", Topic.TRUNCATED, "whole", Feature.BROKEN),
        ("cost", "string", Topic.COST, "whole", Feature.LONG),
        ("properties", "property 7", Topic.PROPERTY, "whole", Feature.CALLS),
    ],
)
def test_feature_of_an_answer(group: Any, case: str, topic: Topic, delivery: str, feature: Feature) -> None:
    assert feature_of(group, case, topic, Delivery.parse(delivery)) is feature


def test_each_feature_has_a_unique_letter_and_a_sentence() -> None:
    assert set(LETTERS) == set(TITLES) == set(Feature)
    assert len(set(LETTERS.values())) == len(Feature)


def test_failure_counts_only_for_its_feature() -> None:
    measured = hermes(failing())
    several = measured.features[Feature.SEVERAL_TOKENS]
    assert (len(several.cases), len(several.failed), several.state) == (3, 1, FeatureState.BROKEN)
    assert several.defects == {"hermes-loses-a-call": {("canonical", "call")}}
    assert measured.features[Feature.STREAMING].state is FeatureState.WORKS
    assert measured.features[Feature.CALLS].state is FeatureState.WORKS
    assert measured.shown["hermes-loses-a-call"].features == {Feature.SEVERAL_TOKENS}
    assert measured.state(Feature.REASONING) is FeatureState.UNMEASURED


@pytest.mark.parametrize(
    ("changes", "state"),
    [
        ({}, FeatureState.BROKEN),
        ({"class": "arguable"}, FeatureState.MINOR),
        ({"class": "feature gap"}, FeatureState.MINOR),
        ({"class": "deviation"}, FeatureState.BROKEN),
        ({"severity": "delay"}, FeatureState.MINOR),
    ],
)
def test_state_depends_on_the_defect(changes: dict[str, Any], state: FeatureState) -> None:
    assert hermes(failing(), **changes).state(Feature.SEVERAL_TOKENS) is state


def test_failure_without_a_defect_is_never_minor() -> None:
    measured = hermes(failing(mismatches={"whole": ("text_lost",)}), **{"class": "arguable"})
    assert measured.state(Feature.CALLS) is FeatureState.BROKEN
    assert [failure.case for failure in measured.unexplained] == ["call"]


def test_left_out_case_does_not_count() -> None:
    measured = hermes(cell(cases={"text": {"topic": "left_out", "left_out": "no such format"}}))
    assert not measured.features
    assert measured.left_out == {"text": "no such format"}


def test_parsers_that_cannot_be_made() -> None:
    measured = hermes(cell(cases={}, start_error="no such parser"))
    assert measured.state(Feature.CALLS) is FeatureState.NO_PARSER


def test_later_run_counts() -> None:
    assert hermes(failing(), cell()).state(Feature.SEVERAL_TOKENS) is FeatureState.WORKS
    assert hermes(cell(), failing()).state(Feature.SEVERAL_TOKENS) is FeatureState.BROKEN


def test_family_on_both_tokenizers_is_one_row() -> None:
    measured = hermes(cell(), failing(family="hermes+real", tokenizer="real"))
    assert measured.tokenizers == {"real", "synthetic"}
    assert measured.state(Feature.SEVERAL_TOKENS) is FeatureState.BROKEN


def test_columns_are_releases_and_grafts_by_version() -> None:
    compatibility_table = table(
        cell("0.33.0@0.32.0"), cell("0.4.0"), cell("0.33.0@0.32.0+rust", frontend="rust", engine="http")
    )
    assert [column.label for column in compatibility_table.columns] == ["0.4.0", "0.33.0", "0.33.0 Rust"]


@pytest.mark.parametrize("environment", ["tree:/src/vllm@0.32.0", "/usr/bin/python3", "installed"])
def test_other_environments_are_refused(environment: str) -> None:
    with pytest.raises(UsageError, match="not a release of vLLM"):
        table(cell(environment))
