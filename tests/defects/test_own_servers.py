"""Defects whose tests need a server of their own: other flags, a memory leak, a dead engine."""

from __future__ import annotations

import json

import psutil
import pytest

from tests.defects.conftest import Talk
from tests.defects.wire import TERMINAL, message_of, user
from tests.own_server import OwnServer
from vllm_harness._scripted.book import Raw

pytestmark = [
    pytest.mark.vllm_scripted,
    pytest.mark.vllm_standard,
    pytest.mark.vllm_needs("responses"),
    pytest.mark.vllm_model("qwen3"),
]

SMALL = ["--max-model-len", "4096"]
LONG = "and on " * 1000


@pytest.mark.covers("vllm-53284")
@pytest.mark.parametrize("stream", [False, True], ids=["body", "stream"])
def test_server_without_thinking_sends_content(stream: bool, own_server: OwnServer, talk: Talk) -> None:
    """By default, this server's chat template closes the reasoning, so the parser must not expect any."""
    kwargs = json.dumps({"enable_thinking": False})
    with talk(own_server(["--default-chat-template-kwargs", kwargs])) as (book, wire):
        book.script(Raw("The answer.<|im_end|>"))
        if stream:
            deltas = [c["choices"][0]["delta"] for c in wire.chat_stream("Go") if c["choices"]]
            content = "".join(delta.get("content") or "" for delta in deltas)
        else:
            content = message_of(wire.chat("Go"))["content"]
    assert content == "The answer."


@pytest.mark.covers("CO-24")
@pytest.mark.vllm_known_defect("parser-context-cannot-stream")
@pytest.mark.timeout(120)
def test_parser_context_streams(own_server: OwnServer, talk: Talk) -> None:
    """With this experimental setting, the answer must be events or a refusal, not a broken stream."""
    server = own_server(SMALL, {"VLLM_USE_EXPERIMENTAL_PARSER_CONTEXT": "1"})
    with talk(server) as (book, wire):
        book.script("Hello.")
        assert wire.stream("Hi")[-1]["type"] in TERMINAL


@pytest.mark.covers("CO-25")
@pytest.mark.vllm_known_defect("input-of-failed-requests-is-kept")
@pytest.mark.timeout(180)
def test_failed_requests_leave_nothing(own_server: OwnServer, talk: Talk) -> None:
    """20 failed requests of 5 MB each must not make the memory of the server grow."""
    thought = {"type": "reasoning", "id": "rs_1", "summary": []}
    answer = {"type": "message", "role": "assistant", "content": "Yes."}
    with talk(own_server(SMALL)) as (book, wire):
        process = psutil.Process(own_server(SMALL).pid)

        def fail(number: int) -> None:
            book.script("Hello.", name=f"failing {number}")
            text = f"{number} " + "x" * 5_000_000
            thoughts = {**thought, "content": [{"type": "reasoning_text", "text": text}]}
            history = [user("Hi"), thoughts, answer, user("Again")]
            assert not wire.post("responses", input=history, truncation=None).ok

        for number in range(4):
            fail(number)
        before = process.memory_info().rss
        for number in range(4, 24):
            fail(number)
        grown = (process.memory_info().rss - before) / 2**20
    assert grown < 50, f"{grown:.0f} MiB more after 20 failed requests of 5 MB each"


@pytest.mark.covers("vllm-40418", "vllm-38190")
@pytest.mark.vllm_known_defect("vllm-38190")
@pytest.mark.timeout(120)
def test_stream_tells_that_the_engine_died(own_server: OwnServer, talk: Talk) -> None:
    """Source: API reference, streaming events: a failed stream ends with response.failed or an error."""
    server = own_server(["--max-model-len", "8192"])
    with talk(server) as (book, wire):
        book.script(LONG, expect="truncated")
        with wire.open("Go on") as events:
            seen = [next(events)["type"] for _ in range(8)]
            for child in psutil.Process(server.pid).children(recursive=True):
                if "EngineCore" in " ".join(child.cmdline()):
                    child.kill()
            seen += [event["type"] for event in events]
        assert seen[-1] in {"response.failed", "error"}
