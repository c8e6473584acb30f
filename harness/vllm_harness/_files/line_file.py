"""Files of JSON lines that a run adds to as results come; a line that a kill has cut counts as none."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from vllm_harness._errors import UsageError

Line = TypeVar("Line", bound=BaseModel)


def read_lines(path: Path, model: type[Line], *, what: str, hint: str) -> list[Line]:
    """The whole lines of a file; none where it is not there.

    Args:
        path: of the file.
        model: of each line.
        what: a line is, as an error says it: `verdict of a run`.
        hint: what to do about a line that is something else.

    Raises:
        UsageError: the file cannot be read, or a whole line is something else; names file and line.
    """
    try:
        lines = _whole(path).splitlines()
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}", hint=hint) from error
    found = []
    for number, line in enumerate(lines, start=1):
        try:
            found.append(model.model_validate_json(line))
        except ValidationError as error:
            problem = error.errors()[0]["msg"]
            raise UsageError(f"{path}:{number} is no {what}: {problem}", hint=hint) from error
    return found


def end_whole(path: Path) -> None:
    """Ends a file at its last whole line, before more are added; makes its folder where there is none."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists() and len(whole := _whole(path)) < path.stat().st_size:
        path.write_bytes(whole)


def _whole(path: Path) -> bytes:
    content = path.read_bytes() if path.exists() else b""
    return content[: content.rfind(b"\n") + 1]
