"""Python code in a restricted process: limits on time, memory, files; no network, no further processes."""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile

SECONDS = 5
MEMORY = 512 * 2**20
FILE_SIZE = 2**20
OUTPUT = 20_000
# runs before the code: an audit hook stays for the life of the process
GUARD = """
import sys
REFUSED = ("socket.", "subprocess.", "os.exec", "os.fork", "os.posix_spawn", "os.system", "ctypes.")
def refuse(event, arguments, refused=REFUSED):
    if event.startswith(refused):
        raise PermissionError(f"{event} is not allowed here")
sys.addaudithook(refuse)
del refuse, REFUSED
exec(compile(sys.stdin.read(), "<code>", "exec"), {"__name__": "__main__"})
"""


def run(code: str) -> str:
    """What the code prints, errors included.

    Args:
        code: a Python program; it gets an empty folder of its own, and no environment.

    Returns:
        Its output, cut to 20000 characters; a line that says so where it ran out of time.
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
