"""Reads a run folder, also one that is being written, or whose writer was killed."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from vllm_harness._errors import UsageError
from vllm_harness._runs.folder import PATTERN
from vllm_harness._runs.records import FORMAT, RECORD, AnyRecord, CaseRecord, End, Header

LARGEST_LINE = 64 * 2**20  # bytes: an exchange with a body of 10 MB is none too many


@dataclass(frozen=True)
class RecordOffset:
    """Where a record stands: it is read again from there, so that exchanges need no memory."""

    path: Path
    offset: int
    length: int

    def read(self) -> AnyRecord:
        """The record."""
        with self.path.open("rb") as file:
            file.seek(self.offset)
            return RECORD.validate_json(file.read(self.length))


def records(folder: Path, only: Collection[str] | None = None) -> Iterator[tuple[RecordOffset, AnyRecord]]:
    """The records of a run, those of the run itself first; a line cut at the end of a file is left aside.

    Args:
        folder: of the run.
        only: the types of records that are wanted; by default all.

    Raises:
        UsageError: no run is there, it is of a later format, or a line is no record (names file and line).
    """
    paths = sorted(folder.glob(PATTERN), key=lambda path: (path.name != "records.jsonl", path.name))
    if not paths:
        raise UsageError(f"{folder} holds no run", hint="give the folder that a run printed, or `latest`")
    for path in paths:
        yield from _records_of(path, only)


def header_of(folder: Path) -> Header:
    """The header of a run. Raises UsageError as `records` does, and where the first record is none."""
    for _, record in records(folder):
        if isinstance(record, Header):
            return record
        break
    raise UsageError(f"{folder} does not begin with the header of a run", hint="give another folder")


def last_word(cases: list[CaseRecord]) -> list[CaseRecord]:
    """One case of each id and target: where a run went on, the later one counts."""
    return list({(case.target, case.id): case for case in cases}.values())


def ended(folder: Path) -> End | None:
    """The record of the run's end, the last where it went on; None where it was killed, or still goes on."""
    found = None
    for _, record in records(folder, {"end"}):
        if isinstance(record, End):
            found = record
    return found


def _records_of(path: Path, only: Collection[str] | None) -> Iterator[tuple[RecordOffset, AnyRecord]]:
    with path.open("rb") as file:
        offset, number = 0, 0
        while line := file.readline(LARGEST_LINE):
            number += 1
            place, offset = RecordOffset(path, offset, len(line)), offset + len(line)
            if not line.endswith(b"\n"):
                if len(line) == LARGEST_LINE:
                    raise UsageError(f"{path}:{number}: a line of more than {LARGEST_LINE // 2**20} MiB")
                return
            if only is None or line.startswith(tuple(f'{{"type":"{kind}"'.encode() for kind in only)):
                yield place, _record(path, number, line)


def _record(path: Path, number: int, line: bytes) -> AnyRecord:
    try:
        record = RECORD.validate_json(line)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise UsageError(
            f"{path}:{number}: no record of a run: {where + ': ' if where else ''}{first['msg']}",
            hint="was it written by another version of the harness?",
        ) from error
    if isinstance(record, Header) and record.format > FORMAT:
        raise UsageError(
            f"{path}:{number}: the run has format {record.format}, and this harness reads up to {FORMAT}",
            hint="take a newer vllm-harness",
        )
    return record
