"""Gives the shared memory and the semaphores of a server names that contain the server's id.

So they can be found and removed after a server was killed, whichever of its processes still live.
"""

from __future__ import annotations

import multiprocessing
import secrets
from multiprocessing import shared_memory


def name_blocks(server_id: str) -> None:
    """From now on multiprocessing, here and in forked children, takes names `vh-<id>-...`."""
    prefix = f"/vh-{server_id}"
    multiprocessing.current_process()._config["semprefix"] = prefix  # type: ignore[attr-defined]
    shared_memory._make_filename = lambda: f"{prefix}-{secrets.token_hex(8)}"  # type: ignore[attr-defined]
