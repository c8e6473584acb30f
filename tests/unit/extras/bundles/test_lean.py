"""Lean bundles: what is left out, and that an installer accepts the repacked wheels."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from vllm_harness._environments.installer import uv_path
from vllm_harness._environments.locks import lock_for
from vllm_harness.extras.bundles.contents import requirements
from vllm_harness.extras.bundles.lean import LeanRules, lean_rules, lock_of, repack

RULES = LeanRules(packages=("nvidia-*", "torch"), keep=("nvidia-ml-py",), files=("demo/*.so",))
RECORD = """\
demo/__init__.py,sha256=47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU,0
demo/kernel.so,sha256=abc,3
demo-1.0.dist-info/WHEEL,,
demo-1.0.dist-info/METADATA,,
demo-1.0.dist-info/RECORD,,
"""


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    path = tmp_path / "demo-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("demo/__init__.py", "")
        archive.writestr("demo/kernel.so", "abc")
        archive.writestr(
            "demo-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\nRoot-Is-Purelib: true\n"
        )
        archive.writestr("demo-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: demo\nVersion: 1.0\n")
        archive.writestr("demo-1.0.dist-info/RECORD", RECORD)
    return path


@pytest.mark.parametrize(
    ("requirement", "included"),
    [("nvidia-cublas==1", False), ("nvidia-ml-py==2", True), ("torch==2.11.0", False), ("torchx==1", True)],
)
def test_packages(requirement: str, included: bool) -> None:
    assert RULES.includes(requirement) == included


def test_a_repacked_wheel_installs_by_its_hash(wheel: Path, tmp_path: Path) -> None:
    repack(tmp_path, RULES)
    first = wheel.read_bytes()
    repack(tmp_path, RULES)
    assert wheel.read_bytes() == first
    with zipfile.ZipFile(wheel) as archive:
        assert "demo/kernel.so" not in archive.namelist()
        assert "kernel" not in archive.read("demo-1.0.dist-info/RECORD").decode()
    lock = tmp_path / "lock"
    lock.write_text(
        lock_of(["demo==1.0 ; sys_platform == 'linux' \\\n    --hash=sha256:00", "absent==2"], tmp_path)
    )
    assert lock.read_text().startswith("demo==1.0 ; sys_platform == 'linux' --hash=sha256:")
    where = ["--target", str(tmp_path / "into"), "--python", sys.executable, "--find-links", str(tmp_path)]
    command = [str(uv_path()), "pip", "install", "--offline", "--no-index", "--require-hashes", *where]
    subprocess.run([*command, "--requirement", str(lock)], check=True)
    assert (tmp_path / "into/demo/__init__.py").exists()
    assert not (tmp_path / "into/demo/kernel.so").exists()


def test_the_rules_include_what_a_server_needs() -> None:
    pinned = requirements(lock_for("0.26.0", "cuda").path.read_text())
    names = {requirement.partition("==")[0] for requirement in filter(lean_rules().includes, pinned)}
    assert {"vllm", "transformers", "xgrammar", "numba", "nvidia-ml-py", "openai-harmony"} < names
    assert not {"torch", "triton", "flashinfer-python", "nvidia-cublas"} & names
