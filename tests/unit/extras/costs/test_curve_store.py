"""The stored cost curves of a cell, from which an interrupted measurement over HTTP is resumed."""

from __future__ import annotations

from pathlib import Path

import pytest

from vllm_harness._exchange.delivery import Api, Chunking, Delivery
from vllm_harness._regression.cases.case import CaseInput
from vllm_harness._regression.engines.answer import AnswerError, CaseAnswer, CostPoint, Curve
from vllm_harness._regression.results.cells import RegressionRun
from vllm_harness.extras.costs.curve_store import CurveStore, not_measured

BODY = Delivery(Chunking.WHOLE, api=Api.MESSAGES)
STREAM = Delivery(Chunking.TOKENS, tokens=1, api=Api.MESSAGES)


def measured(case: str, delivery: Delivery) -> CaseAnswer:
    curve = Curve(points=(CostPoint(size=1000, cpu_s=0.5, longest_s=0.01),))
    return CaseAnswer(family="hermes", case=case, delivery=delivery, curve=curve)


def store(run: Path, what: str = "these") -> CurveStore:
    return CurveStore(RegressionRun(run).curves_file("release:0.32.0", "hermes"), what)


def test_stored_curves_are_not_measured_again(tmp_path: Path) -> None:
    first = store(tmp_path)
    assert first.read() == []
    first.start([])
    for answer in (measured("text", BODY), measured("text", STREAM), measured("calls", BODY)):
        first.add(answer)
    known = store(tmp_path).read()
    assert known == [measured("text", BODY), measured("text", STREAM), measured("calls", BODY)]
    inputs = [
        CaseInput(name=name, text="", deliveries=(BODY, STREAM)) for name in ("text", "calls", "string")
    ]
    left = [(input_.name, input_.deliveries) for input_ in not_measured(inputs, known)]
    assert left == [("calls", (STREAM,)), ("string", (BODY, STREAM))]


@pytest.mark.parametrize("missing", range(1, 40, 7))
def test_incomplete_line_is_measured_again(tmp_path: Path, missing: int) -> None:
    first = store(tmp_path)
    first.start([measured("text", BODY)])
    first.add(measured("text", STREAM))
    first.path.write_text(first.path.read_text()[: -missing - 1])
    again = store(tmp_path)
    assert again.read() == [measured("text", BODY)]
    again.start(again.read())
    again.add(measured("calls", BODY))
    assert store(tmp_path).read() == [measured("text", BODY), measured("calls", BODY)]


def test_curves_of_other_cases_are_ignored(tmp_path: Path) -> None:
    store(tmp_path).start([measured("text", BODY)])
    assert store(tmp_path, "others").read() == []


def test_error_is_not_stored(tmp_path: Path) -> None:
    curves = store(tmp_path)
    curves.start([])
    curves.add(CaseAnswer(family="hermes", case="text", delivery=BODY, error=AnswerError(code="http_500")))
    assert curves.read() == []


def test_nothing_is_stored_without_a_run_folder(tmp_path: Path) -> None:
    curves = store(tmp_path / "of another machine")
    curves.start([measured("text", BODY)])
    curves.add(measured("text", STREAM))
    assert not list(tmp_path.iterdir())
