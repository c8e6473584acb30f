"""Folders that strangers cannot write to: made private, or looked at before they are used.

What stands in them is trusted: records name processes to end, environments are executed, requests on a socket
carry keys. So each use looks at who could have written there.
"""

from __future__ import annotations

import grp
import os
import pwd
import stat
from dataclasses import dataclass
from pathlib import Path

from vllm_harness.errors import UsageError


class UntrustedFolder(UsageError):
    """Somebody else could have written what stands in a folder."""


@dataclass(frozen=True)
class Purpose:
    """What a folder is for, in errors.

    Attributes:
        what: its name in a sentence, such as `the cache`.
        variable: names the variable that puts it elsewhere.
    """

    what: str
    variable: str


def own_folder(path: Path, purpose: Purpose) -> Path:
    """A folder of this user's; made private where it is missing. One that others may read stays so.

    Raises:
        UntrustedFolder: somebody else owns it, or others may write to it.
    """
    found = _made(path, purpose)
    if found.st_uid != os.geteuid():
        raise _refused(path, found, purpose, "belongs to somebody else")
    return path


def shared_folder(path: Path, purpose: Purpose) -> Path:
    """A folder of this user's, or one that another prepared for it to read; made private where it is missing.

    Whoever owns it could write what is executed from it. Where only this user or root could have put it, as
    in an image or a mount, that was their choice; in a place like /tmp it may be anybody's.

    Raises:
        UntrustedFolder: others than its owner may write to it, or a stranger may have put it there.
    """
    found = _made(path, purpose)
    if found.st_uid not in (os.geteuid(), 0) and _others_may_write(path.resolve().parent.stat()):
        raise _refused(path, found, purpose, "belongs to somebody else, in a folder that others may write to")
    if not os.access(path, os.R_OK | os.X_OK):
        raise _refused(path, found, purpose, "may not be read by this user")
    return path


def private_folder(path: Path, purpose: Purpose) -> Path:
    """A folder that this user alone may look into, and no link to one.

    Raises:
        UntrustedFolder: it is a link, somebody else owns it, or others may write to it.
    """
    if path.is_symlink():
        raise _refused(path, path.lstat(), purpose, "is a link")
    own_folder(path, purpose)
    path.chmod(0o700)
    return path


def _made(path: Path, purpose: Purpose) -> os.stat_result:
    """A folder's status, once it is there and nobody but its owner may write to it."""
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except FileExistsError:
        raise _refused(path, path.lstat(), purpose, "is no folder") from None
    link = path.lstat()
    if stat.S_ISLNK(link.st_mode) and link.st_uid not in (os.geteuid(), 0):
        raise _refused(path, link, purpose, "is somebody else's link")
    found = path.stat()
    if _others_may_write(found):
        raise _refused(path, found, purpose, "may be written to by others than its owner")
    return found


def _others_may_write(found: os.stat_result) -> bool:
    if found.st_mode & stat.S_IWOTH:
        return True
    return bool(found.st_mode & stat.S_IWGRP) and not _is_alone(found.st_uid, found.st_gid)


def _is_alone(uid: int, gid: int) -> bool:
    """Whether a group is a user's own, as many systems make one for each user, with a umask of 0002."""
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
    return UntrustedFolder(f"{purpose.what} {path} {why}: owner {owner}, mode {mode}", hint=hint)
