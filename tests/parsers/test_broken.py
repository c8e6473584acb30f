"""Deliberately broken copies of a parser: the matrix catches each of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from vllm_harness.environments import resolve
from vllm_harness.regression.cases.meanings import load_meanings
from vllm_harness.regression.cases.questions import Group
from vllm_harness.regression.results.compare import changes
from vllm_harness.regression.results.results import Cell, Engine, Run
from vllm_harness.regression.run import Asked, Subject, jobs, work
from vllm_harness.scripted.families import Family, load_families

pytestmark = [pytest.mark.vllm_slow, pytest.mark.timeout(900)]

VLLM = "0.32.0"
PLUGIN = Path(__file__).with_name("broken_hermes.py")
HERMES = load_families()["hermes"]
BROKEN = (
    *("drops_last_character", "doubles_arguments", "collapses_blanks", "swaps_calls", "loses_second_call"),
    *("leaks_end_tag", "loses_text", "renames_function", "raises_on_unicode", "needs_one_token_a_delta"),
)
OVER_HTTP = ("drops_last_character", "loses_second_call")


def _family(variant: str) -> Family:
    args = ("--tool-parser-plugin", str(PLUGIN))
    return replace(HERMES, name=f"broken-{variant}", tool_parser=f"broken_{variant}", args=args)


def _run(folder: Path, families: list[Family], engine: Engine) -> dict[str, Cell]:
    group: Group = "canonical"
    asked = [Asked.of(family, group, load_meanings(), engine) for family in families]
    run = Run(folder)
    todo = jobs(run, [Subject(VLLM, resolve(VLLM))], asked, engine=engine)
    assert work(run, todo, parallel=1, done=lambda _: None) == []
    return {cell.family: cell.model_copy(update={"family": "any"}) for cell in run.cells()}


def _worse(cells: dict[str, Cell]) -> dict[str, list[str]]:
    sound = cells.pop("hermes")
    return {
        name: [change.case for change in changes([sound], [cell]) if change.worse]
        for name, cell in cells.items()
    }


def test_every_broken_parser_is_caught(tmp_path: Path) -> None:
    found = _worse(_run(tmp_path, [HERMES, *map(_family, BROKEN)], "in-process"))
    assert {name for name, worse in found.items() if not worse} == set()
    assert len(found) == len(BROKEN)
    assert found["broken-collapses_blanks"] == ["code in a string", "string with blanks around"]
    assert set(found["broken-raises_on_unicode"]) == {"unicode argument"}


def test_a_broken_parser_is_caught_over_http(tmp_path: Path) -> None:
    found = _worse(_run(tmp_path, [HERMES, *map(_family, OVER_HTTP)], "http"))
    assert {name for name, worse in found.items() if not worse} == set()
    assert len(found) == len(OVER_HTTP)
