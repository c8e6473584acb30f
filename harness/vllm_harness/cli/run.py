"""`vllm-harness run`: the suites over the models that this machine can run, and a table of results."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from vllm_harness import extensions
from vllm_harness.cli.executor import BUNDLE, RAY, RESUME, resume
from vllm_harness.cli.options import (
    CHANGED_FROM,
    COLD_START,
    DEVICE,
    FRONTEND,
    LANE,
    MODELS_FILE,
    VLLM,
    VLLM_PYTHON,
)
from vllm_harness.errors import UsageError
from vllm_harness.files.paths import checkout

SUITES = ("tests/behaviours", "tests/harmony", "tests/standard", "tests/defects")
"""The suites, relative to the checkout."""


def run(
    context: typer.Context,
    model: Annotated[list[str] | None, typer.Option(help="Model entry or hub id; may be repeated.")] = None,
    lane: LANE = None,
    vllm: VLLM = None,
    vllm_python: VLLM_PYTHON = None,
    device: DEVICE = None,
    frontend: FRONTEND = None,
    cold_start: COLD_START = False,
    keep_servers: Annotated[bool, typer.Option(help="Leave servers running for a later run.")] = False,
    at_once: Annotated[
        int, typer.Option(help="Forks that share a server's tests on the scripted lane; 0: none.")
    ] = 6,
    repeat: Annotated[int | None, typer.Option(help="Run each live test so often; pass@k, pass^k.")] = None,
    server_url: Annotated[str | None, typer.Option(help="Test a server that runs already.")] = None,
    server_version: Annotated[
        str | None, typer.Option(help="The vLLM behind that server, where it does not tell it.")
    ] = None,
    books_url: Annotated[
        str | None, typer.Option(help="The scripted server behind that server, which takes the scripts.")
    ] = None,
    server_model: Annotated[str | None, typer.Option(help="The model's name on that server.")] = None,
    api_key_env: Annotated[str | None, typer.Option(help="Variable with that server's API key.")] = None,
    models_file: MODELS_FILE = None,
    report: Annotated[
        str, typer.Option(metavar="DIR", help="The run folder; by default kept with the logs.")
    ] = "auto",
    report_all: Annotated[
        bool, typer.Option(help="Keep the exchanges of the tests that passed as well.")
    ] = False,
    changed: Annotated[
        bool,
        typer.Option("--changed", help="Of a working tree: only the tests that its change can touch."),
    ] = False,
    changed_from: CHANGED_FROM = "",
    ray: RAY = "",
    bundle: BUNDLE = None,
    resumed: RESUME = "",
) -> None:
    """Run the suites: behaviours, Harmony, standard, defects. Further flags after `--` go to pytest.

    On a cluster (`--ray`) several environments may be given, by commas; a target's suites run on one node.
    """
    if resumed:
        resume("runs", resumed, ray, context.find_root().command.main, "--report", bundle)
    if changed_from and not changed:
        raise UsageError("--changed-from says what --changed compares with", hint="add --changed")
    root = checkout()
    if root is None:
        raise UsageError(
            "the installed package has no suites", hint="scripts/run in a checkout of vllm-harness"
        )
    flags = {"cold-start": cold_start, "keep-servers": keep_servers, "report-all": report_all}
    given = [f"--vllm-{name}" for name, wanted in flags.items() if wanted]
    given += [f"--vllm-repeat={repeat}"] if repeat is not None else []
    if ray:
        _refuse_with_ray(
            {
                "--vllm-python": vllm_python,
                "--device": device,
                "--keep-servers": keep_servers,
                "--server-url": server_url,
                "--books-url": books_url,
                "--models-file": models_file,
                "--changed": changed,
            }
        )
        arguments = (*given, *context.args)
        run_on_cluster = extensions.load(extensions.SUITES_ON_CLUSTER, "--ray")
        code = run_on_cluster(
            address=ray,
            models=model or (),
            lane=lane,
            vllm=vllm or "",
            frontend=frontend or "python",
            suites=SUITES,
            arguments=arguments,
            folder=report,
            bundles=bundle or (),
        )
        raise typer.Exit(code)
    options = {
        "lane": lane,
        "spec": vllm,
        "python": vllm_python,
        "device": device,
        "frontend": frontend,
        "server-url": server_url,
        "server-version": server_version,
        "books-url": books_url,
        "server-model": server_model,
        "api-key-env": api_key_env,
        "models-file": models_file,
        "at-once": at_once,
        "report": report,
    }
    given += [f"--vllm-{name}={value}" for name, value in options.items() if value is not None]
    given += [f"--vllm-model={name}" for name in model or []]
    tests = [str(root / suite) for suite in SUITES]
    if changed:
        from vllm_harness.cli.run_changed import arguments_of_change

        tests = arguments_of_change(root, SUITES, vllm or "", changed_from, model or [])
    command = [sys.executable, "-m", "pytest", f"--rootdir={root}", *tests, *given, *context.args]
    os.execv(sys.executable, command)


def _refuse_with_ray(given: dict[str, object]) -> None:
    """Raises UsageError where an option is given that means something on this machine only."""
    if wrong := next((name for name, value in given.items() if value), None):
        raise UsageError(f"{wrong} is of this machine", hint="leave it out, or leave out --ray")
