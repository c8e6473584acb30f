"""Checks bundles on this machine, and sends them to the nodes of a cluster to set up the nodes."""

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
from vllm_harness.extras.bundles.harness_identity import HarnessIdentity, this_harness
from vllm_harness.extras.bundles.place import BundleError, check_lock
from vllm_harness.extras.cluster.node_setup import SetupPlan

UNKNOWN_HARNESS: HarnessIdentity = {"version": "of an unknown version", "code": "", "tests": ""}
"""The identity used for the harness in a bundle whose manifest does not include one."""


@dataclass(frozen=True)
class NodeBundle:
    """A bundle for cluster nodes: its folder on this machine, and its manifest."""

    folder: Path
    manifest: dict[str, Any]

    @property
    def identity(self) -> str:
        """A hash that identifies the bundle."""
        return installer.identity(self.manifest)


def bundles_for(folders: Sequence[Path], specs: Sequence[str], *, tests: bool = False) -> list[NodeBundle]:
    """Reads bundles and checks that nodes can be set up from them; verifies all parts.

    Args:
        folders: the folders of the bundles.
        specs: the server environments that the nodes need, as in `--vllm`; an empty string is the default.
        tests: whether the checkout's tests run on the nodes.

    Raises:
        BundleError: a folder is not a bundle, a part is missing or damaged, or a bundle is for another Python
            or kind of machine.
        UsageError: a bundle contains another harness or no torch, or an environment is in no bundle.
    """
    try:
        bundles = [NodeBundle(folder.absolute(), installer.read_manifest(folder)) for folder in folders]
        for bundle in bundles:
            installer.check_machine(bundle.manifest)
            _check_harness(bundle, tests)
            _check_torch(bundle)
            check_lock(bundle.folder, bundle.manifest)
        for spec in specs:
            _check_environment(spec or default_spec(default_device()), bundles)
        for bundle in bundles:
            installer.check_parts(bundle.folder, bundle.manifest)
    except installer.InstallerError as error:
        raise BundleError.of(error) from None
    return bundles


def setup_plan_of(bundles: Sequence[NodeBundle], source: Any) -> SetupPlan:
    """Returns the plan for setting up a node, which then runs the harness of the first bundle.

    Args:
        bundles: the bundles.
        source: a Ray actor of the class `node_installer.BundleSource` with the folders of the bundles.
    """
    harness = node_installer.HARNESS_FOLDER.format(bundles[0].identity)
    sent = [(str(bundle.folder), bundle.manifest) for bundle in bundles]
    return SetupPlan(
        set_up=partial(node_installer.set_up_node, sent, source),
        by_value=(node_installer, installer, packages, processes),
        # Ray starts a worker through a shell, which expands the variables in the path on the node
        runtime_env={"py_executable": f'"{node_installer.CACHE}/{harness}/.venv/bin/python"'},
    )


def source_of(bundles: Sequence[NodeBundle], ray: Any) -> Any:
    """Starts a Ray actor on this machine that sends bundle files until its last reference is dropped."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    ray.cloudpickle.register_pickle_by_value(node_installer)
    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
    folders = {bundle.identity: str(bundle.folder) for bundle in bundles}
    return ray.remote(num_cpus=0, scheduling_strategy=here)(node_installer.BundleSource).remote(folders)


def _check_harness(bundle: NodeBundle, tests: bool) -> None:
    here = this_harness()
    there: HarnessIdentity = bundle.manifest.get("harness", UNKNOWN_HARNESS)
    if there["code"] != here["code"]:
        what = f"vllm-harness {there['version']}"
        if there["version"] == here["version"]:
            what += " with different code"
        raise UsageError(
            f"{bundle.folder} contains {what}, but {here['version']} runs here",
            hint="make the bundle again from this harness, or install the harness in the bundle "
            f"(python3 {bundle.folder / 'install.py'} FOLDER) and run this command there",
        )
    if tests and here["tests"] not in ("", there["tests"]):
        raise UsageError(
            f"the tests in {bundle.folder} differ from those of this checkout",
            hint="make the bundle again, or run this command in the checkout that it contains",
        )


def _check_torch(bundle: NodeBundle) -> None:
    if bundle.manifest["without_torch"]:
        raise UsageError(
            f"{bundle.folder} was made without torch, which nodes cannot get otherwise",
            hint="make one with torch, or install it on each node (`env bundle install --over`) "
            "and set VLLM_HARNESS_RAY_SHIP=0",
        )


def _check_environment(spec: str, bundles: Sequence[NodeBundle]) -> None:
    """Raises UsageError for a release that no bundle contains, and for every graft."""
    wanted = parse(spec)
    if wanted.kind == "graft":
        raise UsageError(
            f"a node cannot make the graft {spec} from a bundle, which contains releases",
            hint="name a release, or leave out --bundle if the nodes reach a package index",
        )
    device = default_device()
    releases = [(bundle.manifest["vllm"], bundle.manifest["device"]) for bundle in bundles]
    if wanted.kind == "release" and (wanted.version, device) not in releases:
        contents = ", ".join(f"vLLM {version} for {device_}" for version, device_ in releases)
        raise UsageError(
            f"the nodes need vLLM {spec} for {device}, but the bundles have {contents}",
            hint=f"make one: vllm-harness env bundle OUT --vllm {wanted.version} --device {device}",
        )
