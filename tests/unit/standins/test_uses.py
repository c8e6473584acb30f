"""The progress of a script: the engine writes it, the middleware reads it."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType

import pytest

from vllm_harness._scripted.in_server.vllm_harness_names import SCRIPT_DIR
from vllm_harness._server.launch import IN_SERVER


@pytest.fixture
def uses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The module, imported as a server imports it, with a temporary folder."""
    monkeypatch.syspath_prepend(str(IN_SERVER))
    monkeypatch.setenv(SCRIPT_DIR, str(tmp_path))
    return importlib.import_module("vllm_harness_uses")


@pytest.mark.parametrize(
    ("generated", "state", "position"),
    [(1, "running", 1), (2, "running", 2), (3, "done", 3), (4, "done", 3), (5, "overrun", 3)],
)
def test_the_state_follows_from_the_tokens(
    uses: ModuleType, generated: int, state: str, position: int
) -> None:
    progress = uses.GenerationProgress("1-1", 0, 0, 3)
    for token in range(generated):
        progress.generated(token)
    assert uses.read_statuses("1-1") == [
        {"take": 0, "choice": 0, "state": state, "position": position, "length": 3}
    ]
    assert uses.refusal("1-1") is None


def test_a_token_reported_twice_counts_once(uses: ModuleType) -> None:
    progress = uses.GenerationProgress("1-1", 0, 0, 3)
    for token in (0, 1, 1, 0):
        progress.generated(token)
    (status,) = uses.read_statuses("1-1")
    assert (status["state"], status["position"]) == ("running", 2)


def test_a_generation_without_tokens_has_no_status(uses: ModuleType) -> None:
    uses.GenerationProgress("1-1", 0, 0, 3)
    assert uses.read_statuses("1-1") == []
    assert uses.refusal("1-1") is None


@pytest.mark.parametrize("generated", [0, 2])
def test_a_refusal_is_the_status(uses: ModuleType, generated: int) -> None:
    progress = uses.GenerationProgress("1-1", 0, 1, 3)
    for token in range(generated):
        progress.generated(token)
    progress.refused({"position": generated, "length": 3, "token": 7})
    refused = {"take": 0, "choice": 1, "state": "refused", "position": generated, "length": 3, "token": 7}
    assert uses.refusal("1-1") == refused
    assert uses.read_statuses("1-1") == [refused]


def test_refused_uses_appear_immediately(uses: ModuleType) -> None:
    refused = uses.RefusedUses()
    assert refused.now() == set()
    uses.GenerationProgress("1-1", 0, 0, 1).generated(0)
    uses.GenerationProgress("1-20", 0, 0, 1).refused({"position": 0, "length": 1})
    assert refused.now() == {"1-20"}
    uses.GenerationProgress("2-1", 0, 0, 1).refused({"position": 0, "length": 1})
    assert refused.now() == uses.RefusedUses().now() == {"1-20", "2-1"}


def test_an_incomplete_line_is_not_a_refused_use(uses: ModuleType, tmp_path: Path) -> None:
    refused = uses.RefusedUses()
    with (tmp_path / uses.REFUSED_USES).open("ab", buffering=0) as file:
        file.write(b"1-1")
        assert refused.now() == set()
        file.write(b"7\n")
    assert refused.now() == {"1-17"}


def test_generations_are_sorted_by_take_and_choice(uses: ModuleType) -> None:
    for take, choice in ((10, 0), (2, 1), (2, 0)):
        uses.GenerationProgress("1-1", take, choice, 1).generated(0)
    uses.GenerationProgress("1-2", 0, 0, 1).refused({"position": 0, "length": 1})
    assert [(status["take"], status["choice"]) for status in uses.read_statuses("1-1")] == [
        (2, 0),
        (2, 1),
        (10, 0),
    ]
    assert uses.refusal("1-1") is None


def test_kept_prompts_are_not_progress(uses: ModuleType) -> None:
    assert uses.read_kept("1-1") == []
    uses.keep("1-1", 10, 0, [3, 4], {"top_k": 5})
    uses.keep("1-1", 2, 0, [1], {"top_k": 0})
    first, second = {"prompt": [1], "sampling": {"top_k": 0}}, {"prompt": [3, 4], "sampling": {"top_k": 5}}
    assert uses.read_kept("1-1") == [first, second]
    assert uses.read_statuses("1-1") == []


def test_a_forgotten_use_leaves_nothing(uses: ModuleType, tmp_path: Path) -> None:
    progress = uses.GenerationProgress("1-1", 0, 0, 3)
    progress.generated(0)
    uses.forget("1-1")
    progress.generated(1)  # the engine may still be running
    assert uses.read_statuses("1-1") == []
    assert not list((tmp_path / "uses").iterdir())
    uses.forget("1-2")
