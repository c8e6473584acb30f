"""Any value in any field of a chat request: no 5xx, errors in the usual format, the server keeps serving."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from requests import Response

from tests.case_files import cases
from tests.chat_api import FREE, HISTORY, Chat
from vllm_harness._exchange.server import VllmServer
from vllm_harness._protocol import Finding, Severity, validate_body
from vllm_harness._scripted.book import ScriptBook
from vllm_harness._scripted.in_server.vllm_harness_names import BOOK_HEADER
from vllm_harness._server.remote import RemoteServer
from vllm_harness._testing.fixtures import ScriptWriter

pytestmark = pytest.mark.vllm_scripted

VALUES: list[Any] = [
    *(None, True, False, 0, 1, -1, 2**63, -(2**63) - 1, 2**70, 0.5, -0.5, 1e308),
    *("", "x", "\u0000", "-1", "\ud83c\udfd4", "x" * 10_000, "\ud83c"),
    *([], [None], [[]], ["x"], [0], [-1], [2**70], [{}], [{"type": "x"}], list(range(300))),
    *({}, {"": None}, {"x": {}}, {"type": "x"}, {"type": "text"}, {"name": "x"}, {"x": "y" * 1000}),
    [[[[[[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]]]]]],
]


def with_value(request: Any, path: list[Any], value: Any) -> Any:
    """Returns a copy of the request with another value at a path."""
    changed = copy.deepcopy(request)
    inner = changed
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    return changed


def broken(body: Any) -> list[Finding]:
    """Returns what is wrong with an answer; the value that was sent decides whether it may be empty."""
    return [finding for finding in validate_body(body) if finding.severity is Severity.ERROR]


@pytest.fixture
def endless(vllm_server: VllmServer) -> Iterator[ScriptBook]:
    """A script book that answers any number of requests."""
    assert isinstance(vllm_server, RemoteServer)
    book = ScriptBook(vllm_server.endpoint, vllm_server.entry)
    book.script("Rain.", times=None)
    yield book
    book.close()


@pytest.mark.covers("VC-036", "VC-029", "VC-027")
@pytest.mark.timeout(120)
@pytest.mark.parametrize("case", cases("chat_fields"))
def test_any_value(case: dict[str, Any], chat: Chat, endless: ScriptBook, script: ScriptWriter) -> None:
    plain = {"model": chat.server.model, "messages": HISTORY, "tools": [FREE], "max_tokens": 2}
    request = {**plain, **case.get("beside", {})}
    sent = [with_value(request, case["path"], value) for value in VALUES]

    def post(body: Any) -> Response:
        return chat.post("/v1/chat/completions", body, **{BOOK_HEADER: endless.name})

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(post, sent))
    wrong = []
    for value, answer in zip(VALUES, answers, strict=True):
        shown = f"{str(value)[:60]!r}: {answer.status_code} {answer.text[:200]}"
        if answer.status_code >= 500:
            wrong.append(shown)
        elif answer.status_code >= 400:
            chat.check("check_body")(answer.json())
        elif not answer.text.startswith("data: "):
            wrong += [f"{shown}: {finding}" for finding in broken(answer.json())]
    assert not wrong, "\n".join(wrong)
    script("Served.")
    chat.body(max_tokens=20)
