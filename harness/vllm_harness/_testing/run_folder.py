"""Makes the run folder of a pytest run (--vllm-output), and passes its path to pytest-xdist's workers."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

from vllm_harness._errors import HarnessError
from vllm_harness._files.redaction import secret_values
from vllm_harness._machine import interrupts
from vllm_harness._runs.folder import RunWriter
from vllm_harness._runs.header import new_header
from vllm_harness._runs.records import End, Kind
from vllm_harness._server.records import run_folder

AUTO = "auto"
"""The value of --vllm-output that selects the folder of the logs."""
WRITER = pytest.StashKey[RunWriter]()


class ReportedRun:
    """A pytest plugin that stores the records of a run.

    Args:
        config: pytest's configuration; its `vllm_output` option is set to the path of the folder.
    """

    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionstart(self) -> None:
        """Starts the run, or a worker's part of it. Raises pytest.UsageError if the folder cannot be used."""
        option = self._config.option
        if option.collectonly:
            return
        secrets = secret_values(os.environ, option.vllm_server_arg)
        if option.vllm_api_key_env:
            secrets.append(os.environ.get(option.vllm_api_key_env, ""))
        try:
            self._config.stash[WRITER] = self._writer(secrets)
        except HarnessError as error:
            raise pytest.UsageError(str(error)) from error

    def _writer(self, secrets: list[str]) -> RunWriter:
        option = self._config.option
        if worker := getattr(self._config, "workerinput", None):
            return RunWriter(Path(option.vllm_output), worker["workerid"], secrets)
        folder = run_folder() if option.vllm_output == AUTO else Path(option.vllm_output).absolute()
        option.vllm_output = str(folder)  # for pytest-xdist's workers, which receive the options
        seed = getattr(option, "seed", None) if getattr(option, "dealt", None) else None
        header = new_header(Kind.SUITES, ", ".join(option.vllm_model), seed)
        return RunWriter.begin(folder, header, secrets)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """Writes the end of the run."""
        if (writer := self._config.stash.get(WRITER, None)) is None:
            return
        if not hasattr(self._config, "workerinput"):
            code = interrupts.exit_code(int(exitstatus))
            writer.write(End(at=time.time(), exit_code=code, stopped=_stopped(session, exitstatus)))
        writer.close()

    @pytest.hookimpl(trylast=True)
    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Prints the path of the folder."""
        if WRITER in self._config.stash:
            folder = self._config.option.vllm_output
            terminalreporter.write_line(f"run folder: {folder} (vllm-harness report {folder})")


def _stopped(session: pytest.Session, exitstatus: int) -> str:
    if exitstatus == pytest.ExitCode.INTERRUPTED:
        return str(session.shouldstop or "interrupted")
    if session.shouldfail:
        return str(session.shouldfail)
    return "an internal error of pytest" if exitstatus == pytest.ExitCode.INTERNAL_ERROR else ""
