"""`vllm-harness report` on the command line."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest
from typer.testing import CliRunner

from tests.unit.report.runs import case, every_outcome, run_in
from vllm_harness._errors import UsageError
from vllm_harness._runs.records import Outcome
from vllm_harness.cli.main import app


def output_of(*arguments: str, code: int = 0) -> str:
    """Runs `vllm-harness report` and returns its output. Raises the error with which it ends, if any."""
    result = CliRunner().invoke(app, arguments)
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == code, result.output
    return result.stdout


@pytest.mark.extra("html")
def test_a_report_is_written_to_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)
    run_in(tmp_path / "run", every_outcome())
    folder = str(tmp_path / "run")
    assert output_of("report", folder, "--format", "markdown").startswith("# vLLM harness: suites `qwen3`")
    assert output_of("report", "show", folder, "--format", "junit", "-o", str(tmp_path / "junit.xml")) == ""
    assert (tmp_path / "junit.xml").read_text().startswith("<?xml")
    assert output_of("report", folder) == f"{folder}/report.html\n"
    assert (tmp_path / "run" / "report.html").read_text().startswith("<!doctype html>")
    with pytest.raises(UsageError, match="--open requires the HTML format"):
        output_of("report", folder, "--format", "junit", "--open")
    with pytest.raises(FileNotFoundError, match=r"no/junit\.xml"):
        output_of("report", folder, "--format", "junit", "-o", str(tmp_path / "no" / "junit.xml"))


def test_a_step_summary_is_appended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "summary.md"
    page.write_text("before\n")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(page))
    run_in(tmp_path / "run", every_outcome())
    assert output_of("report", str(tmp_path / "run"), "--format", "github").startswith("::error ")
    assert page.read_text().startswith("before\n# vLLM harness")


@pytest.mark.extra("html")
def test_comparing(tmp_path: Path) -> None:
    run_in(tmp_path / "a", [case("t")])
    run_in(tmp_path / "b", [case("t", Outcome.FINDING)])
    assert "1 worse" in output_of("compare", str(tmp_path / "a"), str(tmp_path / "b"), code=1)
    assert "1 better" in output_of("compare", str(tmp_path / "b"), str(tmp_path / "a"))
    page = tmp_path / "page.html"
    both = (str(tmp_path / "b"), str(tmp_path / "a"))
    assert output_of("compare", *both, "--format", "html", "-o", str(page)) == f"{page}\n"
    assert page.stat().st_size > 1000


def test_the_schema_describes_what_is_written(tmp_path: Path) -> None:
    schema = json.loads(output_of("report", "schema"))
    run = run_in(tmp_path, every_outcome())
    for line in (run.folder / "records.jsonl").read_text().splitlines():
        jsonschema.validate(json.loads(line), schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"type": "case"}, schema)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (None, "does not contain a run"),
        ("", "does not begin with the header"),
        ('{"type":"header"', "does not begin with the header"),
        ('{"type":"header","format":99,"kind":"suites","started":1}\n', "has format 99"),
        ('{"type":"header","kind":"x","started":1}\n', "not a record of a run"),
        ("\x00\xff\n", "not a record of a run"),
    ],
)
def test_bad_input_ends_with_exit_code_2(tmp_path: Path, text: str | None, problem: str) -> None:
    if text is not None:
        (tmp_path / "records.jsonl").write_text(text, encoding="latin-1")
    with pytest.raises(UsageError, match=problem):
        output_of("report", str(tmp_path), "--format", "markdown")


def test_the_program_ends_with_exit_code_2(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "vllm_harness.cli.start", "report", str(tmp_path / "no")]
    ended = subprocess.run(command, capture_output=True, text=True)
    assert ended.returncode == 2
    assert "no run is named" in ended.stderr
