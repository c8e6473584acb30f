"""Tests the content of environments of the kinds graft and tree, with a fake uv."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from vllm_harness._environments import graft, locks, operators, release_making, resolve, store
from vllm_harness._environments.store import folder_of
from vllm_harness._errors import UsageError

METADATA = """\
Metadata-Version: 2.1
Name: vllm
Version: 0.33.0
Requires-Dist: orjson>=3.11.6
Requires-Dist: Torch==2.14.0
Requires-Dist: flashinfer-python==0.7.2
Requires-Dist: audio; extra == "audio"
"""


class FakeUv:
    """A fake uv that makes the files of `uv venv` and `uv pip install`."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, ...]] = []

    def __call__(self, *arguments: str | Path, **_: object) -> None:
        words = tuple(map(str, arguments))
        self.calls.append(words)
        target = next((Path(word[9:]) for word in words if word.startswith("--target=")), None)
        if words[0] == "venv":
            site = Path(words[-1]) / "lib" / "python3.11" / "site-packages"
            (site / "vllm").mkdir(parents=True)
            (site.parent.parent.parent / "pyvenv.cfg").write_text("version_info = 3.11.7\n")
            (site / "vllm" / "_C.abi3.so").write_text("CPU kernels")
            (site / "vllm" / "ops.py").write_text("torch.ops._C.old_one(x)\n")
        elif target:
            (target / "vllm" / "flash").mkdir(parents=True)
            (target / "vllm" / "__init__.py").touch()
            (target / "vllm" / "ops.py").write_text("torch.ops._C.old_one(x); torch.ops._C.new_one(x)\n")
            (target / "vllm" / "_version.py").write_text("__commit_id__ = commit_id = 'g4ba787ec9'\n")
            (target / "vllm" / "vllm-rs").touch()
            for library in ("_C.abi3.so", "flash/_fa3.abi3.so"):
                (target / "vllm" / library).write_text("CUDA")
            (target / "vllm-0.33.0.dist-info").mkdir()
            (target / "vllm-0.33.0.dist-info" / "METADATA").write_text(METADATA)

    def required(self) -> list[tuple[str, ...]]:
        """Returns the requirements that were installed in addition to the locks and vLLM itself."""
        return [words[7:] for words in self.calls if any(word.startswith("--excludes=") for word in words)]


@pytest.fixture
def uv(monkeypatch: pytest.MonkeyPatch) -> FakeUv:
    fake = FakeUv()
    for module in (graft, release_making):
        monkeypatch.setattr(module, "run_uv", fake)
        monkeypatch.setattr(module, "verify", lambda environment: {})
    monkeypatch.setattr(release_making, "find_links", list)
    return fake


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    folder = tmp_path / "vllm-tree"
    (folder / "vllm").mkdir(parents=True)
    (folder / "vllm" / "__init__.py").touch()
    (folder / "requirements").mkdir()
    (folder / "requirements" / "common.txt").write_text("orjson>=3.11.6 # fast\n\n# torch\n")
    return folder


def test_a_graft_has_the_kernels_of_the_release(uv: FakeUv) -> None:
    environment = resolve("0.33.0@0.32.0", create=True)
    assert environment.describe() == (
        "graft vllm 0.33.0 over kernels 0.32.0 (cpu, torch 2.13.0+cpu, commit 4ba787ec9)"
    )
    assert environment.package
    assert (environment.package / "_C.abi3.so").read_text() == "CPU kernels"
    assert [path.name for path in environment.package.rglob("*.so")] == ["_C.abi3.so"]
    assert environment.frontends == ("python", "rust")
    assert resolve("0.33.0@0.32.0") == environment


def test_requirements_exclude_torch_and_cuda(uv: FakeUv) -> None:
    resolve("0.33.0@0.32.0", create=True)
    assert uv.required() == [("orjson>=3.11.6",)]


def test_new_operators_are_found(uv: FakeUv, monkeypatch: pytest.MonkeyPatch) -> None:
    environment = resolve("0.33.0@0.32.0", create=True)
    assert json.loads((folder_of(environment) / "operators.json").read_text()) == ["_C::old_one"]
    python = folder_of(environment) / "bin" / "python"
    python.parent.mkdir()
    python.write_text('#!/bin/sh\nfor last; do :; done\necho warning\necho "$last"\n')
    python.chmod(0o755)
    assert operators.lacking(environment) == {"_C::new_one": "ops.py"}


def test_a_tree_has_the_newest_kernels_by_default(uv: FakeUv, tree: Path) -> None:
    newest = next(lock.version for lock in locks.locks() if lock.device == "cpu")
    environment = resolve(f"tree:{tree}", create=True)
    assert (environment.kind, environment.tree, environment.kernels) == ("tree", tree, newest)
    assert resolve(f"tree:{tree}@0.30.0", create=True).kernels == "0.30.0"


def test_a_tree_is_read_each_time(uv: FakeUv, tree: Path) -> None:
    first = resolve(f"tree:{tree}@0.32.0", create=True)
    assert first.vllm_version == "0.32.0"
    (tree / "vllm" / "_version.py").write_text("__version__ = version = '0.34.0.dev7+gabc'\n")
    (tree / "vllm" / "parser.py").touch()
    second = resolve(f"tree:{tree}@0.32.0")
    assert second.vllm_version == "0.34.0.dev7"
    assert second.package
    assert (second.package / "parser.py").exists()
    assert first.fingerprint() != second.fingerprint()
    (known,) = store.stored()
    assert known.environment == second


def test_new_requirements_of_a_tree_are_installed(uv: FakeUv, tree: Path) -> None:
    resolve(f"tree:{tree}@0.32.0", create=True)
    resolve(f"tree:{tree}@0.32.0")
    assert uv.required() == [("orjson>=3.11.6",)]
    (tree / "requirements" / "common.txt").write_text("orjson\nfastuuid\n")
    resolve(f"tree:{tree}@0.32.0")
    assert uv.required()[1:] == [("orjson", "fastuuid")]


def test_the_bytecode_of_a_tree_is_in_the_environment(uv: FakeUv, tree: Path) -> None:
    environment = resolve(f"tree:{tree}@0.32.0", create=True)
    assert environment.package
    (line,) = (environment.package.parent / "vllm_harness_bytecode.pth").read_text().splitlines()
    assert str(folder_of(environment) / "bytecode") in line


def test_grafts_and_trees_are_for_cpu(uv: FakeUv, tree: Path) -> None:
    for spec in ("0.33.0@0.32.0", f"tree:{tree}"):
        with pytest.raises(UsageError, match="is for cpu"):
            resolve(spec, "cuda", create=True)


def test_the_hint_for_an_environment_that_is_not_made(tree: Path) -> None:
    for spec in ("0.33.0@0.32.0", f"tree:{tree}@0.32.0"):
        with pytest.raises(store.MissingEnvironmentError) as raised:
            resolve(spec)
        assert raised.value.hint == f"vllm-harness env create {spec}"


def test_kernels_without_a_lock_are_rejected(uv: FakeUv) -> None:
    with pytest.raises(UsageError, match=r"no lock for vLLM 0\.1\.0 on cpu"):
        resolve("0.33.0@0.1.0", create=True)
