"""`vllm-harness run`: runs the suites on the models that this machine can run, and prints the results."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

import pytest
import typer

from vllm_harness import _extensions as extensions
from vllm_harness._errors import UsageError
from vllm_harness._files.paths import checkout
from vllm_harness._machine import interrupts
from vllm_harness.cli.executor import resume
from vllm_harness.cli.option_table import named
from vllm_harness.cli.options import ServerOptions

SUITES = ("tests/behaviours", "tests/harmony", "tests/standard", "tests/defects")
"""The suites, relative to the checkout."""
_ON_THIS_MACHINE = ("vllm_python", "device", "keep_servers", "server_url", "books_url", "models_file")
_CODES = {2: 3, 4: 2, 5: 2}
"""The codes of a command, by those of pytest for tests that cannot be collected, wrong use, and no tests."""
_IMPORTED = "ignore:Module already imported so cannot be rewritten; vllm_harness"
_OF_PYTEST = ("cold_start", "keep_servers", "report_all", "repeat")


@dataclass(frozen=True)
class RunOptions(ServerOptions):
    """The options of the pytest plugin that `run` passes on."""

    model: list[str] | None = None
    keep_servers: bool = False
    at_once: int = 6
    repeat: int | None = None
    server_version: str | None = None
    books_url: str | None = None
    output: Path = Path("auto")
    report_all: bool = False

    def for_pytest(self, names: Collection[str]) -> list[str]:
        """The options with these names, if they were given, as arguments for pytest."""
        return [flag for name in names for flag in _flags(named(name), getattr(self, name))]


def run(
    context: typer.Context,
    *,
    options: RunOptions,
    changed: bool = False,
    changed_from: str = "",
    ray: str = "",
    bundle: list[Path] | None = None,
    resume_: str = "",
) -> None:
    """Run the suites: behaviours, Harmony, standard, defects. Flags after `--` go to pytest.

    The run folder is stored with the logs, unless --output names another. On a
    cluster (--ray), --vllm accepts several environments, separated by commas;
    the suites of a target run on one node.
    """
    if resume_:
        resume("runs", resume_, ray, context.find_root().command.main, "--output", bundle)
    root = checkout()
    if root is None:
        raise UsageError(
            "the installed package has no suites", hint="use scripts/run in a checkout of vllm-harness"
        )
    if ray:
        _refuse_with_ray({name: getattr(options, name) for name in _ON_THIS_MACHINE} | {"changed": changed})
        raise typer.Exit(_on_cluster(options, context.args, ray, bundle or ()))
    tests = [str(root / suite) for suite in SUITES]
    if changed:
        arguments_of_change = extensions.load(extensions.CHANGED_TESTS, "--changed")
        tests = arguments_of_change(root, SUITES, options.vllm or "", changed_from, options.model or [])
    given = options.for_pytest([each.name for each in fields(options)])
    raise typer.Exit(run_pytest(f"--rootdir={root}", *tests, *given, *context.args))


def run_pytest(*arguments: str) -> int:
    """Runs pytest in this process, and returns a command's exit code. A signal raises KeyboardInterrupt."""
    sys.path.insert(0, str(Path.cwd()))  # as `python -m pytest` does
    code = int(pytest.main(["-W", _IMPORTED, *arguments]))
    if interrupts.exit_code(0):
        raise KeyboardInterrupt
    return _CODES.get(code, code)


def _on_cluster(options: RunOptions, further: Sequence[str], ray: str, bundles: Sequence[Path]) -> int:
    """Runs the suites on the nodes of a cluster, and returns the exit code."""
    run_on_cluster = extensions.load(extensions.SUITES_ON_CLUSTER, "--ray")
    code: int = run_on_cluster(
        address=ray,
        models=options.model or (),
        lane=options.lane,
        vllm=options.vllm or "",
        frontend=options.frontend or "python",
        suites=SUITES,
        arguments=(*options.for_pytest(_OF_PYTEST), *further),
        folder=str(options.output),
        bundles=bundles,
    )
    return code


def _flags(name: str, value: object) -> Iterator[str]:
    flag = f"--{name}" if name.startswith("vllm") else f"--vllm-{name}"
    if value is True:
        yield flag
    elif isinstance(value, list):
        yield from (f"{flag}={each}" for each in value)
    elif value is not None and value is not False:
        yield f"{flag}={value}"


def _refuse_with_ray(values: dict[str, object]) -> None:
    """Raises UsageError if an option is given that applies only to this machine."""
    if given := next((f"--{named(name)}" for name, value in values.items() if value), None):
        raise UsageError(f"{given} cannot be combined with --ray", hint=f"leave out {given} or --ray")
