"""What the model may say under the constraints of `cases/constraints.yaml`, over each API."""

from __future__ import annotations

import pytest

from tests.apis import Api
from tests.constraints import Constraints, Row, Saying, covered, known_sayings

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


@pytest.mark.parametrize(("api", "row", "saying"), known_sayings())
def test_known_defects_of_constraints(api: Api, row: Row, saying: Saying, constraints: Constraints) -> None:
    constraints.check_known(api, row, saying)
