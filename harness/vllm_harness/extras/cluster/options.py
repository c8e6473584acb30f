"""The executor of `--ray`: a cluster by its address, with the bundles that its nodes get."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from vllm_harness._errors import UsageError
from vllm_harness._machine.shard import Executor
from vllm_harness._terminal.tables import plain_console, show_table
from vllm_harness.extras.bundles.for_nodes import NodeBundle, bundles_for, setup_plan_of, source_of
from vllm_harness.extras.cluster.places import NodeUse, Places
from vllm_harness.extras.cluster.ray_cluster import RayCluster, connected
from vllm_harness.extras.cluster.shipping import SHIP, runtime_env, ships, variables

TIMEOUT_VARIABLE = "VLLM_HARNESS_RAY_PATIENCE_S"
SILENCE_TIMEOUT_S = 1800.0
HEADINGS = ("node", "cells", "begun again", "busy", "at a time")


@contextmanager
def executor_on_nodes(
    ray: str, folder: Path, *, tests: bool, bundles: Sequence[Path] | None, vllm: Sequence[str]
) -> Iterator[Executor]:
    """The executor of `--ray`; at the end the cluster is left, and what its nodes did is shown.

    See `vllm_harness.cli.executor.executor_of`.
    """
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
            outfit = setup_plan_of(bundles, source_of(bundles, module)) if bundles else None
            cluster = RayCluster(module, notes.print, places.add, _silence_timeout_s(), outfit)
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
