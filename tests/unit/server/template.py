"""Runs a fork server's template, without its imports, as a process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from vllm_harness._server.fork_server import TEMPLATE

SERVE = """
import os, sys
sys.path.insert(0, sys.argv[1])
from vllm_harness_template import Template
Template(sys.argv[2], float(sys.argv[3]), os.getppid()).serve()
"""


def serving(path: Path, linger_s: float = 0.0) -> subprocess.Popen[str]:
    """Starts a template that listens on a socket at a path."""
    command = [sys.executable, "-c", SERVE, str(TEMPLATE.parent), str(path), str(linger_s)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
