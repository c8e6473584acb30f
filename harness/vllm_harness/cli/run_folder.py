"""Creates or resumes the run folder of a command, and closes it however the command ends."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import typer

from vllm_harness._errors import HarnessError
from vllm_harness._files.redaction import secret_values
from vllm_harness._machine import interrupts
from vllm_harness._runs.folder import RunWriter
from vllm_harness._runs.header import new_header
from vllm_harness._runs.records import End, Kind


@contextmanager
def kept_run(kind: Kind, folder: Path, name: str = "", seed: int | None = None) -> Iterator[RunWriter]:
    """Creates a run folder, or resumes an existing one; yields the writer of its records.

    Args:
        kind: the kind of the run.
        folder: the folder of the run.
        name: the name that reports show.
        seed: the random seed.
    """
    with RunWriter.resume(folder, new_header(kind, name, seed), secret_values(os.environ)) as writer:
        code, stopped = 0, ""
        try:
            yield writer
        except typer.Exit as ended:
            code = ended.exit_code
            raise
        except HarnessError as error:
            code, stopped = error.exit_code, error.message
            raise
        except BaseException as error:
            code = interrupts.exit_code(HarnessError.exit_code)
            stopped = signal.Signals(code - 128).name if code > 128 else type(error).__name__
            raise
        finally:
            writer.write(End(at=time.time(), exit_code=code, stopped=stopped))
