"""Upstream tests that start no server run in the server's Python; here in this Python, without vLLM."""

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
    """A folder like upstream's root, with a conftest that must not be loaded."""
    tests = tmp_path / "tests"
    tests.mkdir()
    (tests / "__init__.py").touch()
    (tests / "conftest.py").write_text("raise AssertionError('the root conftest was loaded')\n")
    (tests / "utils.py").write_text("raise AssertionError('the root utils were loaded')\n")
    (tests / "test_own.py").write_text(FILE)
    (tests / "test_broken.py").write_text("import no_such_package\n")
    return tmp_path


def run(root: Path, *named: str) -> dict[str, tuple[str, str]]:
    """Runs the tests in files; returns for each test the outcome and the reason."""
    environment = Environment("installed", Path(sys.executable), "3", "0", "cpu", None)
    return {
        test: (result.outcome, result.why) for _, test, result in run_unit_tests(environment, root, named)
    }


def test_each_outcome_is_recorded_with_its_reason(root: Path) -> None:
    assert run(root, "tests/test_own.py") == {
        "test_right": ("passed", ""),
        "test_wrong": ("failed", "assert 1 == 2"),
        "test_with_a_server": ("skipped", "starts a server"),
        "test_hub": ("skipped", "needs a model from the hub"),
        "test_expected": ("skipped", "upstream expects it to fail: not yet"),
    }


def test_a_keyword_selects_unit_tests_too(root: Path) -> None:
    assert run(root, "-k", "right", "tests/test_own.py") == {"test_right": ("passed", "")}


def test_a_file_that_cannot_be_imported_fails_alone(root: Path) -> None:
    outcomes = run(root, "-k", "right", "tests/test_broken.py", "tests/test_own.py")
    assert outcomes["test_right"] == ("passed", "")
    assert outcomes[""] == ("failed", "ModuleNotFoundError: No module named 'no_such_package'")


def test_an_error_of_pytest_is_reported(root: Path) -> None:
    (outcome, why), *_ = run(root, "tests/test_missing.py").values()
    assert outcome == "failed"
    assert "tests/test_missing.py" in why
