"""COVERAGE.md: each listed behaviour with the tests that cover it, or the reason why it is left out.

Run as `scripts/coverage`. Tests are collected as pytest collects them, but without the harness's own plugin,
so no server and no environment is needed.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import yaml

from vllm_harness.errors import HarnessError
from vllm_harness.testing import options

ROOT = Path(__file__).resolve().parents[1]
LIST, TABLE = ROOT / "tests/coverage.yaml", ROOT / "tests/COVERAGE.md"
GROUPS = {
    "VR": "vLLM: Responses",
    "VM": "vLLM: MCP and built-in tools",
    "VT": "vLLM: tool use",
    "VC": "vLLM: Chat Completions",
    "VA": "vLLM: Anthropic Messages",
    "LS": "llama-stack's verification tests",
    "GO": "gpt-oss compatibility test",
    "OR": "Open Responses compliance cases",
    "AG": "agentic-api",
    "CO": "Oddities of vLLM's code",
    "vllm": "Reported defects of vLLM's endpoints",
}
OPEN = "open"


class CoverageError(HarnessError):
    """The list, the marks and COVERAGE.md do not agree."""


@dataclass(frozen=True)
class Behaviour:
    """One listed behaviour.

    Attributes:
        title: what it is.
        out: why no test covers it; empty where one is to.
        tests: the tests that cover it.
    """

    title: str
    out: str
    tests: tuple[str, ...]

    @property
    def where(self) -> str:
        """The last cell of its row."""
        return ", ".join(f"`{test}`" for test in self.tests) or (f"out: {self.out}" if self.out else OPEN)


@dataclass
class Collector:
    """A pytest plugin that notes what each collected test covers."""

    covered: dict[str, set[str]] = field(default_factory=dict)

    def pytest_configure(self, config: pytest.Config) -> None:
        """The markers, which are otherwise the harness's plugin's to register."""
        for marker in options.MARKERS:
            config.addinivalue_line("markers", marker)

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Reads the marks."""
        for item in session.items:
            test = item.nodeid.split("[")[0].removeprefix("tests/")
            for name in (name for mark in item.iter_markers("covers") for name in mark.args):
                self.covered.setdefault(name, set()).add(test)


def collect(root: Path = ROOT) -> dict[str, set[str]]:
    """Ids and the tests that are marked with them. Raises CoverageError where tests cannot be collected."""
    collector = Collector()
    command = ["--collect-only", "-q", "-p", "no:vllm_harness", "-p", "no:cacheprovider"]
    with redirect_stdout(StringIO()) as output:
        code = pytest.main([*command, f"--rootdir={root}", str(root / "tests")], plugins=[collector])
    if code:
        errors = [line for line in output.getvalue().splitlines() if line.startswith("ERROR")]
        raise CoverageError("\n".join(["pytest cannot collect the tests", *errors]))
    return collector.covered


def behaviours(listed: Mapping[str, Any], covered: Mapping[str, set[str]]) -> dict[str, Behaviour]:
    """The list with the tests of each behaviour."""
    return {name: _behaviour(name, entry, covered) for name, entry in listed.items()}


def _behaviour(name: str, entry: Any, covered: Mapping[str, set[str]]) -> Behaviour:
    fields = entry if isinstance(entry, dict) else {"title": entry}
    tests = covered.get(name, set()) | covered.get(fields.get("as", ""), set())
    return Behaviour(fields["title"], fields.get("out", ""), tuple(sorted(tests)))


def problems(listed: Mapping[str, Behaviour], covered: Mapping[str, set[str]], complete: bool) -> list[str]:
    """What is wrong: unknown ids, reasons that no longer hold, and, if it is to be complete, what is open."""
    found = [
        f"{name}: marked at {', '.join(sorted(tests))}, and not in {LIST.name}"
        for name, tests in sorted(covered.items())
        if name not in listed
    ]
    found += [
        f"{name}: covered by {', '.join(each.tests)}, and {LIST.name} says why it is out: {each.out}"
        for name, each in listed.items()
        if each.tests and each.out
    ]
    if complete:
        found += [f"{name}: neither covered nor reasoned" for name, b in listed.items() if b.where == OPEN]
    return found


def render(listed: Mapping[str, Behaviour]) -> str:
    """The text of COVERAGE.md."""
    number = {"covered": 0, "out": 0, OPEN: 0}
    for each in listed.values():
        number["covered" if each.tests else "out" if each.out else OPEN] += 1
    counts = ", ".join(f"{count} {name}" for name, count in number.items() if count)
    lines = [
        "# Behaviours and the tests that cover them",
        "",
        f"{len(listed)} behaviours: {counts}. Made by `scripts/coverage` of coverage.yaml",
        "and the tests' marks; do not edit.",
    ]
    for prefix, title in GROUPS.items():
        rows = [
            f"| {name} | {b.title} | {b.where} |"
            for name, b in listed.items()
            if name.split("-")[0] == prefix
        ]
        lines += ["", f"## {title}", "", "| id | behaviour | tests |", "|---|---|---|", *rows]
    return "\n".join(lines) + "\n"


def main(arguments: list[str]) -> None:
    """Writes COVERAGE.md, or checks it. Raises CoverageError with everything that is wrong."""
    parser = argparse.ArgumentParser(prog="scripts/coverage", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing; fail where COVERAGE.md is stale")
    parser.add_argument("--complete", action="store_true", help="fail where a behaviour is open")
    given = parser.parse_args(arguments)
    covered = collect()
    listed = behaviours(yaml.safe_load(LIST.read_text()), covered)
    found, text = problems(listed, covered, given.complete), render(listed)
    if not given.check:
        TABLE.write_text(text)
    elif not TABLE.exists() or TABLE.read_text() != text:
        found.append(f"{TABLE.relative_to(ROOT)} is stale")
    if found:
        raise CoverageError("\n".join(found), hint="`scripts/coverage` makes it; coverage.yaml lists the ids")


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except HarnessError as error:
        sys.exit(f"error: {error}")
