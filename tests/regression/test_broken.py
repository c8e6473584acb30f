"""The regression cases detect each of several parsers that are broken on purpose."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from vllm_harness._environments import resolve
from vllm_harness._environments.under_test import VllmUnderTest
from vllm_harness._exchange.delivery import Api
from vllm_harness._regression.cases.case import CaseSet
from vllm_harness._regression.cases.groups import case_set
from vllm_harness._regression.cases.meanings import load_meanings
from vllm_harness._regression.engines.answer import CaseAnswer
from vllm_harness._regression.engines.plan import Engine, plan_cases
from vllm_harness._regression.results.cells import Cell, RegressionRun
from vllm_harness._regression.results.compare import changes
from vllm_harness._regression.results.mismatches import Mismatch, MismatchCode
from vllm_harness._regression.run import run_batches, unfinished
from vllm_harness._scripted.families import Family, load_families
from vllm_harness.extras.costs.curves import curve_mismatches
from vllm_harness.extras.costs.in_process import measure_all
from vllm_harness.extras.costs.over_http import measure_served

pytestmark = [pytest.mark.vllm_slow, pytest.mark.timeout(900)]

VLLM = "0.32.0"
PLUGIN = Path(__file__).with_name("broken_hermes.py")
HERMES = load_families()["hermes"]
BROKEN = (
    *("drops_last_character", "doubles_arguments", "collapses_blanks", "swaps_calls", "loses_second_call"),
    *("leaks_end_tag", "loses_text", "renames_function", "raises_on_unicode", "needs_one_token_a_delta"),
)
_BLOCKED, _SUPERLINEAR = Mismatch(MismatchCode.LOOP_BLOCKED), Mismatch(MismatchCode.TIME_SUPERLINEAR)
OVER_HTTP = ("drops_last_character", "loses_second_call")


def _family(variant: str) -> Family:
    args = ("--tool-parser-plugin", str(PLUGIN))
    return replace(HERMES, name=f"broken-{variant}", tool_parser=f"broken_{variant}", args=args)


def _run(folder: Path, families: list[Family], engine: Engine) -> dict[str, Cell]:
    case_sets = [plan_cases(case_set("canonical", family, load_meanings()), engine) for family in families]
    run = RegressionRun(folder)
    batches = unfinished(run, [VllmUnderTest(VLLM, resolve(VLLM))], case_sets, engine=engine)
    assert run_batches(run, batches, parallel=1, done=lambda _: None) == []
    return {cell.family: cell.model_copy(update={"family": "any"}) for cell in run.cells()}


def _regressed(cells: dict[str, Cell]) -> dict[str, list[str]]:
    unbroken = cells.pop("hermes")
    return {
        name: [change.case for change in changes([unbroken], [cell]) if change.regressed]
        for name, cell in cells.items()
    }


def test_every_broken_parser_is_found(tmp_path: Path) -> None:
    found = _regressed(_run(tmp_path, [HERMES, *map(_family, BROKEN)], "in-process"))
    assert {name for name, regressed in found.items() if not regressed} == set()
    assert len(found) == len(BROKEN)
    assert found["broken-collapses_blanks"] == ["code in a string", "string with blanks around"]
    assert set(found["broken-raises_on_unicode"]) == {"unicode argument"}


def test_a_broken_parser_is_found_over_http(tmp_path: Path) -> None:
    found = _regressed(_run(tmp_path, [HERMES, *map(_family, OVER_HTTP)], "http"))
    assert {name for name, regressed in found.items() if not regressed} == set()
    assert len(found) == len(OVER_HTTP)


def test_a_slow_parser_is_found() -> None:
    """Compares how the time grows for texts short enough to take less than a second."""
    families = (HERMES, _family("takes_its_time"))
    short = [_shortened(case_set("cost", family, load_meanings()).only(["text"])) for family in families]
    measured = measure_all(resolve(VLLM), [(cases.family, cases.inputs) for cases in short])
    own, slow = (
        {str(answer.delivery): curve_mismatches(answer.curve) for answer in answers if answer.curve}
        for answers in measured
    )
    assert own == {"whole": (), "tokens_1": ()}
    assert slow == {"whole": (_BLOCKED,), "tokens_1": (_SUPERLINEAR,)}


def test_a_slow_parser_is_found_over_http() -> None:
    measured = {}
    for family in (HERMES, _family("takes_its_time")):
        cases = _shortened(case_set("cost", family, load_meanings()).only(["text"]), "http", 6)
        answers = measure_served(
            resolve(VLLM), family, cases.inputs, lambda answer: bool(_mismatches(answer))
        )
        measured[family.name] = {str(answer.delivery): _mismatches(answer) for answer in answers}
    assert measured["hermes"] == {"messages:whole": (), "messages:tokens_1": ()}
    assert measured["broken-takes_its_time"] == {
        "messages:whole": (_BLOCKED,),
        "messages:tokens_1": (_SUPERLINEAR,),
    }


def _mismatches(answer: CaseAnswer) -> tuple[Mismatch, ...]:
    assert answer.curve is not None, answer.error
    return curve_mismatches(answer.curve)


def _shortened(cases: CaseSet, engine: Engine = "in-process", lengths: int = 5) -> CaseSet:
    """The only case of a set, with its shortest lengths, in process or over Messages."""
    (case,) = plan_cases(cases, engine, [Api.MESSAGES]).cases
    input_ = case.input.model_copy(update={"grown": case.input.grown[:lengths]})
    return replace(cases, cases=(replace(case, input=input_),))
