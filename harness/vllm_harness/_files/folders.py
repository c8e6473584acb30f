"""Folders that other users cannot write to: made private, or checked before each use.

The harness trusts what these folders contain: it ends the processes that records name, executes environments,
and sends API keys over sockets.
"""

from __future__ import annotations

import errno
import grp
import os
import pwd
import stat
from dataclasses import dataclass
from pathlib import Path

from vllm_harness._errors import HarnessError, InfrastructureError, UsageError

_OF_MACHINE = {
    *(errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS),
    *(errno.EIO, errno.EMFILE, errno.ENFILE, errno.ENOMEM),
}
_HINT = "free space there, or name other folders in VLLM_HARNESS_STATE, VLLM_HARNESS_CACHE and TMPDIR"
_FEW_BLOCKS = 16
_used: dict[str, Path] = {}


class UntrustedFolder(UsageError):
    """Another user could have written to a folder."""


@dataclass(frozen=True)
class Purpose:
    """What a folder is for (such as `the cache`), and the environment variable that overrides its path."""

    name: str
    variable: str


def own_folder(path: Path, purpose: Purpose) -> Path:
    """Checks a folder that must belong to this user, or creates it; its read permissions stay unchanged.

    Raises:
        UntrustedFolder: another user owns the folder, or others may write to it.
    """
    status = _checked(path, purpose)
    if status.st_uid != os.geteuid():
        raise _refused(path, status, purpose, "belongs to another user")
    return path


def shared_folder(path: Path, purpose: Purpose) -> Path:
    """Checks a folder that this user or another one has prepared, or creates it if it is missing.

    The owner of a folder controls what is executed from it. Another owner is accepted if only this user or
    root could have put the folder there, as in an image or a mount, but not in a directory such as /tmp.

    Raises:
        UntrustedFolder: others than the owner may write to it or replace it, or this user cannot read it.
    """
    status = _checked(path, purpose)
    if status.st_uid not in (os.geteuid(), 0) and _others_may_write(path.resolve().parent.stat()):
        raise _refused(path, status, purpose, "belongs to another user, in a folder that others may write to")
    if not os.access(path, os.R_OK | os.X_OK):
        raise _refused(path, status, purpose, "is not readable by this user")
    return path


def private_folder(path: Path, purpose: Purpose) -> Path:
    """Checks or creates a folder that only this user may read and that is not a symbolic link.

    Raises:
        UntrustedFolder: the folder is a link, another user owns it, or others may write to it.
    """
    if path.is_symlink():
        raise _refused(path, path.lstat(), purpose, "is a link")
    own_folder(path, purpose)
    path.chmod(0o700)
    return path


def _checked(path: Path, purpose: Purpose) -> os.stat_result:
    """Creates a missing folder, checks that only its owner may write to it, and returns its stat result.

    Raises UsageError if that is impossible, and InfrastructureError if the disk is full or read-only.
    """
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        link, status = path.lstat(), path.stat()
    except FileExistsError:
        raise _refused(path, path.lstat(), purpose, "is not a folder") from None
    except OSError as error:
        hint = f"name another folder in {purpose.variable}"
        raise unusable(error, f"{purpose.name} {path}", hint) from error
    if stat.S_ISLNK(link.st_mode) and link.st_uid not in (os.geteuid(), 0):
        raise _refused(path, link, purpose, "is a link that belongs to another user")
    _used[purpose.name] = path
    if _others_may_write(status):
        raise _refused(path, status, purpose, "is writable by other users than its owner")
    return status


def _others_may_write(status: os.stat_result) -> bool:
    if status.st_mode & stat.S_IWOTH:
        return True
    return bool(status.st_mode & stat.S_IWGRP) and not _is_private_group(status.st_uid, status.st_gid)


def _is_private_group(uid: int, gid: int) -> bool:
    """Whether a user is the only member of a group; many systems create such groups, with umask 0002."""
    try:
        user, group = pwd.getpwuid(uid), grp.getgrgid(gid)
    except KeyError:
        return False
    return user.pw_gid == gid and group.gr_name == user.pw_name and set(group.gr_mem) <= {user.pw_name}


def _refused(path: Path, status: os.stat_result, purpose: Purpose, why: str) -> UntrustedFolder:
    try:
        owner = f"{pwd.getpwuid(status.st_uid).pw_name} (uid {status.st_uid})"
    except KeyError:
        owner = f"uid {status.st_uid}"
    mode = f"{stat.S_IMODE(status.st_mode):04o}"
    hint = f"name a folder of your own in {purpose.variable}"
    if status.st_uid == os.geteuid() and _others_may_write(status):
        hint += f", or run `chmod go-w {path}` if you know that no other user has written there"
    return UntrustedFolder(f"{purpose.name} {path} {why}: owner {owner}, mode {mode}", hint=hint)


def unusable(error: OSError, what: object = "", hint: str = "") -> HarnessError:
    """Explains why `what`, by default the path in the error, cannot be used."""
    kind = InfrastructureError if error.errno in _OF_MACHINE else UsageError
    return kind(f"cannot use {what or error.filename or _full()}: {error.strerror}", hint=hint or _HINT)


def explained(error: BaseException) -> HarnessError | None:
    """The error that a user should see; None for a fault in the harness, which needs its traceback."""
    if isinstance(error, OSError) and (error.filename or error.errno in _OF_MACHINE):
        return unusable(error)
    return error if isinstance(error, HarnessError) else None


def _full() -> str:
    """The folders in use whose disks are nearly full: an error of writing names no file."""
    full = [f"{name} {path}" for name, path in _used.items() if os.statvfs(path).f_bavail < _FEW_BLOCKS]
    return ", ".join(full) or "a file"
