"""Writes COVERAGE.md, which shows for each listed behaviour whether a test checks it.

Run as `scripts/coverage`. pytest collects the tests without the harness's own plugin, so no server and no
environment is needed.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Collection, Mapping
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import yaml

from vllm_harness._defects.registry import Defects, find, load_defects
from vllm_harness._errors import HarnessError
from vllm_harness._scripted.families import load_families
from vllm_harness._testing import options
from vllm_harness._testing.defects import MARK

ROOT = Path(__file__).resolve().parents[1]
LIST, TABLE = ROOT / "tests/coverage.yaml", ROOT / "tests/COVERAGE.md"
SOURCES = ROOT / "tests/coverage_sources.yaml"
VLLM, HARMONY, STANDARD = "0.32.0", ("gpt-oss",), ("qwen3", "llama3.1")
"""The vLLM version and the models of a whole run on the scripted lane."""
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
MARK_OF_TEST = "pytest.mark.covers"
CHECKED, EXPECTED, OUT, OPEN = "checked", "expected failure only", "out", "open"
REGRESSION = "parser regression"


class CoverageError(HarnessError):
    """The list of behaviours, the marks of the tests and COVERAGE.md do not agree."""


@dataclass(frozen=True, order=True)
class Covering:
    """A test that covers a behaviour.

    Attributes:
        test: the file and name of the test.
        defects: the defects because of which a case fails on all models; empty if it should pass on one.
    """

    test: str
    defects: tuple[str, ...] = ()


@dataclass(frozen=True)
class Behaviour:
    """A listed behaviour.

    Attributes:
        title: a short description.
        out: why the behaviour is not tested; empty if a test should cover it.
        covering: the test cases that cover the behaviour.
        families: the parser families for which parser regression covers the behaviour.
    """

    title: str
    out: str
    covering: tuple[Covering, ...]
    families: tuple[str, ...] = ()

    @property
    def tests(self) -> list[str]:
        """The names of the tests that cover the behaviour."""
        return sorted({each.test for each in self.covering})

    @property
    def state(self) -> str:
        """`checked`, `expected failure only`, `parser regression`, `out` (with a reason) or `open`."""
        if not self.covering:
            return REGRESSION if self.families else OUT if self.out else OPEN
        return CHECKED if any(not each.defects for each in self.covering) else EXPECTED

    @property
    def cells(self) -> str:
        """The last two cells of the behaviour's row in COVERAGE.md."""
        if self.state != EXPECTED:
            tests = ", ".join(f"`{test}`" for test in self.tests)
            return f"{self.state} | {tests or ', '.join(self.families) or self.out}"
        defects = sorted({defect for each in self.covering for defect in each.defects})
        return f"{self.state}: {', '.join(defects)} | {', '.join(f'`{test}`' for test in self.tests)}"


@dataclass
class Collector:
    """A pytest plugin that records which behaviours each collected test covers."""

    covered: dict[str, set[Covering]] = field(default_factory=dict)
    defects: Defects = field(default_factory=load_defects)

    def pytest_configure(self, config: pytest.Config) -> None:
        """Registers the markers, which the harness's plugin would otherwise register."""
        for marker in options.MARKERS:
            config.addinivalue_line("markers", marker)

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Reads the marks of the collected tests."""
        for item in session.items:
            test = item.nodeid.split("[")[0].removeprefix("tests/")
            covering = Covering(test, failing_by(item, self.defects))
            for name in (name for mark in item.iter_markers("covers") for name in mark.args):
                self.covered.setdefault(name, set()).add(covering)


def failing_by(item: pytest.Item, defects: Defects) -> tuple[str, ...]:
    """Returns the defects that make a case fail on each of its models; empty if it should pass on one."""
    defect_ids = set[str]()
    for model in _models(item):
        of_model = [
            mark.args[0]
            for mark in item.iter_markers(MARK)
            if model in mark.kwargs.get("models", (model,))
            and find(mark.args[0], defects).holds_for(VLLM, model)
        ]
        if not of_model:
            return ()
        defect_ids.update(of_model)
    return tuple(sorted(defect_ids))


def _models(item: pytest.Item) -> list[str]:
    """Returns the models of a whole run for which a case's marks allow it to run."""
    models = [*HARMONY, *STANDARD]
    if item.get_closest_marker("vllm_harmony"):
        models = list(HARMONY)
    elif item.get_closest_marker("vllm_standard"):
        models = list(STANDARD)
    for mark in item.iter_markers("vllm_model"):
        models = [model for model in models if model in mark.args]
    return models


