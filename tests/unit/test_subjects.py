"""The commit subjects that `scripts/subjects` accepts."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "subjects"


@pytest.mark.parametrize(
    ("subject", "problem"),
    [
        ("Report cost curves that jump at the end", ""),
        ("Pass the seed to each worker", ""),
        ("Merge branch 'x'", ""),
        ("A line of its length", "imperative"),
        ("Tests of the parser", "imperative"),
        ("Fixed the parser", "imperative"),
        ("report a curve", "capital letter"),
        ("Report a curve.", "full stop"),
        ("Report " + "x" * 66, "73 characters"),
    ],
)
def test_a_subject(subject: str, problem: str, tmp_path: Path) -> None:
    message = tmp_path / "COMMIT_EDITMSG"
    message.write_text(f"{subject}\n\nwhy.")
    done = subprocess.run([SCRIPT, message], capture_output=True, text=True)
    assert (done.returncode == 0) == (problem == "")
    assert problem in done.stderr
