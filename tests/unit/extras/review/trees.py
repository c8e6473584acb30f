"""Small checkouts of something that looks like vLLM, for tests that run no vLLM."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

FILES = {
    "vllm/__init__.py": "",
    "vllm/engine.py": "",
    "vllm/tool_parsers/__init__.py": '_TOOL_PARSERS_TO_REGISTER = {"hermes": ("hermes", "Hermes")}',
    "vllm/tool_parsers/hermes.py": "class Hermes: ...",
    "docs/index.md": "# Old",
}


def tree_of(folder: Path) -> Path:
    """A checkout with one commit."""
    folder.mkdir()
    git(folder, "init", "-q", "-b", "main")
    commit(folder, FILES)
    return folder


def commit(tree: Path, files: Mapping[str, str]) -> None:
    """Writes files and commits them."""
    write(tree, files)
    git(tree, "add", "-A")
    git(tree, "-c", "user.name=a", "-c", "user.email=a@example.com", "commit", "-q", "-m", "Change")


def write(tree: Path, files: Mapping[str, str]) -> None:
    """Writes files into a tree."""
    for name, text in files.items():
        path = tree / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def git(tree: Path, *arguments: str) -> str:
    """Runs git in a tree."""
    command = ["git", "-C", str(tree), *arguments]
    return subprocess.run(command, text=True, check=True, capture_output=True).stdout.strip()
