"""Connects to Unix sockets of this user's processes, however long the paths are.

A socket's name has at most 107 bytes, so the folder is named by a file descriptor. The kernel tells which
user owns the other end, so that nothing is sent to another user's process.
"""

from __future__ import annotations

import os
import socket
import struct
from pathlib import Path

from vllm_harness._errors import HarnessError

_CREDENTIALS = struct.Struct("3i")  # ucred of unix(7): pid, uid, gid


class OtherUserAnswers(HarnessError):
    """Another user's process listens at a path where a process of this user should."""


def connect(path: Path) -> socket.socket:
    """Connects to this user's process that listens at a path.

    Raises:
        OtherUserAnswers: another user's process listens there; nothing was sent to it.
        OSError: no process listens there.
    """
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
    client = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        client.connect(f"/proc/self/fd/{folder}/{path.name}")
        _check_peer(client, path)
    except BaseException:
        client.close()
        raise
    finally:
        os.close(folder)
    return client


def _check_peer(client: socket.socket, path: Path) -> None:
    credentials = client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, uid, _ = _CREDENTIALS.unpack(credentials)
    if uid != os.geteuid():
        raise OtherUserAnswers(
            f"pid {pid} of another user (uid {uid}) listens at {path}, not a fork server of uid "
            f"{os.geteuid()}; nothing was sent to it",
            hint="end that process and remove its socket, or set VLLM_HARNESS_STATE to another folder",
        )
