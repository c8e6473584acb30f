"""Tests that start no server run in the server's own Python: here in this one, since these need no vLLM."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from vllm_harness._environments.spec import Environment
from vllm_harness.extras.upstream.unit_tests import run_unit_tests

FILE = """
import pytest
from tests.utils import VLLM_PATH, RemoteOpenAIServer


def test_right():
    assert VLLM_PATH.joinpath("tests").is_dir()


def test_wrong():
    assert 1 == 2


def test_with_a_server():
    RemoteOpenAIServer("a model", [])


def test_hub():
    raise OSError("We couldn't connect to 'https://huggingface.co' to load the files")


@pytest.mark.xfail(reason="not yet")
def test_expected():
    raise ValueError
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A folder as upstream's is, with a conftest that must not be loaded."""
    tests = tmp_path / "tests"
    tests.mkdir()
    (tests / "__init__.py").touch()
    (tests / "conftest.py").write_text("raise AssertionError('the root conftest was loaded')\n")
    (tests / "utils.py").write_text("raise AssertionError('the root utils were loaded')\n")
    (tests / "test_own.py").write_text(FILE)
    (tests / "test_broken.py").write_text("import no_such_package\n")
    return tmp_path


def run(root: Path, *named: str) -> dict[str, tuple[str, str]]:
    """Of each test its outcome, and why."""
    environment = Environment("installed", Path(sys.executable), "3", "0", "cpu", None)
    return {
        test: (result.outcome, result.why) for _, test, result in run_unit_tests(environment, root, named)
    }


def test_each_outcome_is_kept_with_its_reason(root: Path) -> None:
    assert run(root, "tests/test_own.py") == {
        "test_right": ("passed", ""),
        "test_wrong": ("failed", "assert 1 == 2"),
        "test_with_a_server": ("skipped", "starts a server"),
        "test_hub": ("skipped", "needs a model of the hub"),
        "test_expected": ("skipped", "upstream expects it to fail: not yet"),
    }


def test_a_choice_holds_for_them_too(root: Path) -> None:
    assert run(root, "-k", "right", "tests/test_own.py") == {"test_right": ("passed", "")}


def test_a_file_that_cannot_be_imported_fails_alone(root: Path) -> None:
    found = run(root, "-k", "right", "tests/test_broken.py", "tests/test_own.py")
    assert found["test_right"] == ("passed", "")
    assert found[""] == ("failed", "ModuleNotFoundError: No module named 'no_such_package'")


def test_what_keeps_pytest_from_running_is_told(root: Path) -> None:
    (outcome, why), *_ = run(root, "tests/test_missing.py").values()
    assert outcome == "failed"
    assert "tests/test_missing.py" in why
