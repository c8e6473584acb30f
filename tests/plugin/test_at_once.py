"""`--vllm-at-once`: forks of pytest share a real server and report like one process."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.plugin.test_rules import results, run
from vllm_harness._runs.reading import records
from vllm_harness._runs.records import ExchangeRecord, Outcome
from vllm_harness._runs.report.run import read_run


@pytest.mark.drawn("the plugin on a server", 3)
def test_forks_share_a_server(pytester: pytest.Pytester, pytestconfig: pytest.Config) -> None:
    """Each test runs once, and tests are reported in the order of collection, even if a fork is killed."""
    options = (
        "--vllm-model=qwen3",
        "--vllm-lane=scripted",
        "--vllm-at-once=2",
        "--vllm-output=run",
        "--vllm-report-all",
        "--junitxml=junit.xml",
        "-ojunit_family=xunit1",
    )
    result = run(pytester, pytestconfig, "test_at_once.py", *options)
    result.assert_outcomes(passed=64, failed=1, errors=1, warnings=1)
    result.stdout.fnmatch_lines_random(
        [
            "*script 'script 1' was never used*",
            "*the process that ran it ended before the test did*",
            "*UserWarning: of a fork*",
        ]
    )
    tests = list(results(result)["tests"])
    assert tests[:60] == [f"test_at_once.py::test_answer[scripted-qwen3-{n}]" for n in range(60)]
    assert len(tests) == 65
    _check_run(pytester.path / "run")
    cases = ElementTree.parse(pytester.path / "junit.xml").iter("testcase")
    processes = {
        case.attrib["name"]: prop.attrib["value"] for case in cases for prop in case.iter("property")
    }
    assert len(set(processes.values())) == 3
    assert processes["test_alone[scripted-qwen3]"] == processes["test_answer[scripted-qwen3-0]"]


def _check_run(folder: Path) -> None:
    """The run folder has the case and the exchange of every test, no matter which process ran the test."""
    read = read_run(folder)
    answers = sorted(f"test_at_once.py::test_answer[{number}]" for number in range(60))
    assert sorted(case.id for case in read.cases if "test_answer" in case.id) == answers
    assert [case.outcome for case in read.cases].count(Outcome.PASSED) == 63
    assert len(read.of(Outcome.FINDING)) == 2
    exchanges = [record for _, record in records(folder, {"exchange"}) if isinstance(record, ExchangeRecord)]
    assert sorted(exchange.case for exchange in exchanges) == answers
    assert len({exchange.id for exchange in exchanges}) == 60
    assert len(list(folder.glob("records-fork-*.jsonl"))) == 2
