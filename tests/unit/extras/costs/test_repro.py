"""Cost defects: their measurements, verdicts, scripts and reports, without vLLM."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.defects.repro.test_can_fail import DEFECTS, answer_of, shows_by_an_error
from tests.unit.extras.triage.test_files import constants_of
from tests.unit.regression.test_known_defects import known
from vllm_harness._defects.entry import Defect, FailureSelector
from vllm_harness._defects.registry import load_defects
from vllm_harness._defects.repro.reproducer import checked, jobs_of, reproducer_of, run_job
from vllm_harness._defects.repro.verdict import Reproduction
from vllm_harness._environments.spec import Environment
from vllm_harness._exchange.delivery import Api, Chunking, Delivery
from vllm_harness._regression.cases.case import Grown
from vllm_harness._regression.cases.groups import case_set
from vllm_harness._regression.cases.meanings import load_meanings
from vllm_harness._regression.engines.answer import AnswerError, CaseAnswer, CostPoint, Curve
from vllm_harness._scripted.families import load_families
from vllm_harness._server.progress import StartProgress
from vllm_harness.extras.costs.repro import CostCase
from vllm_harness.extras.costs.run import has_unexplained_cost
from vllm_harness.extras.costs.script import folded
from vllm_harness.extras.triage.files import files_of


def costs() -> Iterator[tuple[Defect, CostCase]]:
    """Yields each cost defect with its measurement."""
    for defect in DEFECTS.values():
        if isinstance(cost := reproducer_of(defect), CostCase):
            yield defect, cost


COSTS = list(costs())


@pytest.mark.parametrize(("power", "verdict"), [(1, "fixed"), (2, "reproduced")])
def test_verdict_from_a_curve(power: int, verdict: str) -> None:
    sizes = (1000, 2000, 4000, 8000)
    points = tuple(
        CostPoint(
            size=size,
            cpu_s=size**power / 1e5,
            longest_s=size**power / 1e8,
            peak_bytes=1000 * size**power,
        )
        for size in sizes
    )
    verdicts = {
        defect.id: cost.verdict_of(
            [answer_of(cost.case, each, curve=Curve(points=points)) for each in cost.deliveries]
        ).verdict
        for defect, cost in COSTS
        if not shows_by_an_error(defect)
    }
    assert {id_: other for id_, other in verdicts.items() if other != verdict} == {}


def test_verdict_from_an_error() -> None:
    error = AnswerError(code="http_400", message="No.")
    verdicts = {
        defect.id: cost.verdict_of([answer_of(cost.case, each, error=error) for each in cost.deliveries])
        for defect, cost in COSTS
    }
    assert {id_: other for id_, other in verdicts.items() if other.verdict != "other failure"} == {}


def test_missing_parser_is_not_applicable() -> None:
    _, cost = COSTS[0]
    lacking = CaseAnswer(family="any", error=AnswerError(code="KeyError", message="no such parser"))
    outcome = cost.verdict_of([lacking])
    assert (outcome.verdict, outcome.why) == ("not applicable", "KeyError: no such parser")


MEASURED = [defect for defect, _ in COSTS]


def measured(defect: Defect) -> Reproduction:
    """Makes a reproduction of the defect, with a curve of four lengths or with an error."""
    cost = reproducer_of(defect)
    assert isinstance(cost, CostCase)
    sizes = [len(grown.text) for grown in cost.case.input.grown[:4]]
    points = tuple(
        CostPoint(size=size, cpu_s=size**2 / 1e6, longest_s=size / 1e3, peak_bytes=1000 * size**2)
        for size in sizes
    )
    answer = CaseAnswer(family=cost.family.name, case=cost.case.name, delivery=cost.deliveries[-1])
    failed = {"error": AnswerError(code="RecursionError")}
    update = failed if is_error(defect) else {"curve": Curve(points=points)}
    return cost.verdict_of([answer.model_copy(update=update)])


def is_error(defect: Defect) -> bool:
    """Whether the defect shows as an exception, not as a curve."""
    return any(code.startswith("error") for each in defect.failures for code in each.mismatches)


@pytest.mark.parametrize("defect", MEASURED, ids=lambda defect: defect.id)
def test_script_has_the_measured_lengths(defect: Defect) -> None:
    cost = reproducer_of(defect)
    assert isinstance(cost, CostCase)
    values = constants_of(files_of(checked(defect), measured(defect), "release vllm 0.32.0").script)
    if cost.is_served:
        lengths = [step["say"][0][0] for step in values["STEPS"]]
        assert [step["tokens"] for step in values["STEPS"]] == [len(each.text) for each in grown_of(cost, 4)]
    else:
        lengths = values["LENGTHS"]  # including the next length, which may have taken too long to measure
        assert values["STREAMED"] is cost.deliveries[-1].is_streamed
    texts = ["".join(text * count for text, count in runs) for runs in lengths]
    assert texts == [each.text for each in grown_of(cost, len(texts))]
    assert len(texts) == (len(cost.case.input.grown) if is_error(defect) else 4 + (not cost.is_served))
    assert ("model/tokenizer.json" in values["FILES"]) is (cost.family.form is not None)


def grown_of(cost: CostCase, count: int) -> tuple[Grown, ...]:
    """Returns the first lengths of a case."""
    return cost.case.input.grown[:count]


def test_folded_repetitions() -> None:
    assert folded("<a>" + "the fox " * 900 + "</a>") == [("<a>", 1), ("the fox ", 900), ("</a>", 1)]
    assert folded("abcabcabc") == [("abcabcabc", 1)]
    assert folded("") == []


def test_report_has_the_curve() -> None:
    defect = load_defects()["hermes-reads-all-calls-anew"]
    text = files_of(checked(defect), measured(defect), "release vllm 0.32.0").report
    for part in (
        "the tool parser `hermes`",
        "token by token",
        "The CPU time grows with the power 2.00",
        " * ",
    ):
        assert part in text
    assert text.count("\n| ") == 5, "a heading and a row for each length"


def test_jobs() -> None:
    every = [
        Defect(id=id_, title="Slow", kind="defect", failures=(FailureSelector(**selector, groups=("cost",)),))
        for id_, selector in (
            ("calls-are-slow", {"families": ("hermes",), "case": "calls"}),
            ("text-is-slow", {"families": ("holo2",), "case": "text", "deliveries": ("messages:tokens_1",)}),
            ("reasoning-is-slow", {"families": ("holo2",), "case": "reasoning", "deliveries": ("tokens_1",)}),
        )
    ]
    jobs = jobs_of(checked(each).defect for each in every)
    assert [(job.first.place, [each.id for each in job.defects]) for job in jobs] == [
        ("parsers in process", ["calls-are-slow", "reasoning-is-slow"]),
        ("the cost of holo2", ["text-is-slow"]),
    ]
    of_calls, of_reasoning = (each for each in jobs[0].reproducers if isinstance(each, CostCase))
    assert [each.code for each in of_calls.deliveries] == ["whole", "tokens_1"]
    assert [each.code for each in of_reasoning.deliveries] == ["tokens_1"]


def test_older_release_is_not_applicable() -> None:
    defect = Defect.model_validate(
        {
            "id": "vllm-1",
            "title": "Slow",
            "class": "defect",
            "failures": [{"families": ["hermes"], "case": "calls", "groups": ["cost"]}],
        }
    )
    release = Environment("release", Path("python"), "3.11", "0.22.0", "cpu", None)
    ((_, outcome),) = run_job(jobs_of([defect])[0], release, progress=StartProgress())
    assert outcome.verdict == "not applicable"
    assert "0.24" in outcome.why


def test_unexplained_cost() -> None:
    cases = case_set("cost", load_families()["hermes"], load_meanings()).only(["text"])
    streamed, whole = Delivery(Chunking.TOKENS, 1, api=Api.CHAT), Delivery(Chunking.WHOLE, api=Api.CHAT)
    selector = {"case": "text", "groups": ("cost",), "deliveries": (streamed.code,)}
    steep = known(**selector, mismatches=("time_superlinear",))

    def is_news(power: int, delivery: Delivery) -> bool:
        points = (
            CostPoint(size=size, cpu_s=(size / 1000) ** power, longest_s=0)
            for size in (1000, 2000, 4000, 8000)
        )
        answer = CaseAnswer(
            family="hermes", case="text", delivery=delivery, curve=Curve(points=tuple(points))
        )
        return has_unexplained_cost([steep], cases, "python", answer)

    assert not is_news(1, whole)
    assert is_news(2, whole)
    assert not is_news(2, streamed)
    assert is_news(3, streamed)
