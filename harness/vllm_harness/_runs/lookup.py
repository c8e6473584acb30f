"""Finds the folder of a run, given the run's name."""

from __future__ import annotations

from pathlib import Path

from vllm_harness._errors import UsageError
from vllm_harness._files.paths import state_dir
from vllm_harness._runs.folder import PATTERN
from vllm_harness._runs.reading import header_of

LATEST = "latest"


def find_run(name: str) -> Path:
    """Finds the folder of a run.

    Args:
        name: the folder's path; its name in the state folder, such as `20260103-101500-4711` or
            `regression/mine`; or `latest` for the run that started last.

    Raises:
        UsageError: there is no run with this name.
    """
    if name == LATEST:
        return _latest()
    if any(Path(name).glob(PATTERN)):
        return Path(name)
    for folder in (state_dir() / "runs" / name, state_dir() / name):
        if any(folder.glob(PATTERN)):
            return folder
    if Path(name).is_dir():
        raise UsageError(
            f"{name} does not contain a run", hint="give the folder that a run printed, or `latest`"
        )
    raise UsageError(
        f"no run is named {name!r}",
        hint="give the folder that a run printed, or `latest`; "
        f"runs are in {state_dir() / 'runs'}, and those of other kinds beside it",
    )


def stored_runs() -> list[Path]:
    """Lists the folders of the runs in the state folder, in the order in which the runs started."""
    folders = {path.parent for path in state_dir().glob(f"*/*/{PATTERN}")}
    return sorted(folders, key=lambda folder: (_started(folder), folder))


def _latest() -> Path:
    runs = stored_runs()
    if not runs:
        raise UsageError(
            f"{state_dir()} contains no runs",
            hint="make one with `vllm-harness run`, or pytest with --vllm-output DIR",
        )
    return runs[-1]


def _started(folder: Path) -> float:
    try:
        return header_of(folder).started
    except UsageError:  # a damaged run is never the latest
        return 0.0
