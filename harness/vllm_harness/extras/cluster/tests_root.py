"""Finds the tests: in a checkout, or in the working folder of a run that was sent to this node."""

from __future__ import annotations

import socket
from pathlib import Path

from vllm_harness._errors import UsageError
from vllm_harness._files.paths import checkout


def root_of_tests(tests: str) -> Path:
    """The folder that contains a folder of tests: the checkout, or the working folder of a run.

    Raises:
        UsageError: neither contains it.
    """
    for root in filter(None, (checkout(), Path.cwd())):
        if (root / tests).is_dir():
            return root
    raise UsageError(
        f"{socket.gethostname()} has no {tests}",
        hint="run this in a checkout of vllm-harness, or have the tests shipped: VLLM_HARNESS_RAY_SHIP=1",
    )
