"""Makes the header of a new run: the first record of its folder."""

from __future__ import annotations

import os
import sys
import time
from importlib.metadata import version
from pathlib import Path

import psutil

from vllm_harness._machine.gpus import describe_gpus
from vllm_harness._runs.records import Header, Kind


def new_header(kind: Kind, name: str = "", seed: int | None = None) -> Header:
    """Makes the header of a run that this process starts.

    Args:
        kind: the kind of run.
        name: a human-readable name.
        seed: the random seed of the run.
    """
    program, *arguments = sys.argv
    return Header(
        kind=kind,
        name=name,
        command=(_program_name(program), *arguments),
        harness=version("vllm-harness"),
        machine=describe_machine(),
        seed=seed,
        started=time.time(),
    )


def describe_machine() -> str:
    """Describes the cores that this process may use, the memory and the GPUs."""
    cores = len(os.sched_getaffinity(0))
    memory = psutil.virtual_memory().total / 2**30
    return f"{cores} cores, {memory:.0f} GiB of memory, {describe_gpus()}"


def _program_name(program: str) -> str:
    path = Path(program)
    return f"python -m {path.parent.name}" if path.name == "__main__.py" else path.name
