"""The curves of a cell over HTTP, as an interrupted run leaves them to the next."""

from __future__ import annotations

from pathlib import Path

import pytest

from vllm_harness._regression.cases.case import CaseInput
from vllm_harness._regression.cases.delivery import Api, Chunking, Delivery
from vllm_harness._regression.engines.answer import AnswerError, CaseAnswer, CostPoint, Curve
from vllm_harness._regression.results.cells import RegressionRun
from vllm_harness.extras.costs.kept import KeptCurves, not_measured

BODY = Delivery(Chunking.WHOLE, api=Api.MESSAGES)
STREAM = Delivery(Chunking.TOKENS, tokens=1, api=Api.MESSAGES)


def measured(case: str, delivery: Delivery) -> CaseAnswer:
    curve = Curve(points=(CostPoint(size=1000, cpu_s=0.5, longest_s=0.01),))
    return CaseAnswer(family="hermes", case=case, delivery=delivery, curve=curve)


def kept(run: Path, what: str = "these") -> KeptCurves:
    return KeptCurves(RegressionRun(run).curves_file("release:0.32.0", "hermes"), what)


def test_what_was_measured_is_not_measured_again(tmp_path: Path) -> None:
    first = kept(tmp_path)
    assert first.read() == []
    first.begin([])
    for answer in (measured("text", BODY), measured("text", STREAM), measured("calls", BODY)):
        first.add(answer)
    known = kept(tmp_path).read()
    assert known == [measured("text", BODY), measured("text", STREAM), measured("calls", BODY)]
    inputs = [
        CaseInput(name=name, text="", deliveries=(BODY, STREAM)) for name in ("text", "calls", "string")
    ]
    left = [(input_.name, input_.deliveries) for input_ in not_measured(inputs, known)]
    assert left == [("calls", (STREAM,)), ("string", (BODY, STREAM))]


@pytest.mark.parametrize("cut", range(1, 40, 7))
def test_a_line_that_was_cut_is_measured_again(tmp_path: Path, cut: int) -> None:
    first = kept(tmp_path)
    first.begin([measured("text", BODY)])
    first.add(measured("text", STREAM))
    first.path.write_text(first.path.read_text()[: -cut - 1])
    again = kept(tmp_path)
    assert again.read() == [measured("text", BODY)]
    again.begin(again.read())
    again.add(measured("calls", BODY))
    assert kept(tmp_path).read() == [measured("text", BODY), measured("calls", BODY)]


def test_curves_of_other_cases_count_as_nothing(tmp_path: Path) -> None:
    kept(tmp_path).begin([measured("text", BODY)])
    assert kept(tmp_path, "others").read() == []


def test_an_error_is_not_kept(tmp_path: Path) -> None:
    curves = kept(tmp_path)
    curves.begin([])
    curves.add(CaseAnswer(family="hermes", case="text", delivery=BODY, error=AnswerError(code="http_500")))
    assert curves.read() == []


def test_nothing_is_kept_where_the_run_has_no_folder(tmp_path: Path) -> None:
    curves = kept(tmp_path / "of another machine")
    curves.begin([measured("text", BODY)])
    curves.add(measured("text", STREAM))
    assert not list(tmp_path.iterdir())
