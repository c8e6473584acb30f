"""Outfits that the nodes of the tests get: real tasks of Ray that note what they do, and no bundle.

Travels by value, so that what a node lacks shows at once.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

Step = tuple[bool, str]


def noted(folder: Path, fault: str = "") -> Iterator[Step]:
    """Notes the node; the first one that comes meets a fault: it is `killed`, or its `disk` is full."""
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
