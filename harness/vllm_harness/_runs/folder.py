"""Writes a run folder: `records.jsonl` as the run goes on, and a separate file for each further process."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Self

from pydantic_core import PydanticSerializationError

from vllm_harness._errors import UsageError
from vllm_harness._files.folders import unusable
from vllm_harness._files.redaction import REDACTED, pattern_of
from vllm_harness._machine import interrupts
from vllm_harness._runs.records import AnyRecord, Header

PATTERN = "records*.jsonl"


class RunWriter:
    """Writes each record of a run at once; threads may share a writer.

    Args:
        folder: the run's folder; created if it does not exist.
        part: the name of this process's file, such as that of a worker; empty for the main process.
        secrets: values to redact.

    Raises:
        UsageError: the folder cannot be written.
    """

    def __init__(self, folder: Path, part: str = "", secrets: Iterable[str] = ()) -> None:
        self.folder = folder
        self.path = folder / f"records{'-' + part if part else ''}.jsonl"
        self._hidden = set(secrets)
        self._secrets = pattern_of(self._hidden)
        self._lock = threading.Lock()
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            # opened for appending, so that a resumed run keeps its records
            self._file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise unusable(error, f"the run folder {folder}", "name another folder") from error

    @classmethod
    def begin(cls, folder: Path, header: Header, secrets: Iterable[str] = ()) -> Self:
        """Starts a run. Raises UsageError if the folder already contains one."""
        if any(folder.glob(PATTERN)):
            raise UsageError(f"{folder} already holds a run", hint="remove it, or name another folder")
        return cls.resume(folder, header, secrets)

    @classmethod
    def resume(cls, folder: Path, header: Header, secrets: Iterable[str] = ()) -> Self:
        """Resumes the run in a folder, or starts one if the folder contains none."""
        writer = cls(folder, secrets=secrets)
        if not writer.path.stat().st_size:
            writer.write(header)
        interrupts.keep(folder)
        return writer

    def part(self, name: str) -> RunWriter:
        """Makes a writer for another process of the same run, with the same secrets."""
        return RunWriter(self.folder, name, self._hidden)

    def hide(self, secrets: Iterable[str]) -> None:
        """Adds values that are redacted from now on."""
        if more := set(secrets) - self._hidden:
            self._hidden |= more
            self._secrets = pattern_of(self._hidden)

    def write(self, record: AnyRecord) -> None:
        """Writes a record as one line, which is incomplete only if the process is killed meanwhile.

        Raises InfrastructureError without a part of the line in the file if the disk is full.
        """
        line = _as_json(record)
        if self._secrets:
            line = self._secrets.sub(REDACTED, line)
        if not isinstance(record, Header):  # a header already includes its type
            line = f'{{"type":"{record.type}",{line[1:]}'
        data = line.encode() + b"\n"
        with self._lock:
            end = os.fstat(self._file).st_size
            try:
                while data:
                    data = data[os.write(self._file, data) :]
            except OSError as error:
                os.ftruncate(self._file, end)
                hint = f"free space there: what {self.path} already holds stays readable"
                raise unusable(error, f"the run folder {self.folder}", hint) from error

    def close(self) -> None:
        """Closes the records file."""
        with self._lock:
            if self._file >= 0:
                os.close(self._file)
                self._file = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _as_json(record: AnyRecord) -> str:
    short = not isinstance(record, Header)
    try:
        return record.model_dump_json(exclude_defaults=short)
    except PydanticSerializationError:
        # half a surrogate pair, which a server may send in JSON, but which UTF-8 cannot encode
        text = json.dumps(
            record.model_dump(exclude_defaults=short), ensure_ascii=False, separators=(",", ":")
        )
        return text.encode("utf-8", "replace").decode()
