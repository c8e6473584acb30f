"""The records in a run folder for the cells of a parser regression run."""

from __future__ import annotations

from tests.unit.regression.test_known_defects import LOST, cell
from vllm_harness._regression.results.cells import CaseResult, Cell
from vllm_harness._regression.results.known_defects import by_family
from vllm_harness._regression.results.run_records import cases_of, target_of
from vllm_harness._runs.records import Outcome

KNOWN = by_family([LOST])


def test_a_target_is_a_family_on_one_vllm() -> None:
    target = target_of(cell("http", {}))
    assert (target.id, target.title, target.lane, target.vllm) == (
        "hermes/0.32.0/http",
        "hermes",
        "http",
        "0.32.0",
    )


def test_an_explained_case_is_known() -> None:
    (case,) = cases_of(cell("in-process", {"tokens_1": ("call_lost",)}), KNOWN)
    assert (case.outcome, case.defects) == (Outcome.KNOWN, ("lost",))
    assert [(finding.code, finding.path, finding.known) for finding in case.findings] == [
        ("call_lost", "tokens_1", "lost")
    ]


def test_an_unexplained_case_is_a_finding() -> None:
    (case,) = cases_of(cell("in-process", {"tokens_1": ("call_lost",), "all": ("call_lost",)}), KNOWN)
    assert (case.outcome, case.defects) == (Outcome.FINDING, ("lost",))
    assert case.reason == "a call is lost (all)"


def test_a_case_that_was_not_judged_says_why() -> None:
    merged = {"topic": "calls", "not_held": {"chat:tokens_1": "vLLM took [2]"}}
    results = {
        name: CaseResult.model_validate({**merged, "deliveries": name == "partly"})
        for name in ("all", "partly")
    }
    records = cases_of(cell("http", {}).model_copy(update={"cases": results}), KNOWN)
    assert [(case.outcome, case.reason) for case in records] == [
        (Outcome.NOT_JUDGED, "chat:tokens_1 was not judged: vLLM took [2]"),
        (Outcome.PASSED, "chat:tokens_1 was not judged: vLLM took [2]"),
    ]


def test_passed_and_left_out_cases_and_parsers_not_made() -> None:
    parsed = cell("in-process", {})
    left_out = CaseResult.model_validate({"topic": "calls", "left_out": "no such format"})
    failed = Cell.model_validate({**parsed.model_dump(), "start_error": "KeyError: x\nmore"})
    cases = [*cases_of(failed.model_copy(update={"cases": {**failed.cases, "other": left_out}}), KNOWN)]
    assert [(case.outcome, case.reason) for case in cases] == [
        (Outcome.FINDING, "KeyError: x"),
        (Outcome.PASSED, ""),
        (Outcome.SKIPPED, "no such format"),
    ]


def test_cases_of_two_groups_have_ids_of_their_own() -> None:
    parsed = cell("in-process", {})
    groups = [parsed.model_copy(update={"group": group}) for group in ("canonical", "chunks")]
    assert len({case.id for group in groups for case in cases_of(group, KNOWN)}) == 2
