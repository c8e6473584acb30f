"""Runs Python code in a process with limited time and memory, and without network or child processes."""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile

SECONDS = 5
MEMORY = 512 * 2**20
FILE_SIZE = 2**20
OUTPUT = 20_000
# Runs before the code: an audit hook stays for the life of the process. It protects against mistakes in the
# code, and is not a sandbox for malicious code.
GUARD = """
import os, sys
REFUSED = ("socket.", "subprocess.", "os.exec", "os.fork", "os.posix_spawn", "os.system", "ctypes.",
           "os.kill", "os.link", "os.symlink", "os.chmod", "os.chown")
LOOKS = ("open", "os.listdir", "os.scandir")
TOUCHED = (*LOOKS, "os.mkdir", "os.remove", "os.rename", "os.rmdir", "os.truncate")
OWN = os.path.realpath(os.getcwd()) + "/"
READ = tuple(os.path.realpath(folder) + "/" for folder in (sys.prefix, sys.base_prefix, *sys.path))
def refuse(event, arguments, refused=REFUSED, looks=LOOKS, touched=TOUCHED, own=OWN, read=READ,
           real=os.path.realpath, decode=os.fsdecode, writes=os.O_WRONLY | os.O_RDWR | os.O_CREAT):
    if event.startswith(refused):
        raise PermissionError(f"{event} is not allowed here")
    if event not in touched or arguments[0] is None or isinstance(arguments[0], int):
        return
    path = real(decode(arguments[0])) + "/"
    looking = event in looks and not (event == "open" and arguments[2] & writes)
    if path.startswith((own, *read) if looking else own):
        return
    raise PermissionError(f"{event} of {path[:-1]} is not allowed here")
sys.addaudithook(refuse)
del refuse, REFUSED, LOOKS, TOUCHED, OWN, READ, os
exec(compile(sys.stdin.read(), "<code>", "exec"), {"__name__": "__main__"})
"""


def run(code: str) -> str:
    """Runs code and returns what it prints, including errors.

    Args:
        code: a Python program; it runs in an empty folder and without environment variables.

    Returns:
        The output, truncated to 20000 characters; or the text of a TimeoutError.
    """
    with tempfile.TemporaryDirectory(prefix="vh-tool-") as folder:
        try:
            done = subprocess.run(
                [sys.executable, "-I", "-c", GUARD],
                input=code,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                cwd=folder,
                env={},
                timeout=SECONDS,
                preexec_fn=_limit,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return f"TimeoutError: the code ran longer than {SECONDS} s"
    return done.stdout[:OUTPUT]


def _limit() -> None:
    for limit, value in (
        (resource.RLIMIT_CPU, SECONDS + 1),
        (resource.RLIMIT_AS, MEMORY),
        (resource.RLIMIT_FSIZE, FILE_SIZE),
        (resource.RLIMIT_NOFILE, 32),
        (resource.RLIMIT_CORE, 0),
    ):
        resource.setrlimit(limit, (value, value))
