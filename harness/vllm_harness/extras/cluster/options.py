"""The executor for `--ray`: connects to a cluster, and sets up its nodes from bundles."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from vllm_harness._errors import UsageError
from vllm_harness._files.temporary import temporary_folder
from vllm_harness._machine.shard import Executor
from vllm_harness._terminal.tables import plain_console, show_table
from vllm_harness.extras.bundles.for_nodes import NodeBundle, bundles_for, setup_plan_of, source_of
from vllm_harness.extras.cluster.places import LOG, NodeUse, Places
from vllm_harness.extras.cluster.ray_cluster import RayCluster, connected
from vllm_harness.extras.cluster.shipping import SHIP, runtime_env, ships, variables

TIMEOUT_VARIABLE = "VLLM_HARNESS_RAY_PATIENCE_S"
SILENCE_TIMEOUT_S = 1800.0
HEADINGS = ("node", "cells", "restarted", "busy", "at a time")


@contextmanager
def executor_on_nodes(
    ray: str, folder: Path, *, tests: bool, bundles: Sequence[Path] | None, vllm: Sequence[str]
) -> Iterator[Executor]:
    """Yields the executor for `--ray`, then shows what each node did. See `cli.executor.executor_of`."""
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
    """Reads and checks the bundles that `--bundle` names; see `bundles_for`.

    Raises:
        UsageError: the nodes need no bundle, or a bundle does not fit.
        BundleError: a bundle is damaged, or for another kind of machine.
    """
    if not folders:
        return []
    if not ships():
        raise UsageError(
            f"{SHIP}=0 means that the nodes have the harness", hint=f"unset {SHIP}, or leave out --bundle"
        )
    plain_console(stderr=True).print(f"checking {', '.join(map(str, folders))}")
    return bundles_for(folders, vllm, tests=tests)


@contextmanager
def cluster_of(
    ray: str, places: Places, *, tests: bool = False, extra: str = "", bundles: Sequence[NodeBundle] = ()
) -> Iterator[RayCluster]:
    """Connects to the cluster at an address, sets up its nodes, and yields it.

    Args:
        ray: the address of the cluster.
        places: records where cells ran.
        tests: whether the nodes need the tests of the checkout.
        extra: the name of an extra whose packages the nodes need.
        bundles: the bundles to set up nodes from, instead of sending a wheel.

    Raises:
        ClusterError: Ray is not installed, the cluster is not reachable, or no node could be set up.
    """
    notes = plain_console(stderr=True)
    with temporary_folder() as shipped:
        notes.print("connecting to Ray, and sending the harness to its nodes")
        sent = {"env_vars": variables()} if bundles else runtime_env(shipped, tests, extra)
        with connected(ray, runtime_env=sent, log=places.path.with_name(LOG)) as module:
            setup_plan = setup_plan_of(bundles, source_of(bundles, module)) if bundles else None
            cluster = RayCluster(module, notes.print, places.add, _silence_timeout_s(), setup_plan)
            cluster.await_setup()
            yield cluster


def _silence_timeout_s() -> float:
    text = os.environ.get(TIMEOUT_VARIABLE) or str(SILENCE_TIMEOUT_S)
    try:
        return float(text)
    except ValueError:
        raise UsageError(
            f"{TIMEOUT_VARIABLE} is {text!r}, not a number",
            hint=f"set {TIMEOUT_VARIABLE} to seconds, or unset it",
        ) from None


def _show(uses: Sequence[NodeUse]) -> None:
    rows = [
        (use.node, str(use.cells), str(use.again), f"{use.busy_s:g} s", f"{use.at_a_time:g}") for use in uses
    ]
    if rows:
        show_table(plain_console(stderr=True), HEADINGS, rows, set(HEADINGS[1:]))
