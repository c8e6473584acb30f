"""Node setups for the tests: real Ray tasks that record what they do and need no bundle.

Ray sends this module by value, so that an import that is missing on a node shows at once.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

Step = tuple[bool, str]


def recorded(folder: Path, fault: str = "") -> Iterator[Step]:
    """Records the node; on the first node, simulates a fault: `killed` (process) or `disk` (full)."""
    import ray

    node = ray.get_runtime_context().get_node_id()
    with (folder / "nodes").open("a") as file:
        file.write(f"{node}\n")
    yield False, "setting it up"
    try:
        (folder / "first").touch(exist_ok=False)
    except FileExistsError:
        return
    if fault == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if fault == "disk":
        yield True, "the disk is full"
