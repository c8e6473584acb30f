"""Bundles that the nodes of a cluster set themselves up from: checked here, then brought to them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from vllm_harness._environments import default_device, default_spec
from vllm_harness._environments.spec import parse
from vllm_harness._errors import UsageError
from vllm_harness._machine import processes
from vllm_harness.extras.bundles import install as installer
from vllm_harness.extras.bundles import node_installer, packages
from vllm_harness.extras.bundles.harness_identity import Carried, carried
from vllm_harness.extras.bundles.place import BundleError, check_lock
from vllm_harness.extras.cluster.node_setup import Outfit

OF_BEFORE: Carried = {"version": "of before", "code": "", "tests": ""}
"""What a bundle carries whose manifest does not say it."""


@dataclass(frozen=True)
class NodeBundle:
    """A bundle for nodes: its folder on this machine, and its manifest."""

    folder: Path
    manifest: dict[str, Any]

    @property
    def identity(self) -> str:
        """Tells it from others."""
        return installer.identity(self.manifest)


def bundles_for(folders: Sequence[Path], specs: Sequence[str], *, tests: bool = False) -> list[NodeBundle]:
    """Bundles that nodes can be set up from, as far as it can be seen here; every part is read.

    Args:
        folders: where they are.
        specs: the server environments that the nodes are to have, as in `--vllm`; empty for the default one.
        tests: whether the checkout's tests run on the nodes.

    Raises:
        BundleError: no bundle, a part that is missing or damaged, or another Python or kind of machine.
        UsageError: it carries another harness, no torch, or not one of the environments.
    """
    try:
        bundles = [NodeBundle(folder.absolute(), installer.read_manifest(folder)) for folder in folders]
        for bundle in bundles:
            installer.check_machine(bundle.manifest)
            _check_harness(bundle, tests)
            _check_torch(bundle)
            check_lock(bundle.folder, bundle.manifest)
        for spec in specs:
            _check_carried(spec or default_spec(default_device()), bundles)
        for bundle in bundles:
            installer.check_parts(bundle.folder, bundle.manifest)
    except installer.InstallerError as error:
        raise BundleError(str(error)) from None
    return bundles


def outfit_of(bundles: Sequence[NodeBundle], source: Any) -> Outfit:
    """What a node needs before the harness of the first bundle runs on it.

    Args:
        bundles: that it is set up from.
        source: an actor of `node_installer.BundleSource`, which has their folders.
    """
    harness = node_installer.SET_UP.format(bundles[0].identity)
    sent = [(str(bundle.folder), bundle.manifest) for bundle in bundles]
    return Outfit(
        make=partial(node_installer.arrive, sent, source),
        by_value=(node_installer, installer, packages, processes),
        # Ray starts a worker by a shell, which finds the cache of its node
        runtime_env={"py_executable": f'"{node_installer.CACHE}/{harness}/.venv/bin/python"'},
    )


def source_of(bundles: Sequence[NodeBundle], ray: Any) -> Any:
    """Has an actor on this machine give the files of bundles to nodes; it ends with its last reference."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    ray.cloudpickle.register_pickle_by_value(node_installer)
    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
    folders = {bundle.identity: str(bundle.folder) for bundle in bundles}
    return ray.remote(num_cpus=0, scheduling_strategy=here)(node_installer.BundleSource).remote(folders)


def _check_harness(bundle: NodeBundle, tests: bool) -> None:
    here = carried()
    there: Carried = bundle.manifest.get("harness", OF_BEFORE)
    if there["code"] != here["code"]:
        what = f"vllm-harness {there['version']}"
        if there["version"] == here["version"]:
            what += " with other code"
        raise UsageError(
            f"{bundle.folder} carries {what}, and {here['version']} runs here",
            hint="make the bundle again from this harness, or run this command by the one that it carries: "
            f"python3 {bundle.folder / 'install.py'} FOLDER",
        )
    if tests and here["tests"] not in ("", there["tests"]):
        raise UsageError(
            f"{bundle.folder} carries other tests than those of this checkout",
            hint="make the bundle again, or run this command in the checkout that it carries",
        )


def _check_torch(bundle: NodeBundle) -> None:
    if bundle.manifest["without_torch"]:
        raise UsageError(
            f"{bundle.folder} was made without torch, and nodes make themselves from a bundle alone",
            hint="make one with torch, or install it on each node (`env bundle install --over`) "
            "and set VLLM_HARNESS_RAY_SHIP=0",
        )


def _check_carried(spec: str, bundles: Sequence[NodeBundle]) -> None:
    """Raises UsageError for a release that no bundle carries, and for a graft, as no bundle carries one."""
    wanted = parse(spec)
    if wanted.kind == "graft":
        raise UsageError(
            f"a node cannot make the graft {spec} from a bundle, which carries releases",
            hint="name a release, or leave the bundle out where the nodes reach a package index",
        )
    device = default_device()
    has = [(bundle.manifest["vllm"], bundle.manifest["device"]) for bundle in bundles]
    if wanted.kind == "release" and (wanted.version, device) not in has:
        there = ", ".join(f"vLLM {version} for {device_}" for version, device_ in has)
        raise UsageError(
            f"the nodes are to run vLLM {spec} for {device}, and the bundles have {there}",
            hint=f"add one: vllm-harness env bundle OUT --vllm {wanted.version} --device {device}",
        )
