"""Reports for CI about runs with hostile texts."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.unit.report.runs import QWEN3, case, every_outcome, run_in
from vllm_harness._runs.folder import RunWriter
from vllm_harness._runs.records import CaseRecord, ExchangeRecord, Outcome
from vllm_harness._runs.report.github import SHOWN, github
from vllm_harness._runs.report.junit import junit
from vllm_harness._runs.report.markdown import LISTED, markdown
from vllm_harness._runs.report.run import duration_s, read_run


def test_a_run_is_read_without_its_exchanges(tmp_path: Path) -> None:
    run = run_in(tmp_path, [case("test_a"), case("test_a", Outcome.FINDING)])
    with RunWriter(tmp_path, part="fork") as writer:
        writer.write(ExchangeRecord(id="1", at=0.0))
        writer.write(CaseRecord(id="b", target="elsewhere", outcome=Outcome.PASSED, started=5.0, seconds=9.0))
    read = read_run(tmp_path)
    assert [each.outcome for each in read.cases] == [Outcome.FINDING, Outcome.PASSED]
    assert list(read.targets) == [QWEN3.id, "elsewhere"]
    assert (duration_s(run), run.title(QWEN3.id)) == (10.0, "qwen3")


def test_junit_has_counts_and_escaped_texts(tmp_path: Path) -> None:
    text = junit(run_in(tmp_path, every_outcome()))
    (suite,) = ElementTree.fromstring(text)
    assert {key: suite.attrib[key] for key in ("tests", "failures", "errors", "skipped", "time")} == {
        "tests": "6",
        "failures": "1",
        "errors": "1",
        "skipped": "3",
        "time": "3.000",
    }
    cases = {each.attrib["name"].partition("[")[0]: each for each in suite.iter("testcase")}
    assert [child.tag for child in cases["test_passed"]] == ["properties"]
    skips = [(name, cases[name].find("skipped")) for name in ("test_known", "test_skipped", "test_merged")]
    assert [skip.attrib["type"] for _, skip in skips if skip is not None] == [
        "known defect",
        "skipped",
        "not judged",
    ]
    failure = cases["test_found"].find("failure")
    assert failure is not None
    assert "<script>alert(1)</script> ]]>" in (failure.text or "")
    assert "\\x00" in (failure.text or "")
    assert cases["test_found"].attrib["classname"] == "behaviours/test_a"


def test_markdown_keeps_hostile_text_in_code_spans(tmp_path: Path) -> None:
    text = markdown(run_in(tmp_path, every_outcome()), {"vllm-2": "It is *wrong*"})
    assert "| `scripted-qwen3` | `0.32.0 python` | 1 | 1 | 1 | 1 | 1 | 1 |" in text
    assert "## Not judged (1)\n\n- `vLLM took [2]`: 1" in text
    assert "- `vllm-2` `It is *wrong*`, cases: 1" in text
    assert "``" in text
    assert "\x1b" not in text
    assert not [line for line in text.splitlines() if line.startswith("::")]
    assert all("<script>" not in part for part in _outside_of_code(text))


def _outside_of_code(text: str) -> list[str]:
    return [part for line in text.splitlines() for part in line.split("`")[::2] if "``" not in line]


def test_markdown_truncates_lists_and_reports_a_missing_end(tmp_path: Path) -> None:
    cases = [case(f"test_{number}", Outcome.FINDING, reason="wrong") for number in range(LISTED + 7)]
    text = markdown(run_in(tmp_path, cases, end=None), {})
    assert "- ... and 7 more" in text
    assert "**The run has no end**" in text


def test_annotations_escape_line_ends(tmp_path: Path) -> None:
    lines = github(run_in(tmp_path, every_outcome())).splitlines()
    assert lines[1:] == [
        "::notice::cases that fail only by known defects: 1",
        "::warning::cases that were not judged: 1",
    ]
    assert lines[0].startswith("::error file=tests/behaviours/test_a.py,title=qwen3%3A behaviours/test_a::")
    assert "%0A::error::pwned%0D%0A" in lines[0]


def test_annotations_stop_at_the_limit_of_github(tmp_path: Path) -> None:
    cases = [case(f"test_{number}", Outcome.FINDING) for number in range(SHOWN + 3)]
    *errors, notice = github(run_in(tmp_path, cases)).splitlines()
    assert len(errors) == SHOWN
    assert notice == "::notice::3 more cases with findings; see the report"


@pytest.mark.parametrize("outcome", list(Outcome))
def test_each_outcome_is_counted(tmp_path: Path, outcome: Outcome) -> None:
    run = run_in(tmp_path, [case("test_a", outcome)])
    assert "| 1 |" in markdown(run, {})
    assert '<testcase classname="behaviours/test_a" name="test_a" time="0.500"' in junit(run)
