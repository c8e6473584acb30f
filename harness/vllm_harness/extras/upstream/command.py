"""`vllm-harness upstream`: runs vLLM's own end-to-end test files on the harness's servers."""

from __future__ import annotations

import os
from itertools import takewhile
from pathlib import Path
from typing import Annotated

import typer

from vllm_harness._configuration.model_entries import Device, Frontend, Lane
from vllm_harness._errors import UsageError
from vllm_harness._runs.lookup import find_run
from vllm_harness._terminal.tables import plain_console
from vllm_harness.cli.options import environment
from vllm_harness.cli.run import run_pytest
from vllm_harness.extras.upstream import measured
from vllm_harness.extras.upstream.release_tests import FOLDERS, fetch

app = typer.Typer(help="Run vLLM's own end-to-end test files, unmodified.", no_args_is_help=True)
PASS_ON = {"allow_extra_args": True, "ignore_unknown_options": True}


@app.command("fetch")
def fetch_(version: Annotated[str, typer.Argument(help="The release, such as 0.33.0.")]) -> None:
    """Fetch the test files of a vLLM release, and print the folder with them."""
    print(fetch(version, progress=plain_console(stderr=True).print))


@app.command(context_settings=PASS_ON)
def run(
    context: typer.Context,
    files: Annotated[
        list[str] | None,
        typer.Argument(
            help="Files or folders in vLLM's `tests`, by default the endpoints'; then pytest options.",
        ),
    ] = None,
    tests: str | None = None,
    lane: Lane | None = None,
    vllm: str | None = None,
    vllm_python: Path | None = None,
    device: Device | None = None,
    frontend: Frontend | None = None,
    wrong_answers: str = "",
    unit_tests: bool = True,
) -> None:
    """Run test files of a vLLM release on the harness's servers.

    With --wrong-answers, each test that passed runs again with wrong answers,
    which should make it fail; give their kinds, separated by commas (other,
    nothing, call, reasoning, truncated, varying), or `all`. Tests without a
    server run in the Python of the vLLM environment.
    """
    every = [*(files or []), *context.args]
    paths = list(takewhile(lambda argument: not argument.startswith("-"), every))
    chosen = environment(vllm, vllm_python, device)
    folder = fetch(tests or chosen.vllm_version, progress=plain_console(stderr=True).print)
    named = [f"tests/{path.removeprefix('tests/')}" for path in paths or FOLDERS]
    if missing := [path for path in named if not (folder / path.partition("::")[0]).exists()]:
        raise UsageError(
            f"the test files of vLLM {tests or chosen.vllm_version} have no {missing[0]}",
            hint=f"name a file or a folder in {folder / 'tests'}, such as {FOLDERS[0]}",
        )
    options = {
        "vllm": vllm,
        "vllm-python": vllm_python,
        "vllm-lane": lane,
        "vllm-device": device,
        "vllm-frontend": frontend,
    }
    given = [f"--{name}={value}" for name, value in options.items() if value is not None]
    given += [f"--upstream-wrong-answers={wrong_answers}"]
    given += [] if unit_tests else ["--upstream-no-unit-tests"]
    settings = ["-p", "no:cacheprovider", "-o", "asyncio_default_fixture_loop_scope=function"]
    os.chdir(folder)
    plugin = ("-p", "vllm_harness.extras.upstream")
    raise typer.Exit(run_pytest(*plugin, *settings, *named, *given, *every[len(paths) :]))


@app.command()
def table(
    runs: Annotated[list[str], typer.Argument(help="Folders of `upstream run` runs, or `latest`.")],
    write: bool = False,
) -> None:
    """Show the results of runs as Markdown: by test file, with the reasons for skips.

    Runs of the same release's tests against the same vLLM version, such as one for each file, are combined.
    """
    combined = measured.measured([find_run(run) for run in runs])
    print("\n".join(map(measured.as_markdown, combined)))
    if write:
        measured.write(combined)
