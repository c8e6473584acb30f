"""Tests the table of verdicts by version, and the version ranges that are written back to entries."""

from __future__ import annotations

from pathlib import Path

import pytest
from packaging.version import Version

from vllm_harness._defects.entry import Defect
from vllm_harness._defects.registry import load_defects
from vllm_harness._defects.repro.run import MeasuredRun
from vllm_harness._defects.repro.verdict import Measured, Reproduction, Verdict
from vllm_harness.extras.triage.table import FILE, Table, contradicted, specifier, write_versions

VERDICTS: dict[str, Verdict] = {
    "x": "reproduced",
    ".": "fixed",
    "-": "not applicable",
    "?": "other failure",
}


def row(letters: str) -> dict[Version, Verdict]:
    """Returns verdicts for the releases 0.22, 0.24, 0.26, 0.30 and 0.33."""
    versions = ("0.22.0", "0.24.0", "0.26.0", "0.30.0", "0.33.0")
    return {Version(version): VERDICTS[letter] for version, letter in zip(versions, letters, strict=True)}


@pytest.mark.parametrize(
    ("letters", "versions"),
    [
        ("xxxxx", ">=0.22"),
        ("xx...", ">=0.22,<0.26"),
        ("..xx.", ">=0.26,<0.33"),
        ("-?xxx", ">=0.26"),
        ("xx.xx", ">=0.22,!=0.26.*"),
        ("x?..-", ">=0.22,<0.26"),
        (".....", None),
        ("---??", None),
    ],
)
def test_verdicts_become_a_specifier(letters: str, versions: str | None) -> None:
    assert specifier(row(letters)) == versions


def measured(defect: str, version: str, verdict: Verdict) -> Measured:
    """Returns a row of the table with one verdict."""
    return Measured.of(defect, version, version, Reproduction(verdict))


def test_a_table_is_written_and_read(tmp_path: Path) -> None:
    cells = [
        measured("b", "0.32.0", "fixed"),
        measured("a", "0.9.0", "other failure"),
        measured("a", "0.32.0", "reproduced"),
        measured("a", "0.9.0", "not applicable"),
    ]
    table = Table.of(cells)
    assert table.versions == ("0.9.0", "0.32.0")
    assert table.verdicts == {"a": "-x", "b": " ."}
    table.write(tmp_path / "measured.yaml")
    assert Table.read(tmp_path / "measured.yaml") == table
    assert table.row("b") == {Version("0.32.0"): "fixed"}


def test_a_later_run_keeps_the_other_verdicts() -> None:
    before = [
        measured("a", "0.31.0", "reproduced"),
        measured("b", "0.31.0", "reproduced"),
        measured("gone", "0.31.0", "fixed"),
    ]
    later = [measured("b", "0.31.0", "fixed"), measured("b", "0.32.0", "fixed")]
    whole = Table.of(before).with_later(Table.of(later), kept={"a", "b"})
    assert whole == Table.of([before[0], *later])
    assert whole.verdicts == {"a": "x ", "b": ".."}


def test_contradictions_of_entries_are_found() -> None:
    defect = Defect.model_validate({"id": "a-defect", "title": "t", "class": "defect", "versions": "<0.26"})
    cells = [measured("a-defect", version, "reproduced") for version in ("0.24.0", "0.26.0")]
    wrong = contradicted({defect.id: defect}, Table.of([*cells, measured("a-defect", "0.30.0", "fixed")]))
    assert wrong == {"a-defect": {Version("0.26.0"): "reproduced"}}


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("id: a\nversions: <0.26\nactual: x\n", "id: a\nversions: '>=0.30'\nactual: x\n"),
        ("id: a\nlike: b\nfailures: []\n", "id: a\nlike: b\nversions: '>=0.30'\nfailures: []\n"),
    ],
)
def test_versions_are_written_into_the_entry(text: str, written: str, tmp_path: Path) -> None:
    (tmp_path / "a-defect.yaml").write_text(text)
    write_versions(Defect(id="a-defect", title="t", kind="defect"), ">=0.30", tmp_path)
    assert (tmp_path / "a-defect.yaml").read_text() == written


def test_a_run_resumes_after_a_truncated_line(tmp_path: Path) -> None:
    run = MeasuredRun(tmp_path)
    run.write(measured("a", "0.32.0", "fixed"))
    run.path.write_text(run.path.read_text() + '{"id": "b", "vl')
    assert set(run.verdicts()) == {("a", "0.32.0")}
    MeasuredRun(tmp_path).write(measured("b", "0.32.0", "reproduced"))
    assert set(run.verdicts()) == {("a", "0.32.0"), ("b", "0.32.0")}


def test_the_entries_agree_with_the_table() -> None:
    table = Table.read()
    assert FILE.is_file()
    assert set(table.verdicts) <= set(load_defects())
    assert contradicted(load_defects(), table) == {}