def collect(root: Path = ROOT) -> dict[str, set[Covering]]:
    """Maps behaviour ids to covering tests. Raises CoverageError if the tests cannot be collected."""
    collector = Collector()
    command = ["--collect-only", "-q", "-p", "no:vllm_harness", "-p", "no:cacheprovider"]
    with redirect_stdout(StringIO()) as output:
        places = [str(path) for path in with_marks(root)]
        code = pytest.main([*command, f"--rootdir={root}", *places], plugins=[collector])
    if code:
        errors = [line for line in output.getvalue().splitlines() if line.startswith("ERROR")]
        raise CoverageError("\n".join(["pytest cannot collect the tests", *errors]))
    return collector.covered


def with_marks(root: Path) -> list[Path]:
    """Returns the paths to collect: the test folders, and the files in tests/unit that use the mark."""
    unit = root / "tests" / "unit"
    folders = [path for path in sorted((root / "tests").iterdir()) if path.is_dir() and path != unit]
    return [*folders, *(path for path in sorted(unit.rglob("test_*.py")) if MARK_OF_TEST in path.read_text())]


def behaviours(
    listed: Mapping[str, Any], covered: Mapping[str, Collection[Covering]]
) -> dict[str, Behaviour]:
    """Returns the listed behaviours by id, each with the tests that cover it."""
    return {name: _behaviour(name, entry, covered) for name, entry in listed.items()}


def _behaviour(name: str, entry: Any, covered: Mapping[str, Collection[Covering]]) -> Behaviour:
    fields = entry if isinstance(entry, dict) else {"title": entry}
    covering = {*covered.get(name, ()), *covered.get(fields.get("as", ""), ())}
    families = tuple(fields.get("regression", ()))
    return Behaviour(fields["title"], fields.get("out", ""), tuple(sorted(covering)), families)


def problems(
    listed: Mapping[str, Behaviour],
    covered: Mapping[str, Collection[Covering]],
    complete: bool,
    sources: Collection[str] = (),
) -> list[str]:
    """Describes the problems: unknown ids, outdated reasons and, if `complete`, open behaviours.

    Args:
        listed: the listed behaviours, by id.
        covered: the ids in the marks, each with the tests that have the mark.
        complete: whether each behaviour must be covered or left out for a reason.
        sources: the ids in the source lists from which the behaviours were taken.
    """
    messages = [
        f"{name}: marked at {', '.join(sorted({each.test for each in covering}))}, but not in {LIST.name}"
        for name, covering in sorted(covered.items())
        if name not in listed
    ]
    messages += [
        f"{name}: covered by {', '.join(each.tests)}, but {LIST.name} excludes it: {each.out}"
        for name, each in listed.items()
        if each.covering and each.out
    ]
    known = load_families()
    messages += [
        f"{name}: there is no family {family!r}"
        for name, each in listed.items()
        for family in each.families
        if family not in known
    ]
    messages += [
        f"{name}: in {SOURCES.name}, but not in {LIST.name}" for name in sources if name not in listed
    ]
    if complete:
        messages += [
            f"{name}: neither covered nor excluded with a reason"
            for name, b in listed.items()
            if b.state == OPEN
        ]
    return messages


def render(listed: Mapping[str, Behaviour]) -> str:
    """Returns the text of COVERAGE.md."""
    number = Counter(each.state for each in listed.values())
    counts = ", ".join(
        f"{number[state]} {state}" for state in (CHECKED, EXPECTED, REGRESSION, OUT, OPEN) if number[state]
    )
    lines = [
        "# Behaviours and the tests that cover them",
        "",
        f"{len(listed)} behaviours: {counts}. `scripts/coverage` makes this file from coverage.yaml",
        "and the tests' marks; do not edit it. Checked: a case of a test should pass on vLLM "
        f"{VLLM}, on a model of the scripted lane.",
    ]
    for prefix, title in GROUPS.items():
        rows = [
            f"| {name} | {b.title} | {b.cells} |"
            for name, b in listed.items()
            if name.split("-")[0] == prefix
        ]
        lines += ["", f"## {title}", "", "| id | behaviour | state | tests |", "|---|---|---|---|", *rows]
    return "\n".join(lines) + "\n"


def main(arguments: list[str]) -> None:
    """Writes or checks COVERAGE.md. Raises CoverageError, which lists all problems."""
    parser = argparse.ArgumentParser(prog="scripts/coverage", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing; fail if COVERAGE.md is stale")
    parser.add_argument("--complete", action="store_true", help="fail if a behaviour is open")
    given = parser.parse_args(arguments)
    covered = collect()
    listed = behaviours(yaml.safe_load(LIST.read_text()), covered)
    sources = yaml.safe_load(SOURCES.read_text())
    messages, text = problems(listed, covered, given.complete, sources), render(listed)
    if not given.check:
        TABLE.write_text(text)
    elif not TABLE.exists() or TABLE.read_text() != text:
        messages.append(f"{TABLE.relative_to(ROOT)} is stale")
    if messages:
        raise CoverageError(
            "\n".join(messages),
            hint="run `scripts/coverage` to write COVERAGE.md; coverage.yaml lists the ids",
        )


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except HarnessError as error:
        sys.exit(f"error: {error}")
