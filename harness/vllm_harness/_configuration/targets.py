"""Targets: the pairs of model entry and lane that a run tests, and why other pairs are left out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from vllm_harness._configuration.model_entries import Device, Frontend, ModelEntry, ModelsFile, RunLane
from vllm_harness._errors import UsageError
from vllm_harness._machine.gpus import NOMINAL_SHARE


@dataclass(frozen=True)
class Target:
    """A model entry on a lane."""

    entry: ModelEntry
    lane: RunLane

    @property
    def id(self) -> str:
        """The target's part of a test id, such as `scripted-gpt-oss`."""
        return f"{self.lane}-{self.entry.name}"


@dataclass(frozen=True)
class Machine:
    """The properties of this machine that decide which lanes can run.

    Attributes:
        device: device that the server environment is made for.
        gpu_memory_gib: total memory of each GPU, GiB.
        frontend: vLLM's HTTP front end.
    """

    device: Device
    gpu_memory_gib: tuple[float, ...] = ()
    frontend: Frontend = "python"


@dataclass(frozen=True)
class Choice:
    """The targets of a run, and the reason why each other target is left out."""

    targets: tuple[Target, ...]
    left_out: tuple[str, ...]


def choose(
    known: ModelsFile, machine: Machine, *, models: Sequence[str] = (), lane: RunLane | None = None
) -> Choice:
    """Chooses the targets of a run.

    Args:
        models: names or hub ids of entries; empty for every entry.
        lane: the only lane; None for every lane that this machine can run.

    Raises:
        ModelsFileError: a model is unknown.
        UsageError: a named model cannot run here.
    """
    entries = [known.get(name) for name in models] if models else list(known)
    if lane == "attached":
        return Choice((Target(entries[0], "attached"),), ())
    wanted: Iterable[RunLane] = [lane] if lane else ["scripted", "live"]
    targets, left_out = [], []
    for entry in entries:
        for run_lane in wanted:
            obstacle = why_not(entry, run_lane, machine)
            if run_lane not in entry.lanes and not (models and lane):
                obstacle = f"the entry does not list the {run_lane} lane; name both model and lane to run it"
            if obstacle is None:
                targets.append(Target(entry, run_lane))
            else:
                left_out.append(f"{run_lane}-{entry.name}: {obstacle}")
        if models and not any(target.entry is entry for target in targets):
            reasons = "; ".join(reason for reason in left_out if reason.split(":")[0].endswith(entry.name))
            raise UsageError(
                f"model {entry.name!r} cannot run here: {reasons}",
                hint="run `vllm-harness doctor`, which shows what this machine can run",
            )
    return Choice(tuple(targets), tuple(left_out))


def why_not(entry: ModelEntry, lane: RunLane, machine: Machine) -> str | None:
    """The reason why an entry cannot run on a lane on this machine; None if it can."""
    if lane == "attached" or not entry.serves(lane):
        return f"the entry has no {lane} lane"
    if machine.frontend == "rust" and entry.harmony:
        # vLLM 0.33.0: Rust requires the reasoning parser `auto`, which vLLM's Python code does not know
        return "under `vllm serve` the Rust front end refuses every request to a Harmony model"
    if lane == "scripted":
        return None
    if machine.device not in entry.hardware.devices:
        return f"needs {' or '.join(entry.hardware.devices)}, this machine has {machine.device}"
    if machine.device == "cuda":
        need = entry.hardware
        fitting = [gib for gib in machine.gpu_memory_gib if gib >= need.gpu_memory_gib * NOMINAL_SHARE]
        if len(fitting) < need.gpus:
            return f"needs {need.gpus} GPU(s) of {need.gpu_memory_gib:g} GiB, this machine has {len(fitting)}"
    return None
