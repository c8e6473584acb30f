"""The environment variables of servers, from `env/runtime.yaml`."""

from __future__ import annotations

from typing import Annotated

from pydantic import BeforeValidator

from vllm_harness._files.located_yaml import read_yaml
from vllm_harness._files.paths import data_path
from vllm_harness._files.strict import StrictModel

_Text = Annotated[str, BeforeValidator(lambda value: value if isinstance(value, str) else str(value))]


class RuntimeVariables(StrictModel):
    """The content of `env/runtime.yaml`: the variables of every server, and those for each device."""

    every: dict[str, _Text]
    cpu: dict[str, _Text]
    cuda: dict[str, _Text]


def runtime_variables(device: str) -> dict[str, str]:
    """The variables of a server on a device (cpu or cuda). Raises UsageError if the file is malformed."""
    variables: RuntimeVariables = read_yaml(data_path("env") / "runtime.yaml").validated(RuntimeVariables)
    return variables.every | (variables.cpu if device == "cpu" else variables.cuda)
