"""A fork server's template that has imported nothing, as a process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from vllm_harness.server.fork_server import TEMPLATE

SERVE = """
import importlib.util, os, sys
spec = importlib.util.spec_from_file_location("template", sys.argv[1])
template = importlib.util.module_from_spec(spec)
spec.loader.exec_module(template)
template.Template(sys.argv[2], float(sys.argv[3]), None, os.getppid()).serve()
"""


def serving(path: Path, linger_s: float = 0.0) -> subprocess.Popen[str]:
    """A template that listens at a path."""
    command = [sys.executable, "-c", SERVE, str(TEMPLATE), str(path), str(linger_s)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
