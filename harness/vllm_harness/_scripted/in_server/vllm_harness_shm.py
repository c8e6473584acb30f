"""Gives the shared memory and the semaphores of a server names that contain the server's id.

So the harness can find and remove them after a server was killed, even if some of its processes still run.
"""

from __future__ import annotations

import multiprocessing
import secrets
from multiprocessing import shared_memory


def name_blocks(server_id: str) -> None:
    """Makes multiprocessing use names `vh-<id>-...`, in this process and in forked children."""
    prefix = f"/vh-{server_id}"
    multiprocessing.current_process()._config["semprefix"] = prefix  # type: ignore[attr-defined]
    shared_memory._make_filename = lambda: f"{prefix}-{secrets.token_hex(8)}"  # type: ignore[attr-defined]
