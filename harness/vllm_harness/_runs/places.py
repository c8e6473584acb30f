"""Where runs are kept, and how a run is found by what a user calls it."""

from __future__ import annotations

from pathlib import Path

from vllm_harness._errors import UsageError
from vllm_harness._files.paths import state_dir
from vllm_harness._runs.folder import PATTERN
from vllm_harness._runs.reading import header_of

LATEST = "latest"


def find_run(name: str) -> Path:
    """The folder of a run.

    Args:
        name: its path; its name in the state folder, such as `20260103-101500-4711` or `regression/mine`; or
            `latest`, the one that began last.

    Raises:
        UsageError: there is none.
    """
    if name == LATEST:
        return _latest()
    for folder in (Path(name), *(each / name for each in (state_dir() / "runs", state_dir()))):
        if any(folder.glob(PATTERN)):
            return folder
    if Path(name).is_dir():
        raise UsageError(f"{name} holds no run", hint="give the folder that a run printed, or `latest`")
    raise UsageError(
        f"there is no run {name!r}",
        hint="give the folder that a run printed, or `latest`; "
        f"runs are kept in {state_dir() / 'runs'} and, of other kinds, beside it",
    )


def kept_runs() -> list[Path]:
    """The folders of the runs in the state folder, the one that began last at the end."""
    folders = {path.parent for path in state_dir().glob(f"*/*/{PATTERN}")}
    return sorted(folders, key=lambda folder: (_began(folder), folder))


def _latest() -> Path:
    runs = kept_runs()
    if not runs:
        raise UsageError(
            f"no run is kept in {state_dir()}",
            hint="`vllm-harness run`, or pytest with --vllm-output DIR, keeps one",
        )
    return runs[-1]


def _began(folder: Path) -> float:
    try:
        return header_of(folder).started
    except UsageError:  # one that is damaged is none that is wanted
        return 0.0
