"""`vllm-harness run`: the suites over the models that this machine can run, and a table of results."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from vllm_harness import _extensions as extensions
from vllm_harness._errors import UsageError
from vllm_harness._files.paths import checkout
from vllm_harness.cli.executor import BUNDLE, RAY, RESUME, resume
from vllm_harness.cli.options import CHANGED_FROM, MODELS, ServerOptions, with_options

SUITES = ("tests/behaviours", "tests/harmony", "tests/standard", "tests/defects")
"""The suites, relative to the checkout."""


@with_options
def run(
    context: typer.Context,
    models: MODELS = None,
    *,
    on: ServerOptions,
    keep_servers: Annotated[bool, typer.Option(help="Leave servers running for a later run.")] = False,
    at_once: Annotated[
        int, typer.Option(help="Forks that share a server's tests on the scripted lane; 0: none.")
    ] = 6,
    repeat: Annotated[int | None, typer.Option(help="Run each live test so often; pass@k, pass^k.")] = None,
    server_version: Annotated[
        str | None, typer.Option(help="The vLLM behind that server, where it does not report it.")
    ] = None,
    books_url: Annotated[
        str | None, typer.Option(help="The scripted server behind that server, which takes the scripts.")
    ] = None,
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
    flags = {"cold-start": on.cold_start, "keep-servers": keep_servers, "report-all": report_all}
    given = [f"--vllm-{name}" for name, wanted in flags.items() if wanted]
    given += [f"--vllm-repeat={repeat}"] if repeat is not None else []
    if ray:
        _refuse_with_ray(
            {
                "--vllm-python": on.vllm_python,
                "--device": on.device,
                "--keep-servers": keep_servers,
                "--server-url": on.server_url,
                "--books-url": books_url,
                "--models-file": on.models_file,
                "--changed": changed,
            }
        )
        arguments = (*given, *context.args)
        run_on_cluster = extensions.load(extensions.SUITES_ON_CLUSTER, "--ray")
        code = run_on_cluster(
            address=ray,
            models=models or (),
            lane=on.lane,
            vllm=on.vllm or "",
            frontend=on.frontend or "python",
            suites=SUITES,
            arguments=arguments,
            folder=report,
            bundles=bundle or (),
        )
        raise typer.Exit(code)
    options = {
        "lane": on.lane,
        "spec": on.vllm,
        "python": on.vllm_python,
        "device": on.device,
        "frontend": on.frontend,
        "server-url": on.server_url,
        "server-version": server_version,
        "books-url": books_url,
        "server-model": on.server_model,
        "api-key-env": on.api_key_env,
        "models-file": on.models_file,
        "at-once": at_once,
        "report": report,
    }
    given += [f"--vllm-{name}={value}" for name, value in options.items() if value is not None]
    given += [f"--vllm-model={name}" for name in models or []]
    tests = [str(root / suite) for suite in SUITES]
    if changed:
        from vllm_harness.cli.run_changed import arguments_of_change

        tests = arguments_of_change(root, SUITES, on.vllm or "", changed_from, models or [])
    command = [sys.executable, "-m", "pytest", f"--rootdir={root}", *tests, *given, *context.args]
    os.execv(sys.executable, command)


def _refuse_with_ray(given: dict[str, object]) -> None:
    """Raises UsageError where an option is given that means something on this machine only."""
    if wrong := next((name for name, value in given.items() if value), None):
        raise UsageError(f"{wrong} cannot be combined with --ray", hint=f"leave out {wrong} or --ray")
