"""The options of commands that run on a Ray cluster as well, and the executor that they name."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from vllm_harness.bundles.for_nodes import NodeBundle, bundles_for, outfit_of, source_of
from vllm_harness.errors import UsageError
from vllm_harness.executors.places import NodeUse, Places
from vllm_harness.executors.ray_cluster import RayCluster, connected
from vllm_harness.executors.shard import Executor
from vllm_harness.executors.shipping import SHIP, runtime_env, ships, variables
from vllm_harness.executors.this_machine import ThisMachine
from vllm_harness.files.paths import run_folder
from vllm_harness.server.leases.allocation import interpreters
from vllm_harness.server.leases.side_by_side import side_by_side
from vllm_harness.terminal.tables import plain_console, show_table


def _of_nodes(context: typer.Context, bundles: list[Path] | None) -> list[Path] | None:
    """Raises UsageError where bundles are given and no cluster is, nor a run that may have one."""
    if bundles and not (context.params.get("ray") or context.params.get("resumed")):
        raise UsageError(
            "--bundle is for the nodes of a cluster",
            hint="add --ray; on this machine, `vllm-harness bundle install` installs one",
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
    typer.Option(
        "--resume", is_eager=True, metavar="RUN", help="Go on with a run, as it was asked for then."
    ),
]
PATIENCE = "VLLM_HARNESS_RAY_PATIENCE_S"
PATIENCE_S = 1800.0
COMMAND = "command.json"
HEADINGS = ("node", "cells", "begun again", "busy", "at a time")


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
    """The executor that the options name; a cluster is left at the end, and what its nodes did is shown.

    Args:
        ray: the address of a cluster; empty: this machine.
        parallel: how many shards at a time on this machine.
        folder: of the run.
        tests: whether the nodes need the tests of the checkout.
        bundles: folders of bundles that the nodes set themselves up from.
        vllm: the environments that they are to have then.

    Raises:
        UsageError: `--jobs` is given for a cluster, or a bundle does not fit.
        BundleError: a bundle is damaged, or of another kind of machine.
        ClusterError: there is no such cluster, or no Ray.
    """
    if not ray:
        yield ThisMachine(parallel or interpreters(), side_by_side)
        return
    if parallel:
        raise UsageError("--jobs is of this machine", hint="leave it out: nodes run as many as fit on them")
    checked = checked_bundles(bundles, vllm, tests=tests)
    places = Places(folder)
    with cluster_of(ray, places, tests=tests, bundles=checked) as cluster:
        try:
            yield cluster
        finally:
            _show(places.uses())


def checked_bundles(
    folders: Sequence[Path] | None, vllm: Sequence[str] = (), *, tests: bool = False
) -> list[NodeBundle]:
    """The bundles that `--bundle` names, checked; see `bundles_for`.

    Raises:
        UsageError: the nodes need none, or one does not fit.
        BundleError: one is damaged, or of another kind of machine.
    """
    if not folders:
        return []
    if not ships():
        raise UsageError(
            f"with {SHIP}=0 the nodes have the harness already", hint="unset it, or leave --bundle out"
        )
    plain_console(stderr=True).print(f"checking {', '.join(map(str, folders))}")
    return bundles_for(folders, vllm, tests=tests)


@contextmanager
def cluster_of(
    ray: str, places: Places, *, tests: bool = False, extra: str = "", bundles: Sequence[NodeBundle] = ()
) -> Iterator[RayCluster]:
    """The cluster of an address, connected until the end.

    Args:
        ray: its address.
        places: keeps where cells ran.
        tests: whether the nodes need the tests of the checkout.
        extra: of the harness's packages that the nodes need.
        bundles: that the nodes set themselves up from, in place of what would be sent.

    Raises:
        ClusterError: there is no such cluster, or no Ray, or no node could be set up.
    """
    notes = plain_console(stderr=True)
    with tempfile.TemporaryDirectory(prefix="vllm-harness-ray-") as shipped:
        notes.print("connecting to Ray, and sending the harness to its nodes")
        sent = {"env_vars": variables()} if bundles else runtime_env(Path(shipped), tests, extra)
        with connected(ray, runtime_env=sent) as module:
            outfit = outfit_of(bundles, source_of(bundles, module)) if bundles else None
            cluster = RayCluster(module, notes.print, places.add, _patience(), outfit)
            cluster.await_arrivals()
            yield cluster


def _patience() -> float:
    text = os.environ.get(PATIENCE) or str(PATIENCE_S)
    try:
        return float(text)
    except ValueError:
        raise UsageError(
            f"{PATIENCE} is {text!r}, not a number", hint=f"set {PATIENCE} to seconds, or unset it"
        ) from None


def _show(uses: Sequence[NodeUse]) -> None:
    rows = [
        (use.node, str(use.cells), str(use.again), f"{use.busy_s:g} s", f"{use.at_a_time:g}") for use in uses
    ]
    if rows:
        show_table(plain_console(stderr=True), HEADINGS, rows, set(HEADINGS[1:]))


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
