"""The record of an exchange, its twin (the same request, streamed or not), and its findings."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import urlsplit

import pytest

from vllm_harness._protocol import Exchange, Finding
from vllm_harness._protocol.conversation.exchange import Chunk
from vllm_harness._protocol.core.findings import Severity
from vllm_harness._runs.records import Arrival, GenerationRecord, Piece
from vllm_harness._testing.cases import Noted
from vllm_harness._testing.exchanges import exchange_of, record_of_seen, with_twins
from vllm_harness._testing.traffic import SeenExchange


def seen(name: str, *chunks: bytes, body: Any = None, **more: Any) -> SeenExchange:
    """An exchange whose chunks arrived 0.1 s apart."""
    path = urlsplit("http://127.0.0.1:8000/v1/chat/completions?a=1")
    content = b"" if body is None else json.dumps(body).encode()
    headers = {"Authorization": "Bearer x", "Accept": "*/*"}
    return SeenExchange(
        Exchange(path=f"{path.path}?{path.query}"),
        id=name,
        url=path,
        sent_headers=headers,
        content=content,
        at=5.0,
        status=200,
        chunks=[Chunk(0.1 * number, chunk) for number, chunk in enumerate(chunks, start=1)],
        **more,
    )


STREAMED = {"content-type": "text/event-stream; charset=utf-8"}


def test_a_stream_has_its_chunks_and_its_tokens() -> None:
    text = "data: ü€\n\n".encode()
    generations = [GenerationRecord(prompt=(Piece(ids=(1,), text="a"),)), GenerationRecord(choice=1)]
    record = record_of_seen(
        seen("1", text[:7], text[7:], b"\xc3", headers=STREAMED, seconds=0.35), "t", "c", generations
    )
    assert record.stream == (
        Arrival(after=0.1, text="data: "),
        Arrival(after=0.2, text="ü€\n\n"),
        Arrival(after=0.3, text=""),
        Arrival(after=0.3, text="\ufffd"),
    )
    assert record.answer is None
    assert (record.prompt, record.further) == ((Piece(ids=(1,), text="a"),), (GenerationRecord(choice=1),))
    assert (record.path, record.seconds) == ("/v1/chat/completions?a=1", 0.35)
    assert record.headers == {"Authorization": "[redacted]", "Accept": "*/*"}


@pytest.mark.parametrize(
    ("chunks", "answer"),
    [((b'{"a":', b"1}"), {"a": 1}), ((b"no json",), "no json"), ((), None), ((b"\xff",), "\ufffd")],
)
def test_a_body_is_json_if_it_can_be(chunks: tuple[bytes, ...], answer: Any) -> None:
    assert record_of_seen(seen("1", *chunks), "t", "c").answer == answer


def test_a_long_body_is_truncated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vllm_harness._runs.exchanges.LONGEST_BODY", 8)
    assert record_of_seen(seen("1", b'"0123456', b'789"'), "t", "c").answer == '"0123456... 4 bytes more'
    stream = record_of_seen(seen("1", b"01234", b"56789", headers=STREAMED), "t", "c").stream
    assert [piece.text for piece in stream] == ["01234", "... more than 8 bytes"]


def test_twins_send_the_same_request_streamed_and_not() -> None:
    bodies = [
        {"input": "a"},
        {"input": "a", "stream": True},
        {"input": "b", "stream": True, "stream_options": {}},
        {"input": "a"},
        {"input": "b"},
        "no object",
    ]
    records = [record_of_seen(seen(str(n), body=body), "t", "c") for n, body in enumerate(bodies)]
    assert [record.twin for record in with_twins(records)] == ["1", "0", "4", "", "2", ""]


def test_a_finding_names_the_exchange_of_its_answer() -> None:
    finding = Finding("RS101", Severity.ERROR, 0, "$", "wrong")
    exchanges = [seen("1", b'{"id":"resp_a"}'), seen("2", b'{"id":"resp_b"}'), seen("3")]
    assert exchange_of(Noted(finding, "resp_a"), exchanges) == "1"
    assert exchange_of(Noted(finding), exchanges) == "2"
    assert exchange_of(Noted(finding), exchanges[2:]) == ""
