"""Tests the version and device of environments that have not been made yet."""

from __future__ import annotations

from pathlib import Path

import pytest

from vllm_harness._environments.installed import NoVllmError
from vllm_harness._environments.planned import PlannedEnvironment, plan
from vllm_harness._environments.spec import Device
from vllm_harness._errors import UsageError


@pytest.fixture(autouse=True)
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    cache = tmp_path / "cache"
    monkeypatch.setenv("VLLM_HARNESS_CACHE", str(cache))
    return cache


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    package = tmp_path / "src" / "vllm"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    return package.parent


@pytest.mark.parametrize(
    ("spec", "device", "version"),
    [("0.32.0", "cpu", "0.32.0"), ("0.22.0", "cuda", "0.22.0"), ("0.33.0@0.32.0", "cpu", "0.33.0")],
)
def test_a_spec_gives_device_and_version(spec: str, device: Device, version: str, empty_cache: Path) -> None:
    assert plan(spec, None if "@" in spec else device) == PlannedEnvironment(spec, device, version)
    assert not empty_cache.exists()


def test_a_tree_without_a_version_has_that_of_its_kernels(tree: Path) -> None:
    assert plan(f"tree:{tree}@0.31.0").vllm_version == "0.31.0"
    (tree / "vllm" / "_version.py").write_text("__version__ = version = '0.34.0.dev7+gabc'\n")
    assert plan(f"tree:{tree}@0.31.0") == PlannedEnvironment(f"tree:{tree}@0.31.0", "cpu", "0.34.0.dev7")


@pytest.mark.parametrize(
    ("spec", "device", "words"),
    [
        ("0.99.0", "cpu", "0.99.0"),
        ("0.33.0@0.99.0", None, "0.99.0"),
        ("0.33.0@0.32.0", "cuda", "is for cpu"),
        ("newest", None, "`newest` is not an environment"),
        ("tree:/no/such/folder@0.32.0", None, "not a working tree of vLLM"),
    ],
)
def test_an_invalid_spec_is_rejected(spec: str, device: Device | None, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        plan(spec, device)


def test_an_interpreter_is_inspected() -> None:
    with pytest.raises(NoVllmError, match="/no/such/python"):
        plan("installed:/no/such/python")
