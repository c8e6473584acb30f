"""Files of JSON lines, to which a run appends results; a line that a kill has truncated is ignored."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from vllm_harness._errors import UsageError

Line = TypeVar("Line", bound=BaseModel)


def read_lines(path: Path, model: type[Line], *, what: str, hint: str) -> list[Line]:
    """Reads the whole lines of a file; a missing file has none.

    Args:
        what: names a line in errors, such as `verdict of a run`.
        hint: what to do about an invalid line.

    Raises:
        UsageError: the file cannot be read, or a whole line is invalid; the message names file and line.
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


def end_whole(path: Path) -> None:
    """Truncates a file after its last whole line, before more are appended; makes its folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists() and len(whole := _whole(path)) < path.stat().st_size:
        path.write_bytes(whole)


def _whole(path: Path) -> bytes:
    content = path.read_bytes() if path.exists() else b""
    return content[: content.rfind(b"\n") + 1]
