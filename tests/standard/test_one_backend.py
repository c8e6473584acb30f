"""Constraints on a server with only the xgrammar backend; by default, vLLM falls back to other backends."""

from __future__ import annotations

from typing import Any

import pytest

from tests.chat_api import ASK
from tests.own_server import OwnServer
from vllm_harness._scripted.book import ScriptBook
from vllm_harness._server.remote import RemoteServer

pytestmark = [pytest.mark.vllm_standard, pytest.mark.vllm_scripted, pytest.mark.vllm_model("qwen3")]

WHOLE = {"anyOf": [{"type": "null"}, {"type": "integer"}]}
LARK = 'start: "SELECT " column\ncolumn: "a" | "b"\n'


@pytest.fixture
def server(own_server: OwnServer) -> RemoteServer:
    """A server that uses only the xgrammar backend."""
    return own_server(["--structured-outputs-config.backend", "xgrammar"])


@pytest.mark.covers("VC-007")
@pytest.mark.parametrize(
    ("constraint", "text"),
    [({"json": WHOLE}, "42"), ({"grammar": LARK}, "SELECT b")],
    ids=["a choice of schemas", "a Lark grammar"],
)
def test_constraint_that_xgrammar_enforces(constraint: dict[str, Any], text: str, book: ScriptBook) -> None:
    book.script(text, constrained=True)
    with book.client() as client:
        answer = client.chat.completions.create(
            model=book.entry.name, messages=ASK, extra_body={"structured_outputs": constraint}
        )
    assert answer.choices[0].message.content == text
