"""What a model may say under a request's constraints: `cases/constraints.yaml`, over each API."""

from __future__ import annotations

import pytest

from tests.constraints import Constraints, covered

pytestmark = [
    pytest.mark.vllm_standard,
    pytest.mark.vllm_scripted,
    pytest.mark.vllm_needs("tools", "structured_output"),
]


@covered()
@pytest.mark.vllm_needs("responses")
def test_constraints_of_responses(constraints: Constraints) -> None:
    constraints.check("responses")


@covered()
@pytest.mark.vllm_needs("chat")
def test_constraints_of_chat(constraints: Constraints) -> None:
    constraints.check("chat")


@covered()
@pytest.mark.vllm_needs("messages")
def test_constraints_of_messages(constraints: Constraints) -> None:
    constraints.check("messages")
