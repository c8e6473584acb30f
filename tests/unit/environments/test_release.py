"""Release environments are made completely or not at all, by one process at a time (with a fake uv)."""

from __future__ import annotations

import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from vllm_harness._environments import Environment, release_making, resolve, store, verify
from vllm_harness._environments.installer import InstallError, remedy
from vllm_harness._environments.locks import lock_for
from vllm_harness._errors import UsageError
from vllm_harness._files import locking


class FakeUv:
    """A fake uv that makes the files of `uv venv` and `uv pip install`, or fails at a step."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, ...]] = []
        self.fail_at: str | None = None

    def __call__(self, *arguments: str | Path, **_: object) -> None:
        words = tuple(map(str, arguments))
        self.calls.append(words)
        if words[0] == "venv":
            folder = Path(words[-1])
            (folder / "bin").mkdir(parents=True)
            (folder / "bin" / "python").touch()
            (folder / "pyvenv.cfg").write_text("home = /usr/bin\nversion_info = 3.11.7\n")
        if self.fail_at and self.fail_at in words:
            raise InstallError("No space left on device", hint=remedy("No space left on device"))
        time.sleep(0.05)

    def environments_made(self) -> int:
        return sum(words[0] == "venv" for words in self.calls)


@pytest.fixture
def uv(monkeypatch: pytest.MonkeyPatch) -> FakeUv:
    fake = FakeUv()
    monkeypatch.setattr(release_making, "run_uv", fake)
    monkeypatch.setattr(release_making, "verify", lambda environment: {})
    monkeypatch.setattr(release_making, "find_links", list)
    return fake


def test_an_environment_is_made_once(uv: FakeUv, cache: Path) -> None:
    environment = resolve("0.32.0", "cpu", create=True)
    assert environment.describe() == "release vllm 0.32.0 (cpu, torch 2.13.0+cpu)"
    assert environment.python_version == "3.11.7"
    assert environment.python.is_relative_to(cache / "environments")
    assert resolve("0.32.0", "cpu") == resolve("0.32.0", "cpu", create=True) == environment
    assert uv.environments_made() == 1


def test_servers_get_stub_metadata(uv: FakeUv) -> None:
    (stub,) = resolve("0.32.0", "cpu", create=True).pythonpath
    assert (stub / "vllm-0.32.0+cpu.dist-info" / "METADATA").exists()


@pytest.mark.parametrize("step", ["venv", "install"])
def test_a_failure_leaves_nothing(uv: FakeUv, step: str) -> None:
    uv.fail_at = step
    with pytest.raises(InstallError, match="No space left") as raised:
        resolve("0.32.0", "cpu", create=True)
    assert "free disk space" in raised.value.hint
    assert list(store.stored()) == []


def test_a_broken_environment_is_removed(uv: FakeUv, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(environment: object) -> None:
        raise verify.BrokenEnvironmentError("`import vllm` fails")

    monkeypatch.setattr(release_making, "verify", broken)
    with pytest.raises(verify.BrokenEnvironmentError):
        resolve("0.32.0", "cpu", create=True)
    assert list(store.stored()) == []


def test_an_incomplete_environment_is_made_again(uv: FakeUv) -> None:
    complete = resolve("0.32.0", "cpu", create=True)
    folder = complete.python.parent.parent
    (folder / "vllm-harness.json").unlink()
    (folder / "leftover").touch()
    with pytest.raises(store.MissingEnvironmentError):
        resolve("0.32.0", "cpu")
    assert [entry.environment for entry in store.stored()] == [None]
    assert resolve("0.32.0", "cpu", create=True) == complete
    assert not (folder / "leftover").exists()


@pytest.mark.parametrize("marker", ["", "{", "[]", '{"device": "cpu"}'])
def test_a_damaged_marker_is_ignored(uv: FakeUv, marker: str) -> None:
    environment = resolve("0.32.0", "cpu", create=True)
    (environment.python.parent.parent / "vllm-harness.json").write_text(marker)
    with pytest.raises(store.MissingEnvironmentError):
        resolve("0.32.0", "cpu")


def test_concurrent_processes_make_one_environment(uv: FakeUv, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locking, "SILENT_S", 0.01)
    lines: list[str] = []
    start = threading.Barrier(6)

    def make(_: int) -> object:
        start.wait()
        return resolve("0.32.0", "cpu", create=True, progress=lines.append)

    with ThreadPoolExecutor(6) as pool:
        assert len(set(map(repr, pool.map(make, range(6))))) == 1
    assert uv.environments_made() == 1
    assert any(line.startswith("waiting for another process") for line in lines)


def test_a_changed_lock_makes_another_environment(uv: FakeUv, monkeypatch: pytest.MonkeyPatch) -> None:
    first = resolve("0.32.0", "cpu", create=True)
    monkeypatch.setattr(type(lock_for("0.32.0", "cpu")), "digest", "12345678")
    second = resolve("0.32.0", "cpu", create=True)
    assert first.python != second.python
    assert uv.environments_made() == 2


def test_torch_is_taken_from_a_folder_of_wheels(
    uv: FakeUv, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for minor in ("311", "312", "313"):
        for machine in ("x86_64", "aarch64", "arm64"):
            name = f"torch-2.13.0+cpu-cp{minor}-cp{minor}-manylinux_2_28_{machine}.whl"
            (tmp_path / name).touch()
    monkeypatch.setattr(release_making, "find_links", lambda: [tmp_path])
    resolve("0.32.0", "cpu", create=True)
    assert not any("--torch-backend" in words for words in uv.calls)


def test_otherwise_torch_is_taken_from_its_index(uv: FakeUv) -> None:
    resolve("0.32.0", "cpu", create=True)
    (install,) = (words for words in uv.calls if "install" in words)
    assert install[install.index("--torch-backend") + 1] == "cpu"
    resolve("0.32.0", "cuda", create=True)
    assert "--torch-backend" not in uv.calls[-1]


def test_an_environment_is_removed_by_name(uv: FakeUv) -> None:
    folder = resolve("0.32.0", "cpu", create=True).python.parent.parent
    with pytest.raises(UsageError, match=r"no environment 0\.32\.0") as raised:
        store.remove("0.32.0")
    assert folder.name in raised.value.hint
    store.remove(folder.name)
    assert not folder.exists()


@pytest.mark.parametrize("name", ["..", "../assets", ".", ""])
def test_only_environments_are_removed(uv: FakeUv, name: str) -> None:
    resolve("0.32.0", "cpu", create=True)
    with pytest.raises(UsageError, match="no environment"):
        store.remove(name)


def test_linked_files_do_not_count_as_own_size(uv: FakeUv, tmp_path: Path) -> None:
    folder = resolve("0.32.0", "cpu", create=True).python.parent.parent
    (entry,) = store.stored()
    total, own = entry.sizes()
    (tmp_path / "cached").write_bytes(b"x" * 100_000)
    (folder / "linked").hardlink_to(tmp_path / "cached")
    assert entry.sizes()[0] >= total + 100_000
    assert entry.sizes()[1] == own


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ({"vllm": "0.31.0", "device": "cpu", "kernels": True}, "is in fact vLLM 0.31.0 on cpu"),
        ({"vllm": "0.32.0", "device": "cuda", "kernels": True}, "is in fact vLLM 0.32.0 on cuda"),
        ({"vllm": "0.32.0", "device": "cpu", "kernels": False}, "kernels do not load"),
    ],
)
def test_verify_compares_the_vllm_with_the_environment(
    tmp_path: Path, answer: dict[str, object], message: str
) -> None:
    environment = with_fake_python(tmp_path, f"echo '{json.dumps(answer | {'torch': '2.13.0+cpu'})}'")
    with pytest.raises(verify.BrokenEnvironmentError, match=message):
        verify.verify(environment)


def test_verify_reports_a_missing_cuda_device(tmp_path: Path) -> None:
    answer = {"vllm": "0.32.0+cu130", "torch": "2.13.0+cu130", "device": "", "kernels": False}
    environment = replace(with_fake_python(tmp_path, f"echo '{json.dumps(answer)}'"), device="cuda")
    with pytest.raises(verify.BrokenEnvironmentError, match=r"finds no CUDA device[\s\S]*nvidia-smi"):
        verify.verify(environment)


def test_verify_reports_the_error_of_an_import(tmp_path: Path) -> None:
    environment = with_fake_python(tmp_path, "echo 'undefined symbol: torch7Library' >&2; exit 1")
    with pytest.raises(verify.BrokenEnvironmentError, match="undefined symbol: torch7Library"):
        verify.verify(environment)


def with_fake_python(folder: Path, line: str) -> Environment:
    """Returns an environment whose Python is a shell script with one line."""
    python = folder / "env" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(f"#!/bin/sh\n{line}\n")
    python.chmod(0o755)
    return Environment("release", python, "3.11.7", "0.32.0", "cpu", "2.13.0+cpu")
