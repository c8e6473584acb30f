"""Checks the constraints of `cases/constraints.yaml` over each API on all models except gpt-oss."""

from __future__ import annotations

import pytest

from tests.apis import Api
from tests.constraints import Constraints, Row, Saying, constraints_of, known_sayings

pytestmark = [
    pytest.mark.vllm_long,
    pytest.mark.vllm_standard,
    pytest.mark.vllm_scripted,
    pytest.mark.vllm_needs("tools", "structured_output"),
]


@pytest.mark.parametrize("row", constraints_of("responses"))
def test_constraints_of_responses(row: Row, constraints: Constraints) -> None:
    constraints.check("responses", row)


@pytest.mark.parametrize("row", constraints_of("chat"))
def test_constraints_of_chat(row: Row, constraints: Constraints) -> None:
    constraints.check("chat", row)


@pytest.mark.parametrize("row", constraints_of("messages"))
def test_constraints_of_messages(row: Row, constraints: Constraints) -> None:
    constraints.check("messages", row)


@pytest.mark.parametrize(("api", "row", "saying"), known_sayings())
def test_known_defects_of_constraints(api: Api, row: Row, saying: Saying, constraints: Constraints) -> None:
    constraints.check_known(api, row, saying)
