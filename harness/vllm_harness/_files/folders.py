"""Folders that other users cannot write to: made private, or checked before they are used.

Their content is trusted: records name processes to end, environments are executed, requests on a socket
carry keys. So each use checks who could have written there.
"""

from __future__ import annotations

import grp
import os
import pwd
import stat
from dataclasses import dataclass
from pathlib import Path

from vllm_harness._errors import UsageError


class UntrustedFolder(UsageError):
    """Another user could have written the content of a folder."""


@dataclass(frozen=True)
class Purpose:
    """What a folder is for, in errors.

    Attributes:
        name: its name in a sentence, such as `the cache`.
        variable: the environment variable that names another folder for it.
    """

    name: str
    variable: str


def own_folder(path: Path, purpose: Purpose) -> Path:
    """A folder that belongs to this user; made private where it is missing, its read permissions kept.

    Raises:
        UntrustedFolder: another user owns it, or others may write to it.
    """
    found = _checked(path, purpose)
    if found.st_uid != os.geteuid():
        raise _refused(path, found, purpose, "belongs to another user")
    return path


def shared_folder(path: Path, purpose: Purpose) -> Path:
    """A folder of this user, or one that another user prepared for it to read; made private where missing.

    Its owner could write what is executed from it. That is accepted where only this user or root could have
    put the folder there, as in an image or a mount, and refused in a place like /tmp.

    Raises:
        UntrustedFolder: other users than its owner may write to it, or may have put it there.
    """
    found = _checked(path, purpose)
    if found.st_uid not in (os.geteuid(), 0) and _others_may_write(path.resolve().parent.stat()):
        raise _refused(path, found, purpose, "belongs to another user, in a folder that others may write to")
    if not os.access(path, os.R_OK | os.X_OK):
        raise _refused(path, found, purpose, "is not readable by this user")
    return path


def private_folder(path: Path, purpose: Purpose) -> Path:
    """A folder that only this user may read, and not a link to one.

    Raises:
        UntrustedFolder: it is a link, another user owns it, or others may write to it.
    """
    if path.is_symlink():
        raise _refused(path, path.lstat(), purpose, "is a link")
    own_folder(path, purpose)
    path.chmod(0o700)
    return path


def _checked(path: Path, purpose: Purpose) -> os.stat_result:
    """The status of a folder that is there, and to which only its owner may write."""
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except FileExistsError:
        raise _refused(path, path.lstat(), purpose, "is not a folder") from None
    link = path.lstat()
    if stat.S_ISLNK(link.st_mode) and link.st_uid not in (os.geteuid(), 0):
        raise _refused(path, link, purpose, "is a link that belongs to another user")
    found = path.stat()
    if _others_may_write(found):
        raise _refused(path, found, purpose, "is writable by other users than its owner")
    return found


def _others_may_write(found: os.stat_result) -> bool:
    if found.st_mode & stat.S_IWOTH:
        return True
    return bool(found.st_mode & stat.S_IWGRP) and not _is_alone(found.st_uid, found.st_gid)


def _is_alone(uid: int, gid: int) -> bool:
    """Whether a group has one user only; many systems make such a group for each user, with umask 0002."""
    try:
        user, group = pwd.getpwuid(uid), grp.getgrgid(gid)
    except KeyError:
        return False
    return user.pw_gid == gid and group.gr_name == user.pw_name and set(group.gr_mem) <= {user.pw_name}


def _refused(path: Path, found: os.stat_result, purpose: Purpose, why: str) -> UntrustedFolder:
    try:
        owner = f"{pwd.getpwuid(found.st_uid).pw_name} (uid {found.st_uid})"
    except KeyError:
        owner = f"uid {found.st_uid}"
    mode = f"{stat.S_IMODE(found.st_mode):04o}"
    hint = f"name a folder of your own in {purpose.variable}"
    if found.st_uid == os.geteuid() and _others_may_write(found):
        hint += f", or run `chmod go-w {path}` if you know that nobody else has written there"
    return UntrustedFolder(f"{purpose.name} {path} {why}: owner {owner}, mode {mode}", hint=hint)
