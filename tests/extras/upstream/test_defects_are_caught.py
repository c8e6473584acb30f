"""vLLM's own tests, as the harness runs them, catch deliberate defects in a vLLM source tree."""

from __future__ import annotations

import subprocess
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.extras.upstream.test_upstream import upstream
from vllm_harness._environments import upstream as distribution
from vllm_harness._environments.installer import InstallError
from vllm_harness._files.locking import locked_for_making
from vllm_harness._files.paths import cache_dir
from vllm_harness._files.temporary import temporary_folder
from vllm_harness._terminal.status import quiet
from vllm_harness.extras.upstream.release_tests import fetch

RELEASE, KERNELS = "0.33.0", "0.32.0"
PATCHES = Path(__file__).with_name("defects")
PARTS = (f"vllm-{RELEASE}/vllm/", f"vllm-{RELEASE}/requirements/")


@dataclass(frozen=True)
class Caught:
    """The vLLM tests that catch a defect: a test file, and the expression for pytest's `-k`."""

    file: str
    chosen: str


RESPONSES = "tests/entrypoints/openai/responses"
CHAT = "tests/entrypoints/openai/chat_completion"
DEFECTS = {
    "truncated-stream-ends-with-completed": Caught(
        f"{RESPONSES}/test_serving_responses.py", "truncated_by_length"
    ),
    "responses-drop-reasoning": Caught(f"{RESPONSES}/test_simple.py", "test_reasoning_item"),
    "no-usage-at-the-end-of-a-stream": Caught(f"{CHAT}/test_chat_completion.py", "final_usage_chunk"),
    "streamed-call-ends-with-stop": Caught("tests/tool_use/test_tool_calls.py", "choice and hermes"),
    "previous-response-is-ignored": Caught(f"{RESPONSES}/test_stateful.py", "test_previous_response_id"),
    "streamed-call-has-no-id": Caught("tests/tool_use/test_tool_calls.py", "choice and hermes"),
}
pytestmark = [pytest.mark.vllm_slow, pytest.mark.timeout(1800)]  # each test starts a separate fork server


@pytest.fixture(scope="module")
def tree() -> Iterator[Path]:
    """vLLM's Python code as a working tree, in a fixed folder for which the environment is made."""
    folder = cache_dir() / "upstream" / f"tree-{RELEASE}"
    try:
        with locked_for_making(folder, quiet):
            if not folder.exists():
                archive = distribution.source(RELEASE, quiet)
                with temporary_folder(folder.parent) as half, tarfile.open(archive) as tar:
                    wanted = (each for each in tar if each.name.startswith(PARTS))
                    tar.extractall(half, members=wanted, filter="data")
                    (half / f"vllm-{RELEASE}").rename(folder)
            yield folder
    except InstallError as error:
        pytest.skip(f"needs a package index with vLLM's source distribution: {error.message}")


@contextmanager
def patched(tree: Path, defect: str) -> Iterator[None]:
    """Applies a defect to the tree, and reverts it at the end."""
    command = ["git", "apply", str(PATCHES / f"{defect}.patch")]
    subprocess.run(command, cwd=tree, check=True)
    try:
        yield
    finally:
        subprocess.run([*command, "--reverse"], cwd=tree, check=True)


def outcomes(tree: Path, caught: Caught) -> dict[str, str]:
    """The outcomes of the tests that catch a defect."""
    options = ("-k", caught.chosen, f"--vllm=tree:{tree}@{KERNELS}", "--vllm-device=cpu")
    results = upstream(fetch(RELEASE), caught.file, *options)
    tests = results["files"][caught.file]["tests"]
    return {test: result["outcome"] for test, result in tests.items() if result["outcome"] != "skipped"}


def test_every_patch_is_tried() -> None:
    assert {path.stem for path in PATCHES.glob("*.patch")} == DEFECTS.keys()


@pytest.mark.parametrize("defect", DEFECTS)
def test_tests_fail_with_the_defect_and_pass_without_it(defect: str, tree: Path) -> None:
    caught = DEFECTS[defect]
    with patched(tree, defect):
        assert "failed" in outcomes(tree, caught).values()
    right = outcomes(tree, caught)
    assert right
    assert {*right.values()} == {"passed"}
