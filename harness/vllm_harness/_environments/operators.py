"""Finds compiled operators that vLLM's Python code calls but the kernels of a graft or tree lack."""

from __future__ import annotations

import json
import re

from vllm_harness._environments.spec import Environment
from vllm_harness._environments.store import folder_of
from vllm_harness._environments.verify import BrokenEnvironmentError

_CALL = re.compile(r"torch\.ops\.(_C\w*)\.(\w+)")
_KNOWN = "operators.json"
_SCRIPT = """
import json, sys, torch, vllm
from vllm.platforms import current_platform
current_platform.import_kernels()
names = [name.split("::") for name in json.loads(sys.argv[1])]
print(json.dumps(["::".join(name) for name in names if not hasattr(getattr(torch.ops, name[0]), name[1])]))
"""


def called_operators(environment: Environment) -> dict[str, str]:
    """The operators that vLLM's Python code calls, such as `_C::rms_norm` -> the first file with a call."""
    assert environment.package
    operators: dict[str, str] = {}
    for path in environment.python_files():
        for call in _CALL.findall(path.read_text(errors="replace")):
            operators.setdefault("::".join(call), str(path.relative_to(environment.package)))
    return operators


def remember(release: Environment) -> None:
    """Stores the operators that the kernels' own release calls, before its Python code is replaced."""
    (folder_of(release) / _KNOWN).write_text(json.dumps(sorted(called_operators(release))))


def lacking(environment: Environment) -> dict[str, str]:
    """Operators that a graft or tree calls but its kernels and their own release lack -> the calling file.

    Calling such an operator fails; some are for other hardware only, as the name of the file shows.

    Raises:
        BrokenEnvironmentError: vLLM cannot be imported.
    """
    if environment.kernels is None:
        return {}
    known = json.loads((folder_of(environment) / _KNOWN).read_text())
    new = {name: file for name, file in called_operators(environment).items() if name not in known}
    answer = environment.run("-c", _SCRIPT, json.dumps(sorted(new)))
    if answer.returncode:
        raise BrokenEnvironmentError(
            f"`import vllm` fails in {environment.python}",
            hint="run `vllm-harness env verify`, which shows the cause",
        )
    absent = json.loads(answer.stdout.strip().splitlines()[-1])
    return {name: new[name] for name in absent}
