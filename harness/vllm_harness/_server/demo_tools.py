"""gpt-oss's own tools, which `vllm serve --tool-server demo` runs in the server; no environment has them."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from vllm_harness._environments.installer import uv_path
from vllm_harness._environments.overlay import overlay
from vllm_harness._environments.spec import Environment
from vllm_harness._errors import UsageError
from vllm_harness._server.flags import flag_values
from vllm_harness._terminal.status import Progress, quiet

DEMO_FLAGS = ("--tool-server", "demo")
SEARCH_KEY = "EXA_API_KEY"
SEARCH_NEEDS = f"{SEARCH_KEY} with a key of https://exa.ai, and a way to api.exa.ai"


def demo_tools(environment: Environment, progress: Progress = quiet) -> Path:
    """The folder of their packages, made where it is not there yet.

    Raises:
        InstallError: they cannot be installed.
    """
    return overlay("gpt-oss", environment, progress, python_version="3.12")


def demo_variables(
    args: Sequence[str], env: Mapping[str, str], environment: Environment, progress: Progress = quiet
) -> dict[str, str]:
    """What a server needs to find them and uv, which runs the code; nothing where its flags name another.

    Args:
        args, env: its flags and variables; with the key of a search, what the browser needs comes along.
        environment: the interpreter that has vLLM.
        progress: receives a line for each download.

    Raises:
        InstallError: they cannot be installed.
    """
    if not asks_for_demo(args):
        return {}
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
    """Flags and variables of a vLLM that has them.

    What a scripted model says is run by uv on this machine, as upstream's tests have it; the code of a real
    model in a container of Docker, unless PYTHON_EXECUTION_BACKEND says otherwise.

    Args:
        scripted: whether the model says what it is told.
        search: whether the web is to be searched.

    Raises:
        UsageError: there is no key for a search.
    """
    if search and not os.environ.get(SEARCH_KEY):
        raise UsageError(
            f"vLLM's browser searches by a service, and {SEARCH_KEY} is not set",
            hint=f"it needs {SEARCH_NEEDS}",
        )
    return DEMO_FLAGS, {"PYTHON_EXECUTION_BACKEND": "dangerously_use_uv"} if scripted else {}


def asks_for_demo(args: Sequence[str]) -> bool:
    """Whether flags of `vllm serve` name the demo tool server."""
    flag, demo = DEMO_FLAGS
    return flag_values(args, [(flag,)], str, "") == [demo]
