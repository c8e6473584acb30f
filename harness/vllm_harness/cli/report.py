"""`vllm-harness report`: writes reports of a run folder, for people and for CI, and compares two runs."""

from __future__ import annotations

import json
import os
import webbrowser
from collections.abc import Callable, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from vllm_harness import _extensions as extensions
from vllm_harness._defects.registry import load_defects
from vllm_harness._errors import UsageError
from vllm_harness._runs.lookup import find_run
from vllm_harness._runs.records import RECORD
from vllm_harness._runs.report import comparison
from vllm_harness._runs.report.compare import ComparedCase, OutcomeChange, compare
from vllm_harness._runs.report.github import github
from vllm_harness._runs.report.junit import junit
from vllm_harness._runs.report.markdown import markdown
from vllm_harness._runs.report.run import RecordedRun, read_run
from vllm_harness.cli.by_default import by_default
from vllm_harness.cli.compare import CompareFormat

STEP_SUMMARY = "GITHUB_STEP_SUMMARY"
"""GitHub's environment variable with the path of the file that a job's page shows."""


class ReportFormat(StrEnum):
    """The formats of a report."""

    HTML = "html"
    MARKDOWN = "markdown"
    JUNIT = "junit"
    GITHUB = "github"


app = typer.Typer(
    cls=by_default("show"), no_args_is_help=True, help="Show the findings of a run: `report RUN`."
)


@app.command("show")
def show(
    run: Annotated[str, typer.Argument(help="A run folder, the name of a kept run, or `latest`.")],
    format: ReportFormat = ReportFormat.HTML,
    output: Path | None = None,
    open_: bool = False,
) -> None:
    """Write a report of a run (`report RUN` is `report show RUN`).

    The report goes to standard output, or as HTML to a file in the run folder.
    `github` prints annotations. `github` and `markdown` also append the summary
    to the file that GITHUB_STEP_SUMMARY names. The exit code is 0 whatever the
    findings are, and 2 if there is no run.
    """
    folder = find_run(run)
    if format is ReportFormat.HTML:
        _show_page([folder], output or folder / "report.html", open_)
        return
    _refuse_open(open_)
    read = read_run(folder)
    if format is not ReportFormat.JUNIT and (summary := os.environ.get(STEP_SUMMARY)):
        _append(Path(summary), _markdown(read))
    writers: dict[ReportFormat, Callable[[RecordedRun], str]] = {
        ReportFormat.MARKDOWN: _markdown,
        ReportFormat.JUNIT: junit,
        ReportFormat.GITHUB: github,
    }
    _write(writers[format](read), output)


def compare_runs(before: str, after: str, format: CompareFormat, output: Path | None, open_: bool) -> bool:
    """Compares two runs case by case, writes the result, and returns whether a case became worse."""
    earlier, later = read_run(find_run(before)), read_run(find_run(after))
    compared = compare(earlier, later)
    if format is CompareFormat.HTML:
        _show_page([earlier.folder, later.folder], output or later.folder / "comparison.html", open_)
    else:
        _refuse_open(open_)
        _write(_compared_as(format)(earlier, later, compared), output)
    return any(case.change is OutcomeChange.WORSE for case in compared)


def _compared_as(format: CompareFormat) -> Callable[[RecordedRun, RecordedRun, Sequence[ComparedCase]], str]:
    return {
        CompareFormat.TEXT: comparison.as_text,
        CompareFormat.MARKDOWN: comparison.as_markdown,
        CompareFormat.JSON: comparison.as_json,
    }[format]


@app.command("schema")
def schema(output: Path | None = None) -> None:
    """Print the JSON Schema of the lines in a run folder's records."""
    _write(json.dumps(RECORD.json_schema(), indent=1) + "\n", output)


def _show_page(runs: Sequence[Path], output: Path, open_: bool) -> None:
    written: Path = extensions.load(extensions.REPORT_PAGE, "the HTML page")(runs, output)
    print(written)
    if open_:
        webbrowser.open(written.absolute().as_uri())


def _refuse_open(open_: bool) -> None:
    if open_:
        raise UsageError("--open requires the HTML format", hint="leave out --open, or give --format html")


def _markdown(run: RecordedRun) -> str:
    return markdown(run, {defect.id: defect.title for defect in load_defects().values()})


def _write(text: str, output: Path | None) -> None:
    if output is None:
        print(text, end="")
    else:
        _append(output, text, mode="w")


def _append(path: Path, text: str, mode: str = "a") -> None:
    with path.open(mode, errors="backslashreplace") as file:
        file.write(text)
