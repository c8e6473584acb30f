"""Reads a run folder, even while a run is writing it or after the run was killed."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from vllm_harness._errors import UsageError
from vllm_harness._runs.folder import PATTERN
from vllm_harness._runs.records import FORMAT, RECORD, AnyRecord, CaseRecord, Header

LARGEST_LINE = 64 * 2**20  # in bytes; long enough for an exchange with a body of 10 MB


@dataclass(frozen=True)
class RecordOffset:
    """The position of a record in its file, to read it again later: exchanges are not kept in memory."""

    path: Path
    offset: int
    length: int

    def read(self) -> AnyRecord:
        """Reads the record at this position."""
        with self.path.open("rb") as file:
            file.seek(self.offset)
            return RECORD.validate_json(file.read(self.length))


def records(folder: Path, only: Collection[str] | None = None) -> Iterator[tuple[RecordOffset, AnyRecord]]:
    """Yields the records of a run, starting with those of its main process; skips a truncated last line.

    Args:
        folder: the run's folder.
        only: the types of the records to read; by default all.

    Raises:
        UsageError: the folder contains no run, or one in a newer format, or a line is not a record.
    """
    paths = sorted(folder.glob(PATTERN), key=lambda path: (path.name != "records.jsonl", path.name))
    if not paths:
        raise UsageError(
            f"{folder} does not contain a run", hint="give the folder that a run printed, or `latest`"
        )
    for path in paths:
        yield from _records_of(path, only)


def header_of(folder: Path) -> Header:
    """Reads the header of a run. Raises UsageError like `records`, or if it does not come first."""
    for _, record in records(folder):
        if isinstance(record, Header):
            return record
        break
    raise UsageError(f"{folder} does not begin with the header of a run", hint="give another folder")


def latest_cases(cases: list[CaseRecord]) -> list[CaseRecord]:
    """Keeps one record for each case and target: the latest, if a resumed run has several."""
    return list({(case.target, case.id): case for case in cases}.values())


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
            f"{path}:{number}: not a record of a run: {where + ': ' if where else ''}{first['msg']}",
            hint="was it written by another version of the harness?",
        ) from error
    if isinstance(record, Header) and record.format > FORMAT:
        raise UsageError(
            f"{path}:{number}: the run has format {record.format}; this harness reads up to {FORMAT}",
            hint="upgrade vllm-harness",
        )
    return record
