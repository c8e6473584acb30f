"""The folder of a run: `records.jsonl`, written as it goes; a further process writes a file of its own."""

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
from vllm_harness._files.redaction import REDACTED, pattern_of
from vllm_harness._runs.records import AnyRecord, Header

PATTERN = "records*.jsonl"


class RunWriter:
    """Writes the records of a run, each at once; any thread may.

    Args:
        folder: of the run; made where it is missing.
        part: name of this process's part, such as a worker's; empty for the run itself.
        secrets: values that are never written.

    Raises:
        UsageError: the folder holds another run, or can't be written.
    """

    def __init__(self, folder: Path, part: str = "", secrets: Iterable[str] = ()) -> None:
        self.folder = folder
        self.path = folder / f"records{'-' + part if part else ''}.jsonl"
        self._hidden = set(secrets)
        self._secrets = pattern_of(self._hidden)
        self._lock = threading.Lock()
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            # appended: what is there stays, also where a run goes on
            self._file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise UsageError(
                f"the run folder {folder} can't be written: {error.strerror}", hint="name another folder"
            ) from error

    @classmethod
    def begin(cls, folder: Path, header: Header, secrets: Iterable[str] = ()) -> Self:
        """Begins a run. Raises UsageError where the folder holds one already."""
        if any(folder.glob(PATTERN)):
            raise UsageError(f"{folder} holds a run already", hint="remove it, or name another folder")
        return cls.resume(folder, header, secrets)

    @classmethod
    def resume(cls, folder: Path, header: Header, secrets: Iterable[str] = ()) -> Self:
        """Goes on with the run that a folder holds, or begins one."""
        writer = cls(folder, secrets=secrets)
        if not writer.path.stat().st_size:
            writer.write(header)
        return writer

    def part(self, name: str) -> RunWriter:
        """A writer of the same run for another process, which hides the same."""
        return RunWriter(self.folder, name, self._hidden)

    def hide(self, secrets: Iterable[str]) -> None:
        """Adds values that are never written from now on."""
        if more := set(secrets) - self._hidden:
            self._hidden |= more
            self._secrets = pattern_of(self._hidden)

    def write(self, record: AnyRecord) -> None:
        """Keeps a record; a line is whole or, after a kill, cut at its end."""
        line = _as_json(record)
        if self._secrets:
            line = self._secrets.sub(REDACTED, line)
        if not isinstance(record, Header):  # whose type is there
            line = f'{{"type":"{record.type}",{line[1:]}'
        data = line.encode() + b"\n"
        with self._lock:
            while data:
                data = data[os.write(self._file, data) :]

    def close(self) -> None:
        """Closes the file."""
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
        # half of a surrogate pair: a text in JSON, as a server may send it, but not in UTF-8
        text = json.dumps(
            record.model_dump(exclude_defaults=short), ensure_ascii=False, separators=(",", ":")
        )
        return text.encode("utf-8", "replace").decode()
