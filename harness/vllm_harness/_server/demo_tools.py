"""The packages for gpt-oss's built-in tools, which `vllm serve --tool-server demo` runs in the server."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from vllm_harness._environments.installer import uv_path
from vllm_harness._environments.overlay import overlay
from vllm_harness._environments.spec import Environment
from vllm_harness._errors import UsageError
from vllm_harness._server.flags import DEMO_FLAGS
from vllm_harness._terminal.status import Progress, quiet

SEARCH_KEY = "EXA_API_KEY"
SEARCH_NEEDS = f"{SEARCH_KEY} with a key of https://exa.ai, and access to api.exa.ai"


def demo_tools(environment: Environment, progress: Progress = quiet) -> Path:
    """Installs the packages of the demo tools if they are missing; returns their folder.

    Raises:
        InstallError: the packages cannot be installed.
    """
    return overlay("gpt-oss", environment, progress, python_version="3.12")


def demo_variables(
    env: Mapping[str, str], environment: Environment, progress: Progress = quiet
) -> dict[str, str]:
    """The environment variables with which a server finds the tools, and uv, which runs the model's code.

    If `env` contains a search key, the packages of the browser tool are added.

    Raises:
        InstallError: the packages cannot be installed.
    """
    packages = [*environment.pythonpath, demo_tools(environment, progress)]
    if env.get(SEARCH_KEY):
        packages.append(overlay("gpt-oss-browser", environment, progress))
    return {
        "PATH": os.pathsep.join([str(uv_path().parent), os.environ.get("PATH", os.defpath)]),
        "PYTHONPATH": os.pathsep.join(map(str, packages)),
        "UV_PYTHON": str(environment.python),
        "UV_OFFLINE": "1",
    }


def demo_launch(*, scripted: bool, search: bool = False) -> tuple[tuple[str, ...], dict[str, str]]:
    """The flags and environment variables for a server with the demo tools.

    uv runs the Python code of a scripted model on this machine, as in upstream's tests. The code of a real
    model runs in a Docker container, unless PYTHON_EXECUTION_BACKEND says otherwise.

    Raises:
        UsageError: the key of the search service is missing.
    """
    if search and not os.environ.get(SEARCH_KEY):
        raise UsageError(
            f"vLLM's browser uses a search service, and {SEARCH_KEY} is not set",
            hint=f"it needs {SEARCH_NEEDS}",
        )
    return DEMO_FLAGS, {"PYTHON_EXECUTION_BACKEND": "dangerously_use_uv"} if scripted else {}
