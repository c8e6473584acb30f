"""Every entry in the registry is shown by a test, and tests use no ids without an entry."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.case_files import FOLDER as CASES
from vllm_harness._configuration.model_entries import load_models
from vllm_harness._defects.entry import Defect
from vllm_harness._defects.registry import COMMON, ENTRIES, load_defects

TESTS = Path(__file__).parents[2]


def marked() -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yields (id, models) for each known_defect mark in tests that use servers."""
    for path in sorted(TESTS.rglob("*.py")):
        if path.relative_to(TESTS).parts[0] not in {"unit", "plugin"}:
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("known_defect"):
                    yield from _mark(node)


def _mark(node: ast.Call) -> Iterator[tuple[str, tuple[str, ...]]]:
    models = [keyword.value for keyword in node.keywords if keyword.arg == "models"]
    if isinstance(node.args[0], ast.Constant):
        literal = models and isinstance(models[0], ast.List)
        yield str(node.args[0].value), tuple(ast.literal_eval(models[0])) if literal else ()


def in_cases() -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yields (id, models) for each known defect in the YAML test cases."""
    for path in sorted(CASES.glob("*.yaml")):
        yield from _in_data(yaml.safe_load(path.read_text()))


def _in_data(data: Any) -> Iterator[tuple[str, tuple[str, ...]]]:
    if isinstance(data, list):
        for each in data:
            yield from _in_data(each)
    elif isinstance(data, dict):
        for key, value in data.items():
            if str(key).startswith("known"):
                for each in value.values() if isinstance(value, dict) else value:  # some are grouped by API
                    yield (each, ()) if isinstance(each, str) else (each["id"], tuple(each["models"]))
            else:
                yield from _in_data(value)


NAMED = [*marked(), *in_cases()]
MODELS = set(load_models().models)


def test_every_id_has_an_entry() -> None:
    assert {defect for defect, _ in NAMED} <= set(load_defects())


def test_each_entry_is_shown_by_something() -> None:
    named = {defect for defect, _ in NAMED}
    unseen = [
        each for each in load_defects().values() if not (each.deviations or each.failures or each.repro)
    ]
    assert [each.id for each in unseen if each.id not in named] == []


@pytest.mark.parametrize("defect", load_defects().values(), ids=lambda defect: defect.id)
def test_the_models_of_an_entry_exist(defect: Any) -> None:
    named = {*defect.models, *(model for place in defect.deviations for model in place.models)}
    named |= {model for each, models in NAMED if each == defect.id for model in models}
    assert named <= MODELS


def test_each_entry_is_judged() -> None:
    lacking = [
        each.id
        for each in load_defects().values()
        if not (each.judged and each.component and each.expected and each.actual)
    ]
    assert lacking == []


def test_each_common_text_is_used() -> None:
    texts = {path.stem for path in (ENTRIES.parent / COMMON).glob("*.yaml")}
    assert texts == {defect.like for defect in load_defects().values() if defect.like}


@pytest.mark.parametrize(
    "defect", [each for each in load_defects().values() if "!=" in each.versions], ids=lambda each: each.id
)
def test_a_hole_in_the_versions_has_a_reason(defect: Defect) -> None:
    """The evidence says why a release between two that show the defect does not."""
    (first, *_) = re.findall(r"!=(\d+\.\d+)", defect.versions)
    assert first in defect.evidence
