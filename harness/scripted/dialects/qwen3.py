"""Qwen3 in thinking mode: the hermes dialect, and always a `<think>` block, empty where nothing was thought.

Source: https://huggingface.co/Qwen/Qwen3-8B, "Advanced Usage: Switching Between Thinking and Non-Thinking
Modes via User Input": the block is always there, its content may be empty.
"""

from __future__ import annotations

from harness.scripted.dialects import hermes
from harness.scripted.dialects.dialect import Dialect
from harness.scripted.meaning import Meaning, Reasoning


def render(meaning: Meaning) -> str:
    """As hermes; with `enable_thinking` false the prompt already holds the empty block: use hermes there."""
    return hermes.render(_thoughtful(meaning))


def render_constrained(meaning: Meaning) -> str:
    """The same without blank lines after the thoughts: a grammar allows none."""
    return hermes.render(_thoughtful(meaning), gap="")


def _thoughtful(meaning: Meaning) -> Meaning:
    if any(isinstance(part, Reasoning) for part in meaning.parts):
        return meaning
    return Meaning((Reasoning(""), *meaning.parts))


DIALECT = Dialect("qwen3", "https://huggingface.co/Qwen/Qwen3-8B", render, render_constrained)
