"""Files of JSON lines, as a run that was killed leaves them."""

from __future__ import annotations

from pathlib import Path

import pytest

from vllm_harness._errors import UsageError
from vllm_harness._files.line_file import end_whole, read_lines
from vllm_harness._files.strict import StrictModel


class Line(StrictModel):
    """A line."""

    text: str


LINES = [Line(text="one"), Line(text="of two\u2028lines\x85, as Python splits a text"), Line(text="three")]
CONTENT = "".join(f"{line.model_dump_json()}\n" for line in LINES).encode()


def read(path: Path) -> list[Line]:
    return read_lines(path, Line, what="line", hint="remove it")


def test_where_there_is_no_file_there_are_no_lines(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "lines.jsonl"
    assert read(path) == []
    end_whole(path)
    assert path.parent.is_dir()
    assert not path.exists()


@pytest.mark.parametrize("size", range(len(CONTENT) + 1))
def test_a_cut_line_counts_as_none_and_is_written_again(tmp_path: Path, size: int) -> None:
    path = tmp_path / "lines.jsonl"
    path.write_bytes(CONTENT[:size])
    whole = CONTENT[:size].count(b"\n")
    assert read(path) == LINES[:whole]
    end_whole(path)
    with path.open("a") as file:
        for line in LINES[whole:]:
            print(line.model_dump_json(), file=file)
    assert path.read_bytes() == CONTENT


def test_a_whole_line_that_is_something_else_is_named(tmp_path: Path) -> None:
    path = tmp_path / "lines.jsonl"
    path.write_bytes(CONTENT + b'{"text": 3}\n')
    with pytest.raises(UsageError, match=r"lines\.jsonl:4 is no line: Input should be a valid string"):
        read(path)


def test_what_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read: Is a directory"):
        read(tmp_path)
