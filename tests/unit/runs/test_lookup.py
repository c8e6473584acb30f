"""Runs are found by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from vllm_harness._errors import UsageError
from vllm_harness._runs.folder import RunWriter
from vllm_harness._runs.header import new_header
from vllm_harness._runs.lookup import find_run, stored_runs
from vllm_harness._runs.records import Header, Kind


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A state folder with three runs, the second of which started last."""
    monkeypatch.setenv("VLLM_HARNESS_STATE", str(tmp_path))
    for name, started in (("runs/a", 1.0), ("regression/mine", 3.0), ("runs/b", 2.0)):
        RunWriter.begin(tmp_path / name, Header(kind=Kind.SUITES, started=started)).close()
    (tmp_path / "runs" / "without").mkdir()
    return tmp_path


def test_a_run_is_found(state: Path) -> None:
    assert [path.name for path in stored_runs()] == ["a", "b", "mine"]
    assert find_run("latest") == state / "regression" / "mine"
    assert find_run("b") == find_run(str(state / "runs" / "b")) == state / "runs" / "b"
    assert find_run("regression/mine") == state / "regression" / "mine"


def test_a_missing_run_is_an_error(state: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    with pytest.raises(UsageError, match="no run is named 'c'"):
        find_run("c")
    with pytest.raises(UsageError, match="does not contain a run"):
        find_run(str(tmp_path_factory.mktemp("empty")))


def test_an_empty_state_folder_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_HARNESS_STATE", str(tmp_path))
    with pytest.raises(UsageError, match="contains no runs"):
        find_run("latest")


def test_a_header_names_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["/venv/lib/pytest/__main__.py", "-q"])
    header = new_header(Kind.SUITES, "qwen3", 7)
    assert header.command == ("python -m pytest", "-q")
    assert (header.name, header.seed) == ("qwen3", 7)
    assert "cores" in header.machine
