"""The recorded tokens of named requests, with a vocabulary of all bytes and two words."""

from __future__ import annotations

import asyncio
import importlib
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from vllm_harness._scripted.in_server.vllm_harness_names import SCRIPT_DIR
from vllm_harness._server.launch import IN_SERVER

WORDS = {256: "<|im_start|>", 257: " word"}


async def decode(ids: list[int]) -> str:
    """Decodes token ids as a tokenizer of bytes would."""
    parts = [WORDS[token].encode() if token in WORDS else bytes([token]) for token in ids]
    return b"".join(parts).decode(errors="replace")


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The module, imported as a server imports it, with a temporary folder."""
    monkeypatch.syspath_prepend(str(IN_SERVER))
    monkeypatch.setenv(SCRIPT_DIR, str(tmp_path))
    return importlib.import_module("vllm_harness_exchanges")


def generate(use: str, take: int, choice: int, length: int, generated: int) -> None:
    """Reports a generation as the engine does."""
    uses = importlib.import_module("vllm_harness_uses")
    progress = uses.GenerationProgress(use, take, choice, length)
    uses.keep(use, take, choice, [256, *b"user"], {})
    for position in range(generated):
        progress.generated(position)


def texts(exchanges: Any, name: str) -> list[tuple[int, list[str], list[str]]]:
    """The choice, prompt and output of each generation."""
    return [
        (each["choice"], *([piece["text"] for piece in each[side]] for side in ("prompt", "output")))
        for each in asyncio.run(exchanges.generations(name, decode))
    ]


def test_prompt_and_output_of_a_request(module: ModuleType) -> None:
    exchanges = module.Exchanges()
    exchanges.keep("a", module.NamedRequest("1-1", [[257, *"ü€".encode(), 257]], by_choice=True))
    assert texts(exchanges, "a") == []
    generate("1-1", 0, 0, 7, 7)
    prompt = ["<|im_start|>", "u", "s", "e", "r"]
    assert texts(exchanges, "a") == [(0, prompt, [" word", "ü", "€", " word"])]
    assert texts(exchanges, "unknown") == []


def test_a_truncated_generation_has_its_partial_output(module: ModuleType) -> None:
    exchanges = module.Exchanges()
    exchanges.keep("a", module.NamedRequest("1-1", [[257, *"ü".encode()]], by_choice=True))
    generate("1-1", 0, 0, 3, 2)
    assert [output for _, _, output in texts(exchanges, "a")] == [[" word", "\ufffd"]]


def test_generations_are_in_order(module: ModuleType) -> None:
    exchanges = module.Exchanges()
    exchanges.keep("a", module.NamedRequest("1-1", [[*b"a"], [*b"bc"]], by_choice=False))
    exchanges.keep("b", module.NamedRequest("1-2", [[*b"a"], [*b"bc"]], by_choice=True))
    for take in (0, 1):
        generate("1-1", take, 0, take + 1, take + 1)
        generate("1-2", 0, take, take + 1, take + 1)
    assert [(choice, output) for choice, _, output in texts(exchanges, "a")] == [
        (0, ["a"]),
        (0, ["b", "c"]),
    ]
    assert [(choice, output) for choice, _, output in texts(exchanges, "b")] == [
        (0, ["a"]),
        (1, ["b", "c"]),
    ]


def test_only_the_last_requests_are_kept(module: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "KEPT", 1)
    exchanges = module.Exchanges()
    generate("1-1", 0, 0, 1, 1)
    for name in "ab":
        exchanges.keep(name, module.NamedRequest("1-1", [[97]], by_choice=True))
    assert texts(exchanges, "a") == []
    assert texts(exchanges, "b") != []


def test_a_long_rest_is_one_piece(module: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SHOWN_TOKENS", 2)
    exchanges = module.Exchanges()
    exchanges.keep("a", module.NamedRequest("1-1", [[*b"abcd"]], by_choice=True))
    generate("1-1", 0, 0, 4, 4)
    assert [output for _, _, output in texts(exchanges, "a")] == [["a", "b", "cd"]]
