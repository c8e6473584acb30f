"""Data files of this package: read strictly, every problem named by file, line and key."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from vllm_harness.errors import UsageError
from vllm_harness.files.located_yaml import read_yaml

T = TypeVar("T")


class DataFileError(UsageError):
    """The file does not hold what it should; the message names file, line and key."""


def load_data(path: Path, content: TypeAdapter[T]) -> T:
    """Reads and validates a YAML file.

    Args:
        path: the file.
        content: what it holds.

    Raises:
        UsageError: naming file, line and key.
    """
    document = read_yaml(path)
    try:
        return content.validate_python(document.data)
    except ValidationError as error:
        raise DataFileError(document.problems(error, lambda location: ())) from error


def with_names(rows: Any) -> Any:
    """The rows of a mapping, each with its key as its `name`; for a pydantic BeforeValidator."""
    if not isinstance(rows, dict):
        return rows
    if named := [key for key, row in rows.items() if isinstance(row, dict) and "name" in row]:
        raise ValueError(f"the key of {named[0]} is its name, so leave out 'name'")
    return {key: {**row, "name": key} if isinstance(row, dict) else row for key, row in rows.items()}
