"""JSON Lines files, to which runs append; a last line left incomplete by a killed process is ignored."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from vllm_harness._errors import UsageError

Line = TypeVar("Line", bound=BaseModel)


def read_lines(path: Path, model: type[Line], *, what: str, hint: str) -> list[Line]:
    """Reads the complete lines of a file; returns an empty list if there is no such file.

    Args:
        what: describes a line in error messages, such as `verdict of a run`.
        hint: the hint of the error, which says what to do about it.

    Raises:
        UsageError: the file cannot be read, or a complete line is invalid; the message names file and line.
    """
    try:
        lines = _whole(path).splitlines()
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}", hint=hint) from error
    entries = []
    for number, line in enumerate(lines, start=1):
        try:
            entries.append(model.model_validate_json(line))
        except ValidationError as error:
            problem = error.errors()[0]["msg"]
            raise UsageError(f"{path}:{number}: not a valid {what}: {problem}", hint=hint) from error
    return entries


def truncate_to_complete_lines(path: Path) -> None:
    """Truncates a file after its last complete line, so that lines can be appended; creates its folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists() and len(whole := _whole(path)) < path.stat().st_size:
        path.write_bytes(whole)


def _whole(path: Path) -> bytes:
    content = path.read_bytes() if path.exists() else b""
    return content[: content.rfind(b"\n") + 1]
