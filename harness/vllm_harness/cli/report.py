"""`vllm-harness report`: a run folder for people and for CI, and two of them compared."""

from __future__ import annotations

import json
import os
import webbrowser
from collections.abc import Callable, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from vllm_harness import extensions
from vllm_harness.defects.registry import load_defects
from vllm_harness.errors import UsageError
from vllm_harness.runs.places import find_run
from vllm_harness.runs.records import RECORD
from vllm_harness.runs.report import comparison
from vllm_harness.runs.report.compare import Change, Compared, compare
from vllm_harness.runs.report.github import github
from vllm_harness.runs.report.junit import junit
from vllm_harness.runs.report.markdown import markdown
from vllm_harness.runs.report.run import Run, read_run

STEP_SUMMARY = "GITHUB_STEP_SUMMARY"
"""GitHub's variable with the file that a job's page shows."""


class ReportFormat(StrEnum):
    """How a run is written."""

    HTML = "html"
    MARKDOWN = "markdown"
    JUNIT = "junit"
    GITHUB = "github"


class CompareFormat(StrEnum):
    """How a comparison is written."""

    TEXT = "text"
    HTML = "html"
    MARKDOWN = "markdown"
    JSON = "json"


class _RunByDefault(typer.core.TyperGroup):
    """`report RUN` is `report show RUN`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in self.commands and args[0] != "--help":
            args = ["show", *args]
        return super().parse_args(ctx, args)


app = typer.Typer(
    cls=_RunByDefault, no_args_is_help=True, help="Show a run folder, or compare two: `report RUN`."
)
RUN = Annotated[str, typer.Argument(help="A run folder, the name of a kept run, or `latest`.")]
OUTPUT = Annotated[
    Path | None,
    typer.Option(
        "--output", "-o", help="The file; by default standard output, and for HTML one in the run folder."
    ),
]
OPEN = Annotated[bool, typer.Option("--open", help="Open the page in a browser.")]


@app.command("show")
def show(
    run: RUN,
    format: Annotated[ReportFormat, typer.Option(help="The format.")] = ReportFormat.HTML,
    output: OUTPUT = None,
    open_: OPEN = False,
) -> None:
    """Write a report of a run (`report RUN` is `report show RUN`).

    `github` prints annotations. It and `markdown` also append the summary to the file that
    GITHUB_STEP_SUMMARY names. The exit code is 0 whatever the run has found, and 2 where there is no run.
    """
    folder = find_run(run)
    if format is ReportFormat.HTML:
        _show_page([folder], output or folder / "report.html", open_)
        return
    _refuse_open(open_)
    read = read_run(folder)
    if format is not ReportFormat.JUNIT and (summary := os.environ.get(STEP_SUMMARY)):
        _append(Path(summary), _markdown(read))
    made: dict[ReportFormat, Callable[[Run], str]] = {
        ReportFormat.MARKDOWN: _markdown,
        ReportFormat.JUNIT: junit,
        ReportFormat.GITHUB: github,
    }
    _write(made[format](read), output)


@app.command("compare")
def compare_(
    before: RUN,
    after: RUN,
    format: Annotated[CompareFormat, typer.Option(help="The format.")] = CompareFormat.TEXT,
    output: OUTPUT = None,
    open_: OPEN = False,
) -> None:
    """Compare two runs, case by case.

    The exit code is 1 where a case became worse, and 2 where there is no run or the runs have no target in
    common.
    """
    earlier, later = read_run(find_run(before)), read_run(find_run(after))
    compared = compare(earlier, later)
    if format is CompareFormat.HTML:
        _show_page([earlier.folder, later.folder], output or later.folder / "comparison.html", open_)
    else:
        _refuse_open(open_)
        _write(_compared_as(format)(earlier, later, compared), output)
    if any(each.change is Change.WORSE for each in compared):
        raise typer.Exit(1)


def _compared_as(format: CompareFormat) -> Callable[[Run, Run, Sequence[Compared]], str]:
    return {
        CompareFormat.TEXT: comparison.as_text,
        CompareFormat.MARKDOWN: comparison.as_markdown,
        CompareFormat.JSON: comparison.as_json,
    }[format]


@app.command("schema")
def schema(output: OUTPUT = None) -> None:
    """Print the JSON Schema of a line of a run folder's records."""
    _write(json.dumps(RECORD.json_schema(), indent=1) + "\n", output)


def _show_page(runs: Sequence[Path], output: Path, open_: bool) -> None:
    written: Path = extensions.load(extensions.REPORT_PAGE, "the HTML page")(runs, output)
    print(written)
    if open_:
        webbrowser.open(written.absolute().as_uri())


def _refuse_open(open_: bool) -> None:
    if open_:
        raise UsageError("--open is of the HTML page", hint="leave out --format, or --open")


def _markdown(run: Run) -> str:
    return markdown(run, {defect.id: defect.title for defect in load_defects().values()})


def _write(text: str, output: Path | None) -> None:
    if output is None:
        print(text, end="")
        return
    try:
        output.write_text(text, errors="backslashreplace")
    except OSError as error:
        raise UsageError(f"{output} cannot be written: {error.strerror}", hint="name another file") from error


def _append(path: Path, text: str) -> None:
    try:
        with path.open("a", errors="backslashreplace") as file:
            file.write(text)
    except OSError as error:
        raise UsageError(
            f"{path}, which {STEP_SUMMARY} names, cannot be written: {error.strerror}",
            hint=f"unset {STEP_SUMMARY} outside of GitHub",
        ) from error
