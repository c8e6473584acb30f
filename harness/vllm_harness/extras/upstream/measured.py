"""Combines the results of upstream's tests by file, with the reasons for skips, as YAML and as Markdown."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import yaml
from pydantic import Field, TypeAdapter

from vllm_harness._errors import UsageError
from vllm_harness._files.located_yaml import read_yaml
from vllm_harness._files.strict import StrictModel
from vllm_harness.extras.upstream.results import RESULTS, TestResult, counts

FILE = Path(__file__).with_name("measured.yaml")
_PLACE = re.compile(r" \(/[^)]*\)")
"""Matches the path of a module in Python's message about a failed import."""
_TESTS = TypeAdapter(dict[str, TestResult])
IMAGES = "an image model"
"""How the reason for a skip starts if the test needs a model that accepts images."""
_HEADING = "# What runs of vLLM's own tests measured. Made by `vllm-harness upstream table RUN... --write`.\n"


class MeasuredFile(StrictModel):
    """The counts for a test file: outcomes of tests that use a server, and of other tests (`unit_...`)."""

    tests: int = 0
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    defects: int = 0
    retries: int = 0
    unit_tests: int = 0
    unit_passed: int = 0


class WrongAnswers(StrictModel):
    """The results of tests that passed and then ran with wrong answers.

    Attributes:
        tried: the number of tests that ran with wrong answers.
        failed: the number of these tests that failed, as they should.
        any_answer: for each test that passes with any answer, the reason that its book states.
        passed: the tests that pass with any answer for no known reason.
        seconds: the duration of these runs in seconds, with right and wrong answers.
    """

    tried: int
    failed: int
    any_answer: dict[str, str] = Field(default_factory=dict)
    passed: tuple[str, ...] = ()
    seconds: float = 0

    @property
    def looking(self) -> int:
        """The number of tests that check the content of the answer."""
        return self.tried - len(self.any_answer)


class MeasuredUpstreamRun(StrictModel):
    """The results of one vLLM release's tests against one vLLM version.

    Attributes:
        tests: the release whose test files ran.
        vllm: the short version of the vLLM that served.
        seconds: the duration of the tests in seconds, without the runs that tried wrong answers.
        machine: the machine's CPU cores and memory.
        files: for each test file, by its path in `tests`, the counts.
        skipped: for each reason, the number of tests that use a server and were skipped for it.
        failures: for each failed test, the failure.
        newer: for each test without a server that needs a later vLLM, the feature that it needs.
        defects: for each known defect's id, the tests that showed the defect.
        retried: for each known defect's id, the number of tests that were retried because of the defect.
        wrong: the results with wrong answers; None if no wrong answers were tried.
    """

    tests: str
    vllm: str
    seconds: float
    machine: str = ""
    files: dict[str, MeasuredFile]
    skipped: dict[str, int] = Field(default_factory=dict)
    failures: dict[str, str] = Field(default_factory=dict)
    newer: dict[str, str] = Field(default_factory=dict)
    defects: dict[str, list[str]] = Field(default_factory=dict)
    retried: dict[str, int] = Field(default_factory=dict)
    wrong: WrongAnswers | None = None

    @property
    def total(self) -> MeasuredFile:
        """The sum of all files."""
        total: Counter[str] = Counter()
        for file in self.files.values():
            total.update(file.model_dump())
        return MeasuredFile(**total)

    @property
    def of_images(self) -> int:
        """The number of tests that were skipped because they need a model that accepts images."""
        return sum(number for why, number in self.skipped.items() if why.startswith(IMAGES))

    @property
    def share(self) -> float:
        """The share of tests that passed, among those that start a server for a text model."""
        return self.total.passed / max(1, self.total.tests - self.of_images)


def measured(folders: Sequence[Path]) -> list[MeasuredUpstreamRun]:
    """Reads the results of runs, and combines runs of the same tests against the same version, test by test.

    Args:
        folders: the folders of runs; if several runs have the same test, the last one in the list counts.

    Raises:
        UsageError: a folder was not written by `upstream run`.
    """
    combined: dict[tuple[str, str], dict[str, Any]] = {}
    for results in map(_results_in, folders):
        key = (results["tests"], results["short"])
        earlier = combined.setdefault(key, {"files": {}, "seconds": 0, "wrong_seconds": 0})
        files = dict(earlier["files"])
        for file, content in results["files"].items():
            files[file] = {"tests": {**files.get(file, {"tests": {}})["tests"], **content["tests"]}}
        measured_time = "wrong_seconds" if _tried_wrong_answers(results) else "seconds"
        times = {name: earlier[name] for name in ("seconds", "wrong_seconds")}
        times[measured_time] += results["seconds"]
        combined[key] = {**results, "files": files, **times}
    return list(map(_measured, combined.values()))


def _tried_wrong_answers(results: dict[str, Any]) -> bool:
    tests = [test for content in results["files"].values() for test in content["tests"].values()]
    return any(test["wrong"] for test in tests)


def _results_in(folder: Path) -> dict[str, Any]:
    path = folder / RESULTS
    if not path.is_file():
        raise UsageError(f"{folder} has no {RESULTS}", hint="give the folder of a run of `upstream run`")
    results: dict[str, Any] = json.loads(path.read_text())
    return results


