"""`vllm-harness review`: one verdict on a change to vLLM."""

from __future__ import annotations

import os
import time
from enum import StrEnum
from pathlib import Path
from typing import get_args

import typer

from vllm_harness._environments.spec import parse
from vllm_harness._environments.tree import has_vllm
from vllm_harness._errors import HarnessError, UsageError
from vllm_harness._files.paths import run_folder
from vllm_harness._machine import interrupts
from vllm_harness._regression.selection import known_names
from vllm_harness._runs.records import Kind
from vllm_harness._server.leases.allocation import interpreters
from vllm_harness.cli.regression_options import console, note
from vllm_harness.cli.run_folder import kept_run
from vllm_harness.extras.review.accepted import read_accepted
from vllm_harness.extras.review.outputs import FILES, comment, github_annotations, schema_text, write_records
from vllm_harness.extras.review.parsers import PartResult
from vllm_harness.extras.review.reviewing import ReviewRequest, not_judged, review_change
from vllm_harness.extras.review.show import review_text
from vllm_harness.extras.review.verdict import PartName, Review

STEP_SUMMARY = "GITHUB_STEP_SUMMARY"
HERE = "tree:."


class ReviewFormat(StrEnum):
    """What a review prints."""

    TEXT = "text"
    MARKDOWN = "markdown"
    JSON = "json"
    JUNIT = "junit"
    GITHUB = "github"


app = typer.Typer()


@app.callback(invoke_without_command=True)
def review(
    context: typer.Context,
    *,
    head: str = "",
    base: str = "",
    parts: str = "",
    parsers: str = "",
    cases: str = "",
    accept: Path | None = None,
    exit_first: bool = False,
    jobs: int | None = None,
    format: ReviewFormat = ReviewFormat.TEXT,
    output: Path | None = None,
) -> None:
    """Review a change to vLLM: one verdict.

    Runs what the change can affect, before and after it: parsers in process,
    then over HTTP, then tests of the serving code. Without --head, it reviews
    the checkout in this folder; without --base, its changes since HEAD. The
    exit code is 1 if a case regressed, 2 for wrong use, 3 if the change could
    not be judged. The folder of results has all formats.
    """
    if context.invoked_subcommand:
        return
    if not head and not has_vllm(Path()):
        raise UsageError(
            "this folder is not a checkout of vLLM", hint="name one: --head tree:/path/to/vllm@0.32.0"
        )
    chosen = known_names(parts, get_args(PartName), "part")
    request = ReviewRequest(
        head=_absolute(head or HERE),
        base=base,
        folder=output or run_folder("reviews", time.strftime("%Y%m%d-%H%M%S")),
        parts=tuple(name for name in get_args(PartName) if name in (chosen or get_args(PartName))),
        parsers=parsers,
        cases=cases,
        accepted=read_accepted(accept),
        parallel=jobs or interpreters(),
        until_red=exit_first,
    )
    interrupts.keep(request.folder)
    with kept_run(Kind.REGRESSION, request.folder, "review") as writer:
        result, results = _reviewed(request)
        write_records(result, results, writer)
        for name, text in FILES.items():
            (request.folder / name).write_text(text(result, request.folder))
        console.print(_printed(result, request.folder, format).rstrip("\n"))
        if summary := os.environ.get(STEP_SUMMARY):
            with Path(summary).open("a") as file:
                file.write(comment(result))
        raise typer.Exit(result.exit_code)


def _absolute(spec: str) -> str:
    """The spec of a tree with the whole path, so that the commands of a review work anywhere."""
    parsed = parse(spec)
    kernels = f"@{parsed.kernels}" if parsed.kernels else ""
    return f"tree:{parsed.tree}{kernels}" if parsed.tree else spec


def _reviewed(request: ReviewRequest) -> tuple[Review, list[PartResult]]:
    """Reviews the change; an error of this machine or of vLLM's base is the verdict that it is not judged."""
    try:
        return review_change(request, note)
    except HarnessError as error:
        if error.exit_code == UsageError.exit_code:
            raise
        note(str(error))
        reason = " ".join(f"{error.message}; {error.hint}".split())
        return not_judged(request, reason), []


def _printed(review: Review, folder: Path, format: ReviewFormat) -> str:
    match format:
        case ReviewFormat.TEXT:
            return review_text(review)
        case ReviewFormat.MARKDOWN:
            return comment(review)
        case ReviewFormat.GITHUB:
            return github_annotations(review)
        case ReviewFormat.JSON:
            return (folder / "review.json").read_text()
        case ReviewFormat.JUNIT:
            return (folder / "junit.xml").read_text()


@app.command("schema")
def schema(output: Path | None = None) -> None:
    """Print the JSON Schema of a review."""
    if output:
        output.write_text(schema_text())
    else:
        print(schema_text(), end="")
