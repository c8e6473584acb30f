"""Working trees of vLLM have a version and a commit; environments link to them without changing them."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from vllm_harness._environments import Environment
from vllm_harness._environments.tree import Tree
from vllm_harness._errors import UsageError

WRITTEN = "__version__ = version = '0.33.0'\n__commit_id__ = commit_id = 'g4ba787ec9'\n"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Makes a working tree with sources, a compiled library and bytecode."""
    folder = tmp_path / "src" / "vllm-tree"
    for name in ("__init__.py", "_C.abi3.so", "sub/__init__.py", "sub/parser.py", "__pycache__/x.pyc"):
        path = folder / "vllm" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    return folder


def git(folder: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false"]
    answer = subprocess.run(
        ["git", "-C", folder, *identity, *arguments], check=True, capture_output=True, text=True
    )
    return answer.stdout.strip()


@pytest.fixture
def checkout(source: Path) -> Path:
    git(source, "init", "-q")
    git(source, "add", ".")
    git(source, "commit", "-qm", "one")
    return source


def test_a_folder_without_vllm_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is not a working tree of vLLM"):
        Tree.at(tmp_path)


def test_a_source_distribution_has_version_and_commit(source: Path) -> None:
    (source / "vllm" / "_version.py").write_text(WRITTEN)
    assert Tree.at(source) == Tree(source, "0.33.0", "4ba787ec9")


def test_the_version_of_a_checkout_comes_from_its_tags(checkout: Path) -> None:
    assert Tree.at(checkout).version is None
    git(checkout, "tag", "v0.33.0")
    assert Tree.at(checkout) == Tree(checkout, "0.33.0", git(checkout, "rev-parse", "--short=9", "HEAD"))
    git(checkout, "commit", "-q", "--allow-empty", "-m", "two")
    assert Tree.at(checkout).version == "0.33.1.dev1"


def test_the_commit_of_a_changed_tree_says_so(checkout: Path) -> None:
    (checkout / "vllm" / "sub" / "parser.py").write_text("changed = True\n")
    commit = Tree.at(checkout).commit
    assert commit == git(checkout, "rev-parse", "--short=9", "HEAD") + "+changes"


def test_a_surrounding_repository_is_ignored(checkout: Path) -> None:
    inner = checkout / "unpacked"
    (inner / "vllm").mkdir(parents=True)
    (inner / "vllm" / "__init__.py").touch()
    assert Tree.at(inner).commit is None


def test_links_leave_out_libraries_and_bytecode(source: Path, tmp_path: Path) -> None:
    package = tmp_path / "package"
    before = sorted(source.rglob("*"))
    Tree.at(source).link(package, "0.33.0")
    assert {path.name for path in package.iterdir()} == {"__init__.py", "sub", "_version.py"}
    assert (package / "sub").resolve() == source / "vllm" / "sub"
    assert "'0.33.0'" in (package / "_version.py").read_text()
    assert "(0, 33, 0)" in (package / "_version.py").read_text()
    assert sorted(source.rglob("*")) == before


def test_links_follow_new_and_removed_files(source: Path, tmp_path: Path) -> None:
    package = tmp_path / "package"
    Tree.at(source).link(package, "0.33.0")
    (package / "_C.abi3.so").touch()
    (source / "vllm" / "new.py").touch()
    (source / "vllm" / "__init__.py").rename(source / "vllm" / "old.py")
    Tree(source, None, None).link(package, "0.33.0")
    assert {path.name for path in package.iterdir()} == {
        "old.py",
        "new.py",
        "sub",
        "_version.py",
        "_C.abi3.so",
    }


def test_the_fingerprint_follows_every_python_file(source: Path, tmp_path: Path) -> None:
    package = tmp_path / "package"
    Tree.at(source).link(package, "0.33.0")
    environment = Environment(
        "tree", tmp_path / "bin/python", "3.11.7", "0.33.0", "cpu", "2.13.0+cpu", package=package
    )
    seen = [environment.fingerprint()]
    (source / "vllm" / "sub" / "parser.py").write_text("changed = True\n")
    seen.append(environment.fingerprint())
    (source / "vllm" / "sub" / "parser.py").unlink()
    seen.append(environment.fingerprint())
    (tmp_path / "transformers-5.17.0.dist-info").mkdir()
    seen.append(environment.fingerprint())
    assert len(set(seen)) == len(seen)
    (source / "vllm" / "sub" / "__pycache__").mkdir()
    (source / "vllm" / "sub" / "__pycache__" / "parser.cpython-311.pyc").touch()
    (source / "vllm" / "sub" / ".#parser.py").symlink_to("someone@somewhere")
    assert environment.fingerprint() == seen[-1]
