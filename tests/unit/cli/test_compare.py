"""`vllm-harness compare` recognizes the kind of its arguments, and refuses two of different kinds."""

from __future__ import annotations

import json
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from tests.unit.cassettes.samples import CALL, exchange, message, of, response
from tests.unit.regression.test_results import case_result, cell
from tests.unit.report.runs import case, run_in
from vllm_harness import _extensions as extensions
from vllm_harness._cassettes.writing import write
from vllm_harness._errors import UsageError
from vllm_harness._extensions import MissingExtra
from vllm_harness._files.redaction import Redactor
from vllm_harness._regression.results.cells import RegressionRun
from vllm_harness._runs.records import Outcome
from vllm_harness.cli.main import app

GATEWAYS = pytest.mark.extra("gateways")
ERROR = '{"error": {"message": "no", "type": "x", "code": 500}}'
WORDS = {
    "cassette": "a cassette",
    "regression": "a run of `regression`",
    "run": "a run folder",
    "recording": "a recording of a gateway",
    "nothing": "nothing that `compare` can read",
}
OPTIONS = {
    "--json": {"cassette", "recording"},
    "--product=litellm==1.0": {"recording"},
    "--format=json": {"run"},
    "--output=page.html": {"run"},
    "--open": {"run"},
}


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two files or folders of each kind, the second with worse results; regression runs are known by name."""
    monkeypatch.setenv("VLLM_HARNESS_STATE", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    write(of(exchange("t", {}, response("r", CALL))), tmp_path / "cassette-1.yaml", Redactor())
    write(of(exchange("t", {}, response("r", message("Hm.")))), tmp_path / "cassette-2.yaml", Redactor())
    run_in(tmp_path / "run-1", [case("t")])
    run_in(tmp_path / "run-2", [case("t", Outcome.FINDING)])
    for name, mismatches in (("regression-1", {}), ("regression-2", {"tokens_1": ("call_lost",)})):
        for environment in ("0.31.0", "0.32.0")[: 2 if mismatches else 1]:
            RegressionRun.named(name).write(cell(environment, call=case_result(mismatches=mismatches)))
        run_in(RegressionRun.named(name).folder, [case("t")])
    for name, status in (("recording-1", 200), ("recording-2", 500)):
        (tmp_path / name).mkdir()
        (tmp_path / name / extensions.RECORDING).write_text(json.dumps(recorded(status)))
        (tmp_path / name / "chat-text.json").write_text(ERROR if status == 500 else "{}")
    (tmp_path / "nothing-1").mkdir()
    (tmp_path / "nothing-2").write_text("{}")
    return tmp_path


def named(kind: str, number: int) -> str:
    """The name that the fixture gives to the file or folder of a kind with this number."""
    return f"{kind}-{number}" + ".yaml" * (kind == "cassette")


def recorded(status: int) -> dict[str, Any]:
    """The index of a recording with one request, in the format of the gateways extra."""
    exchange = {"name": "chat/text", "api": "chat", "request": {"model": "m"}, "status": status}
    exchange |= {"headers": {"content-type": "application/json"}, "file": "chat-text.json", "arrivals": []}
    return {"url": "http://a", "model": "m", "scripted": True, "exchanges": [exchange]}


def compared(*arguments: str) -> Result:
    """Runs `vllm-harness compare`. Raises the UsageError with which it ends, if any."""
    result = CliRunner().invoke(app, ["compare", *arguments])
    if isinstance(result.exception, UsageError):
        raise result.exception
    return result


@pytest.mark.usefixtures("kept")
@pytest.mark.parametrize(
    ("kind", "worse"),
    [
        ("cassette", "turn t"),
        ("run", "1 worse"),
        ("regression", "1 regressed, 0 fixed compared with regression-1"),
        pytest.param("recording", "1 requests, ", marks=GATEWAYS),
    ],
)
def test_two_of_a_kind_are_compared(kind: str, worse: str) -> None:
    environment = "@0.32.0" if kind == "regression" else ""
    result = compared(named(kind, 1), named(kind, 2) + environment)
    assert result.exit_code == 1, result.output
    assert worse in result.output
    assert compared(named(kind, 1), named(kind, 1)).exit_code == 0


@pytest.mark.usefixtures("kept")
@pytest.mark.parametrize(("one", "other"), list(permutations(WORDS, 2)))
def test_two_of_different_kinds_are_each_named(one: str, other: str) -> None:
    with pytest.raises(UsageError) as raised:
        compared(named(one, 1), named(other, 2))
    assert raised.value.exit_code == 2
    assert raised.value.message == (
        f"these cannot be compared: {named(one, 1)} is {WORDS[one]}; {named(other, 2)} is {WORDS[other]}"
    )
    assert "give two cassettes" in raised.value.hint


@pytest.mark.usefixtures("kept")
@pytest.mark.parametrize("option", OPTIONS)
@pytest.mark.parametrize("kind", ["cassette", "run", "regression", pytest.param("recording", marks=GATEWAYS)])
def test_an_option_of_another_kind_is_refused(kind: str, option: str) -> None:
    name = option.partition("=")[0]
    if kind in OPTIONS[option]:
        if option != "--open":
            assert compared(named(kind, 1), named(kind, 1), option).exit_code == 0
        return
    with pytest.raises(UsageError) as raised:
        compared(named(kind, 1), named(kind, 1), option)
    having = " and ".join(words for each, words in WORDS.items() if each in OPTIONS[option])
    assert raised.value.message == f"{name} is for {having}; these are each {WORDS[kind]}"
    assert ("--as run" in raised.value.hint) == (kind == "regression" and OPTIONS[option] == {"run"})


def test_the_folder_of_a_regression_is_a_run_folder_too(kept: Path) -> None:
    one, other = (str(kept / "state" / "regression" / f"regression-{number}") for number in (1, 2))
    assert "regressed" in compared(one, f"{other}@0.32.0").output
    assert "regressed" not in compared(one, other, "--as", "run").output
    assert "regressed" not in compared(one, "run-2").output
    assert "regressed" not in compared("regression/regression-1", "regression/regression-2").output


@pytest.mark.usefixtures("kept")
def test_the_kind_can_be_given() -> None:
    with pytest.raises(UsageError, match="no run"):
        compared("cassette-1.yaml", "run-1", "--as", "run")


@pytest.mark.usefixtures("kept")
def test_recordings_need_their_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extensions, "installed", lambda extra: False)
    with pytest.raises(MissingExtra, match="to compare recordings needs the extra `gateways`"):
        compared("recording-1", "recording-2")
