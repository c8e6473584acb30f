"""Checks that vLLM can be imported in an environment, and has the expected version, device and kernels."""

from __future__ import annotations

import json

from vllm_harness._environments.spec import Environment
from vllm_harness._environments.store import folder_of
from vllm_harness._errors import HarnessError

_SCRIPT = """
import json, torch, vllm
from vllm.platforms import current_platform
current_platform.import_kernels()
print(json.dumps({"vllm": vllm.__version__, "torch": torch.__version__,
                  "device": current_platform.device_type, "kernels": hasattr(torch.ops._C, "rms_norm")}))
"""


class BrokenEnvironmentError(HarnessError):
    """vLLM cannot be imported in the environment, or is not the expected version or build."""

    exit_code = 1


def verify(environment: Environment) -> dict[str, object]:
    """Imports vllm in an environment; returns its versions and platform. Raises BrokenEnvironmentError."""
    answer = environment.run("-c", _SCRIPT)
    if answer.returncode:
        last = "\n    ".join(answer.stderr.strip().splitlines()[-4:])
        raise BrokenEnvironmentError(
            f"`import vllm` fails in {environment.python}:\n    {last}", hint=_repair(environment)
        )
    actual: dict[str, object] = json.loads(answer.stdout.strip().splitlines()[-1])
    version, device = str(actual["vllm"]).partition("+")[0], actual["device"]
    if environment.device == "cuda" and not device:
        raise BrokenEnvironmentError(
            f"vLLM {actual['vllm']} imports in {environment.python}, but finds no CUDA device",
            hint="check that `nvidia-smi` works on this machine or in its container, and run this again",
        )
    if (version, device) != (environment.vllm_version, environment.device):
        raise BrokenEnvironmentError(
            f"{environment.describe()} is in fact vLLM {actual['vllm']} on {device}",
            hint=_repair(environment),
        )
    if not actual["kernels"]:
        raise BrokenEnvironmentError(
            f"vLLM's kernels do not load in {environment.python} (torch {actual['torch']})",
            hint=f"{_repair(environment)}; if that does not help, this processor may lack AVX2",
        )
    return actual


def _repair(environment: Environment) -> str:
    match environment.kind:
        case "installed":
            return "reinstall vLLM there, or use a release: `vllm-harness env create 0.32.0 --device cpu`"
        case "release":
            return (
                f"run `vllm-harness env remove {folder_of(environment).name}`, then `vllm-harness env create`"
            )
        case _:
            return "use the kernels of a release that is closer to this vLLM"
