"""The YAML files of `env/`, read by pydantic."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from vllm_harness.errors import UsageError
from vllm_harness.files.located_yaml import read_yaml


def load(kind: Any, path: Path) -> Any:
    """A YAML file as `kind` (a model, or a type such as `dict[str, Model]`).

    Raises UsageError naming file, line and key of each problem.
    """
    document = read_yaml(path)
    try:
        return TypeAdapter(kind).validate_python(document.data)
    except ValidationError as error:
        raise UsageError(document.problems(error, lambda location: ())) from None
