"""Reads test cases from `tests/cases`: each entry of a list in a file is a parameter of a test."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from vllm_harness import known_defect
from vllm_harness._files.located_yaml import read_yaml

FOLDER = Path(__file__).parent / "cases"


def cases(name: str, group: str | None = None, *, known: str = "known_defects") -> list[Any]:
    """Returns the cases in a file, for `pytest.mark.parametrize("case", cases("name"))`.

    Args:
        name: the file's name without `.yaml`.
        group: the key of the list, if the file contains several lists.
        known: the key of the known defects; differs from test to test if several tests share the cases.

    Returns:
        One pytest parameter per case: a dict of the fields. `id` is used as the parameter's id; `covers`,
        `needs`, `family` (harmony or standard), `alone` and known defects become marks.
    """
    loaded = read_yaml(FOLDER / f"{name}.yaml").data
    return [_parameter(dict(case), known) for case in (loaded if group is None else loaded[group])]


def _parameter(case: dict[str, Any], known: str) -> Any:
    marks = [pytest.mark.covers(*case.pop("covers"))] if "covers" in case else []
    marks += [pytest.mark.vllm_needs(*case.pop("needs"))] if "needs" in case else []
    marks += [getattr(pytest.mark, f"vllm_{case.pop('family')}")] if "family" in case else []
    marks += [pytest.mark.vllm_alone] if case.pop("alone", False) else []
    marks += [_known_defect(defect) for defect in case.pop(known, ())]
    return pytest.param(case, id=case.pop("id"), marks=marks)


def _known_defect(defect: str | dict[str, Any]) -> pytest.MarkDecorator:
    """Returns the mark for a known defect, specified as an id or as `{id: ..., models: [...]}`."""
    return (
        known_defect(defect)
        if isinstance(defect, str)
        else known_defect(defect["id"], models=defect["models"])
    )
