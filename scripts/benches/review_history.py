"""Reviews the changes between two releases of vLLM, one changed parser file at a time, and prints a table.

    scripts/bench-review 0.31.0 0.32.0 --files internlm2,jamba

Each file of the later release is put into a copy of the earlier one, with the files from which it imports
names that the earlier release lacks, and `vllm-harness review` runs the parsers that reach it.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from vllm_harness._environments.resolve import resolve
from vllm_harness._files.paths import cache_dir
from vllm_harness.extras.review.imports import ModuleSource, Package

FOLDERS = ("tool_parsers", "reasoning", "parser", "parser/engine")
HEADINGS = ("file", "verdict", "cases", "regressed", "fixed", "worst", "defects that turned", "time")


def main() -> None:
    """Prints a row for each changed file."""
    parser = argparse.ArgumentParser(description="Reviews the changes between two releases of vLLM.")
    parser.add_argument("earlier")
    parser.add_argument("later", help="a release or a graft")
    parser.add_argument("--files", default="", help="only files with one of these words in their name")
    options = parser.parse_args()
    packages = [resolve(spec, device="cpu", create=True).package for spec in (options.earlier, options.later)]
    earlier, later = (package for package in packages if package is not None)
    words = options.files.split(",")
    files = [name for name in changed(earlier, later) if any(word in name for word in words)]
    tree = copied(earlier, options.earlier)
    print(f"| {' | '.join(HEADINGS)} |\n|{'---|' * len(HEADINGS)}", flush=True)
    for name in files:
        git(tree, "checkout", "-q", "--", ".")
        git(tree, "clean", "-q", "-f")
        for needed in with_needed(earlier, later, name):
            (tree / "vllm" / needed).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(later / needed, tree / "vllm" / needed)
        print(f"| {' | '.join(row(tree, options.earlier, name))} |", flush=True)
    git(tree, "checkout", "-q", "--", ".")


def changed(earlier: Path, later: Path) -> list[str]:
    """The parser files that both releases have, and that differ."""
    paths = (path for folder in FOLDERS for path in (earlier / folder).glob("*.py"))
    names = [path.relative_to(earlier).as_posix() for path in paths]
    both = [name for name in names if (later / name).is_file() and not name.endswith("__init__.py")]
    return sorted(name for name in both if (earlier / name).read_bytes() != (later / name).read_bytes())


def with_needed(earlier: Path, later: Path, name: str) -> list[str]:
    """A file, and the files from which it imports names that the earlier release lacks, and so on."""
    needed, pending = list[str](), [name]
    while pending:
        needed.append(pending.pop())
        source = ModuleSource("vllm." + needed[-1].removesuffix(".py").replace("/", "."), later / needed[-1])
        for imported in source.imports:
            file = Package(later).file(imported.module)
            is_module = (later / Package(later).file(f"{imported.module}.{imported.name}")).is_file()
            lacks = bool(imported.name) and not is_module and imported.name not in names_of(earlier / file)
            if lacks and file not in (*needed, *pending) and (later / file).is_file():
                pending.append(file)
    return needed


def names_of(path: Path) -> set[str]:
    """The words of a file; empty if there is no such file."""
    return set(re.findall(r"\w+", path.read_text())) if path.is_file() else set()


def copied(package: Path, version: str) -> Path:
    """A git repository with a release's Python, at a fixed path, so that its environment is made once."""
    tree = cache_dir() / "review-history" / f"vllm-{version}"
    if not (tree / ".git").is_dir():
        shutil.copytree(package, tree / "vllm", ignore=shutil.ignore_patterns("__pycache__", "*.so"))
        git(tree, "init", "-q")
        git(tree, "add", "-A")
        identity = ("-c", "user.name=history", "-c", "user.email=history@localhost")
        git(tree, *identity, "commit", "-q", "-m", version)
    return tree


def git(tree: Path, *arguments: str) -> None:
    """Runs git in the tree."""
    subprocess.run(["git", "-C", str(tree), *arguments], check=True)


def row(tree: Path, version: str, name: str) -> list[str]:
    """Reviews the change to one file, and returns the cells of its row."""
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        spec = f"tree:{tree}@{version}"
        program = str(Path(sys.executable).with_name("vllm-harness"))
        command = [program, "review", "--head", spec, "--parts", "in-process", "--output", folder]
        subprocess.run(command, stdout=subprocess.DEVNULL, check=False)
        review = json.loads(Path(folder, "review.json").read_text())
    part = next(iter(review["parts"]), {"judged": 0, "fixed": 0, "regressed": 0})
    kinds = [kind for cause in review["causes"] for kind in cause["kinds"]]
    turns = "; ".join(f"{turn['turn']} `{turn['id']}`" for turn in review["defects"])
    counts = [str(part[key]) for key in ("judged", "regressed", "fixed")]
    worst = kinds[0]["mismatch"] if kinds else ""
    return [f"`{name}`", review["verdict"], *counts, worst, turns, f"{time.monotonic() - started:.0f} s"]


if __name__ == "__main__":
    main()
