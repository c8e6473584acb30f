"""Where a run is executed: the options of commands, the executor that they name, and `--resume`."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from vllm_harness import _extensions as extensions
from vllm_harness._errors import UsageError
from vllm_harness._files.paths import run_folder
from vllm_harness._machine.shard import Executor, ThisMachine
from vllm_harness._server.leases.allocation import interpreters


def _of_nodes(context: typer.Context, bundles: list[Path] | None) -> list[Path] | None:
    """Raises UsageError where bundles are given and no cluster is, nor a run that may have one."""
    if bundles and not (context.params.get("ray") or context.params.get("resumed")):
        raise UsageError(
            "--bundle is for the nodes of a cluster",
            hint="add --ray; on this machine, `vllm-harness env bundle install` installs one",
        )
    return bundles


RAY = Annotated[
    str,
    typer.Option(
        "--ray",
        is_eager=True,  # before --bundle, which looks at it
        metavar="[ADDRESS]",
        help="Run on the nodes of a Ray cluster: that of RAY_ADDRESS or of this machine, or HOST:PORT.",
    ),
]
BUNDLE = Annotated[
    list[Path] | None,
    typer.Option(
        "--bundle",
        callback=_of_nodes,
        metavar="FOLDER",
        help="With --ray: a bundle that the nodes set themselves up from, without a package index; "
        "may be repeated, for several versions of vLLM.",
    ),
]
RESUME = Annotated[
    str,
    typer.Option("--resume", is_eager=True, metavar="RUN", help="Resume a run with its original options."),
]
COMMAND = "command.json"


@contextmanager
def executor_of(
    ray: str,
    parallel: int | None,
    folder: Path,
    *,
    tests: bool = False,
    bundles: Sequence[Path] | None = None,
    vllm: Sequence[str] = (),
) -> Iterator[Executor]:
    """The executor that the options name.

    Args:
        ray: the address of a cluster; empty: this machine.
        parallel: how many shards at a time on this machine.
        folder: of the run.
        tests: whether the nodes need the tests of the checkout.
        bundles: folders of bundles that the nodes set themselves up from.
        vllm: the environments that they are to have then.

    Raises:
        UsageError: `--jobs` is given for a cluster, a bundle does not fit, or the extra `cluster` is missing.
        BundleError: a bundle is damaged, or made for another kind of machine.
        ClusterError: there is no such cluster, or no Ray.
    """
    if not ray:
        yield ThisMachine(parallel or interpreters())
        return
    if parallel:
        raise UsageError(
            "--jobs applies to local runs only", hint="leave it out: nodes run as many as fit on them"
        )
    on_nodes = extensions.load(extensions.CLUSTER, "--ray")
    with on_nodes(ray, folder, tests=tests, bundles=bundles, vllm=vllm) as executor:
        yield executor


def keep_command(folder: Path) -> None:
    """Keeps the command line of a run in its folder, for `--resume`."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / COMMAND).write_text(json.dumps(sys.argv[1:]))


def resume(
    kind: str,
    run: str,
    ray: str,
    main: Callable[[list[str]], object],
    option: str = "--run",
    bundles: Sequence[Path] | None = None,
) -> None:
    """Runs the command of a run once more, in its folder: what has finished does not run again.

    Args:
        kind: of the run.
        run: its name or folder.
        ray: the address of the cluster, where it is another one than that time.
        main: runs the command line.
        option: by which the command takes the folder.
        bundles: for its nodes, where they are others than that time.

    Raises:
        UsageError: there is no such run, or its command was not kept.
    """
    folder = run_folder(kind, run)
    try:
        arguments = [str(argument) for argument in json.loads((folder / COMMAND).read_text())]
    except (OSError, ValueError) as error:
        raise UsageError(
            f"{folder} holds no run that can go on", hint="name the run that a command printed"
        ) from error
    given = {"--ray": [ray] if ray else [], "--bundle": list(map(str, bundles or ()))}
    kept = _without(arguments, option, *(name for name, values in given.items() if values))
    further = [
        option,
        str(folder),
        *(each for name in given for value in given[name] for each in (name, value)),
    ]
    at = kept.index("--") if "--" in kept else len(kept)
    main([*kept[:at], *further, *kept[at:]])


def _without(arguments: Sequence[str], *names: str) -> list[str]:
    """Arguments without these options and their values."""
    kept: list[str] = []
    skipped = False
    for argument in arguments:
        if skipped:
            skipped = False
        elif argument in names:
            skipped = True
        elif argument.partition("=")[0] not in names:
            kept.append(argument)
    return kept
