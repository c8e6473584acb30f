"""The test cases that the registry's entries name."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import cache

from vllm_harness._defects.registry import load_defects
from vllm_harness._defects.repro.parser_cases import cases_of
from vllm_harness._regression.cases.case import CaseSet, Group
from vllm_harness._regression.cases.groups import BUDGET, GenerationPlan, case_set
from vllm_harness._regression.cases.meanings import load_meanings
from vllm_harness._regression.engines.plan import Engine, plan_cases
from vllm_harness._regression.results.known_defects import FailureSelection, parser_defects
from vllm_harness._scripted.families import load_families


def missing_cases(chosen: Callable[[Group], bool]) -> list[str]:
    """Returns what the entries name in these groups, but a family does not have; each as a readable line."""
    return list(dict.fromkeys(_missing(chosen, _needed())))


def _missing(chosen: Callable[[Group], bool], needed: dict[str, int]) -> Iterator[str]:
    for defect, selection in _selections():
        group, first = selection.groups[0], selection.families[0]
        engine: Engine = "http" if selection.served else "in-process"
        if not chosen(group):
            continue
        for family in selection.families:
            names = _names(group, family, engine, needed[family])
            if not names or (family == first and selection.case not in names):
                yield f"{defect}: {group}: {family}: {selection.case}"


def _selections() -> list[tuple[str, FailureSelection]]:
    return [
        (each.defect.id, selection)
        for each in parser_defects(load_defects())
        for selection in each.selections
    ]


def _needed() -> dict[str, int]:
    """The number of generated cases that the entries name in each family; generating more takes seconds."""
    needed: dict[str, int] = defaultdict(lambda: 1)
    for _, selection in _selections():
        if selection.groups[0] == "properties":
            first, number = selection.families[0], int(selection.case.removeprefix("property "))
            needed[first] = max(needed[first], min(number + 1, BUDGET))
    return needed


@cache
def _names(group: Group, family: str, engine: Engine, needed: int) -> set[str]:
    if group == "properties":
        plan = GenerationPlan(budget=needed)
        cases = case_set(group, load_families()[family], load_meanings(), plan)
    else:
        cases = CaseSet(load_families()[family], group, cases_of(group, family))
    return {case.name for case in plan_cases(cases, engine).cases}