def _measured(results: dict[str, Any]) -> MeasuredUpstreamRun:
    files = {
        file.removeprefix("tests/"): _TESTS.validate_python(content["tests"])
        for file, content in results["files"].items()
    }
    every = [(f"{file}::{name}", test) for file, tests in files.items() for name, test in tests.items()]
    tests = [(name, test) for name, test in every if test.server]
    return MeasuredUpstreamRun(
        tests=results["tests"],
        vllm=results["short"],
        seconds=round(results["seconds"], 1),
        machine=results["machine"],
        files={file: _file(list(of_file.values())) for file, of_file in files.items()},
        skipped=dict(Counter(test.why for _, test in tests if test.outcome == "skipped").most_common()),
        failures={name: _PLACE.sub("", test.why) for name, test in every if test.outcome == "failed"},
        newer={name: _PLACE.sub("", test.why) for name, test in every if test.outcome == "newer"},
        defects=_by_defect((test.why, name) for name, test in every if test.outcome == "defect"),
        retried=dict(Counter(test.retried_for for _, test in tests if test.retries and test.retried_for)),
        wrong=_wrong(tests, results["wrong_seconds"]),
    )


def _file(tests: Sequence[TestResult]) -> MeasuredFile:
    served = [test for test in tests if test.server]
    passed = sum(test.outcome == "passed" for test in tests if not test.server)
    return MeasuredFile(**counts(served), unit_tests=len(tests) - len(served), unit_passed=passed)


def _by_defect(shown: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    tests: dict[str, list[str]] = {}
    for defect, test in shown:
        tests.setdefault(defect, []).append(test)
    return tests


def _wrong(tests: Sequence[tuple[str, TestResult]], seconds: float) -> WrongAnswers | None:
    tried = [(name, test) for name, test in tests if test.wrong]
    if not tried:
        return None
    return WrongAnswers(
        tried=len(tried),
        failed=sum(not test.passes_with_any for _, test in tried),
        any_answer={name: test.any_answer or "" for name, test in tried if test.checks_form_only},
        passed=tuple(name for name, test in tried if test.passes_with_any and not test.checks_form_only),
        seconds=round(seconds, 1),
    )


def read(path: Path = FILE) -> list[MeasuredUpstreamRun]:
    """Reads the package's results file. Raises UsageError with the file, line and key if it is invalid."""
    return read_yaml(path).validated(list[MeasuredUpstreamRun])


def write(runs: Sequence[MeasuredUpstreamRun], path: Path = FILE) -> None:
    """Writes the package's results file."""
    text = yaml.safe_dump(
        [run.model_dump(mode="json", exclude_defaults=True) for run in runs],
        sort_keys=False,
        allow_unicode=True,
        width=110,
    )
    path.write_text(_HEADING + text)


def as_markdown(run: MeasuredUpstreamRun) -> str:
    """A section of a Markdown page with the results of one release's tests against one vLLM version."""
    total = run.total
    texts = f"{total.passed} of {total.tests - run.of_images} tests that start a server for a text model"
    unit = f"{total.unit_passed} of {total.unit_tests} that start none"
    lines = [
        f"## The tests of {run.tests} against {run.vllm}",
        "",
        f"{texts} ran and passed ({run.share:.0%}), and {unit}.",
        f"{_times(run)} on {run.machine}.",
        "",
        "| file | tests | passed | failed | skipped | defects | retries | unit tests |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
        *(_row(name, file) for name, file in sorted(run.files.items())),
        _row("all", total),
        "",
        *_listed("Skipped:", (f"{number}: {why}" for why, number in run.skipped.items())),
        *_listed("Failed:", (f"`{test}`: {why}" for test, why in run.failures.items())),
        *_listed("These need a later vLLM:", (f"`{test}`: {why}" for test, why in run.newer.items())),
        *_listed("Known defects:", (f"`{id_}`: {len(tests)} tests" for id_, tests in run.defects.items())),
        *_listed(
            "Retries because of known defects:",
            (f"`{id_}`: {number} tests" for id_, number in run.retried.items()),
        ),
    ]
    return "\n".join([*lines, *(_wrong_as_markdown(run.wrong) if run.wrong else ())])


def _times(run: MeasuredUpstreamRun) -> str:
    """The durations of the runs, in words."""
    wrong = run.wrong.seconds if run.wrong else 0
    times = ((run.seconds, ""), (wrong, " with wrong answers too"))
    return ", and ".join(f"{seconds / 60:.0f} minutes{what}" for seconds, what in times if seconds)


def _wrong_as_markdown(wrong: WrongAnswers) -> list[str]:
    failed, tried, looking = wrong.failed, wrong.tried, wrong.looking
    return [
        f"With a wrong answer {failed} of {tried} tests that passed failed ({failed / tried:.0%}); of those "
        f"that check the content, {failed} of {looking} ({failed / max(1, looking):.0%}).",
        "",
        *_listed(
            "These check only the form of an answer:",
            (f"`{test}`: {why}" for test, why in wrong.any_answer.items()),
        ),
        *_listed("These pass with any answer:", (f"`{test}`" for test in wrong.passed)),
    ]


def _row(name: str, file: MeasuredFile) -> str:
    figures = (file.tests, file.passed, file.failed, file.skipped, file.defects, file.retries)
    unit = f"{file.unit_passed} of {file.unit_tests}" if file.unit_tests else ""
    cells = (name, *(map(str, figures) if file.tests else [""] * len(figures)), unit)
    return f"| {' | '.join(cells)} |"


def _listed(heading: str, items: Iterable[str]) -> list[str]:
    lines = [f"- {' '.join(item.split()).replace('<', '&lt;')}" for item in items]
    return [heading, "", *lines, ""] if lines else []
