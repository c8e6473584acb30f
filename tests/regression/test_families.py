"""Each parser that vLLM registers has a family in families.yaml, or a reason why it has none."""

from __future__ import annotations

import pytest

from vllm_harness._environments import resolve
from vllm_harness._scripted.families import load_families, load_families_file
from vllm_harness._server.model_check import names_of

pytestmark = [pytest.mark.vllm_slow, pytest.mark.timeout(900)]


def test_every_parser_has_a_family_or_a_reason() -> None:
    names = names_of(resolve("0.32.0"))
    tools = {family.tool_parser for family in load_families().values()} - {None}
    reasoning = {family.reasoning_parser for family in load_families().values()} - {None}
    without = load_families_file().without_family
    assert tools | without.tool_parsers.keys() == names.tool_parsers
    assert reasoning | without.reasoning_parsers.keys() == names.reasoning_parsers
    assert len(tools) >= 50
    assert len(reasoning) >= 35
