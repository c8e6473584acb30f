"""Names a process's shared memory after its server, reports deaths, and loads the next sitecustomize.

Every Python process of a server that was not forked loads this module, since this folder is on `sys.path`.
"""

from __future__ import annotations

import os
import sys
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from pathlib import Path

from vllm_harness_names import SERVER_ID


def _prepare() -> None:
    if server_id := os.environ.get(SERVER_ID):
        from vllm_harness_deaths import report_deaths
        from vllm_harness_shm import name_blocks

        name_blocks(server_id)
        report_deaths()


def _load_next() -> None:
    here = Path(__file__).parent
    spec = PathFinder.find_spec("sitecustomize", [path for path in sys.path if Path(path) != here])
    if spec is not None and spec.loader is not None:
        module = module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


_prepare()
_load_next()
