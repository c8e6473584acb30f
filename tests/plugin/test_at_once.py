"""`--vllm-at-once`: forks of pytest that share a real server, with the reports of one process."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from tests.plugin.test_rules import results, run


def test_forks_share_a_server(pytester: pytest.Pytester, pytestconfig: pytest.Config) -> None:
    """Each test runs once and is reported in the order of collection, also where a fork is killed."""
    options = (
        "--vllm-model=qwen3",
        "--vllm-lane=scripted",
        "--vllm-at-once=2",
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
    assert tests[:60] == [f"test_at_once.py::test_what_is_said[scripted-qwen3-{n}]" for n in range(60)]
    assert len(tests) == 65
    cases = ElementTree.parse(pytester.path / "junit.xml").iter("testcase")
    processes = {
        case.attrib["name"]: prop.attrib["value"] for case in cases for prop in case.iter("property")
    }
    assert len(set(processes.values())) == 3
    assert processes["test_alone[scripted-qwen3]"] == processes["test_what_is_said[scripted-qwen3-0]"]
