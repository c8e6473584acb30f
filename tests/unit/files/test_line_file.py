"""JSON Lines files, in the state in which a killed run leaves them."""

from __future__ import annotations

from pathlib import Path

import pytest

from vllm_harness._errors import UsageError
from vllm_harness._files.line_file import read_lines, truncate_to_complete_lines
from vllm_harness._files.strict import StrictModel


class Line(StrictModel):
    """One line of a file."""

    text: str


LINES = [Line(text="one"), Line(text="of two\u2028lines\x85, as Python splits a text"), Line(text="three")]
CONTENT = "".join(f"{line.model_dump_json()}\n" for line in LINES).encode()


def read(path: Path) -> list[Line]:
    return read_lines(path, Line, what="line", hint="remove it")


def test_a_missing_file_has_no_lines(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "lines.jsonl"
    assert read(path) == []
    truncate_to_complete_lines(path)
    assert path.parent.is_dir()
    assert not path.exists()


@pytest.mark.parametrize("size", range(len(CONTENT) + 1))
def test_a_truncated_line_is_ignored_and_written_again(tmp_path: Path, size: int) -> None:
    path = tmp_path / "lines.jsonl"
    path.write_bytes(CONTENT[:size])
    whole = CONTENT[:size].count(b"\n")
    assert read(path) == LINES[:whole]
    truncate_to_complete_lines(path)
    with path.open("a") as file:
        for line in LINES[whole:]:
            print(line.model_dump_json(), file=file)
    assert path.read_bytes() == CONTENT


def test_an_invalid_line_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "lines.jsonl"
    path.write_bytes(CONTENT + b'{"text": 3}\n')
    with pytest.raises(UsageError, match=r"lines\.jsonl:4: not a valid line: Input should be a valid string"):
        read(path)


def test_an_unreadable_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read: Is a directory"):
        read(tmp_path)
