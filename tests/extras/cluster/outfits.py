"""Node setups for the tests: real Ray tasks that record what they do, without a bundle.

The module is shipped by value, so a module that a node lacks shows at once.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

Told = tuple[bool, str]


def noted(folder: Path, fault: str = "") -> Iterator[Told]:
    """Records the node; the first node has a fault: its worker is `killed`, or its `disk` is full."""
    import ray

    node = ray.get_runtime_context().get_node_id()
    with (folder / "made").open("a") as file:
        file.write(f"{node}\n")
    yield False, "making it"
    try:
        (folder / "first").touch(exist_ok=False)
    except FileExistsError:
        return
    if fault == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if fault == "disk":
        yield True, "the disk is full"
