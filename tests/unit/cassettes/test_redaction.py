"""Secrets in headers, bodies, streams and command lines are redacted, by pattern and by value."""

from __future__ import annotations

import base64
import json

import pytest

from vllm_harness._cassettes.answers import response_of
from vllm_harness._cassettes.format import (
    Cassette,
    Recorded,
    RecordedChunk,
    RecordedExchange,
    RecordedRequest,
    RecordedResponse,
    ToolOutput,
)
from vllm_harness._cassettes.writing import dumped
from vllm_harness._files.redaction import REDACTED, Redactor
from vllm_harness._protocol import Exchange

FILLER = "Zq7xW2nB9vK4"
TAIL = FILLER * 3
OF_THE_ENVIRONMENT = 'pass "phräse" of the env'

SECRETS = {
    "OpenAI": (f"sk-proj-{TAIL}", f"proj-{FILLER}"),
    "Anthropic": (f"sk-ant-api03-{TAIL}", f"api03-{FILLER}"),
    "Stripe": (f"sk_live_{TAIL}", f"live_{FILLER}"),
    "Hugging Face": (f"hf_{TAIL}", FILLER),
    "NVIDIA": (f"nvapi-{TAIL}", FILLER),
    "Groq": (f"gsk_{TAIL}", FILLER),
    "GitHub": (f"ghp_{TAIL}", FILLER),
    "GitHub, fine-grained": (f"github_pat_{TAIL}", FILLER),
    "GitLab": (f"glpat-{TAIL}", FILLER),
    "npm": (f"npm_{TAIL}", FILLER),
    "PyPI": (f"pypi-{TAIL}", FILLER),
    "Slack": (f"xoxb-1234567890-{TAIL}", FILLER),
    "a Slack hook": (f"https://hooks.slack.com/services/T0/B0/{TAIL}", FILLER),
    "AWS": ("AKIAQ7XW2NB9VK4ZQ7XW", "Q7XW2NB9VK4ZQ7XW"),
    "Google": (f"AIza{TAIL}", FILLER),
    "SendGrid": (f"SG.{TAIL}.{TAIL}", FILLER),
    "Telegram": (f"123456789:AA{TAIL}", FILLER),
    "a JSON web token": (f"eyJ{TAIL}.eyJ{TAIL}.{TAIL}", FILLER),
    "a bearer": (f"Authorization: Bearer {TAIL}", FILLER),
    "basic": (f"Authorization: Basic {base64.b64encode(TAIL.encode()).decode()}", "WnE3eFcy"),
    "a private key": (f"-----BEGIN RSA PRIVATE KEY-----\n{TAIL}\n-----END RSA PRIVATE KEY-----", FILLER),
    "a URL's password": (f"https://me:{FILLER}@host/v1", FILLER),
    "a URL's parameter": (f"https://host/v1?a=b&sig={TAIL}&c=d", FILLER),
    "a variable": (f"OTHER_API_KEY={FILLER}", FILLER),
    "a key of JSON": (json.dumps({"client_secret": FILLER}), FILLER),
    "a key of JSON in JSON": (json.dumps({"arguments": json.dumps({"password": FILLER})}), FILLER),
    "the environment's": (f"it is {OF_THE_ENVIRONMENT}!", OF_THE_ENVIRONMENT),
    "the environment's, as JSON": (json.dumps(OF_THE_ENVIRONMENT), "phr"),
}


def _redactor() -> Redactor:
    return Redactor([OF_THE_ENVIRONMENT])


@pytest.mark.parametrize("kind", SECRETS)
def test_no_secret_is_written(kind: str) -> None:
    text, secret = SECRETS[kind]
    event = f"data: {json.dumps({'type': 'x', 'delta': text})}\n\n".encode()
    stream = [
        RecordedChunk(at=n / 10, data=part.decode()) for n, part in enumerate((event[:40], event[40:], event))
    ]
    exchanges = (
        RecordedExchange(
            turn="body",
            outputs=(ToolOutput(call="c", output=text),),
            request=RecordedRequest(
                path="/v1/responses", headers={"User-Agent": text}, body={"input": [text]}
            ),
            response=RecordedResponse(status=200, body={"output": {text: [text]}}),
        ),
        RecordedExchange(
            turn="stream",
            request=RecordedRequest(path="/v1/responses", text=text),
            response=RecordedResponse(status=200, sse=tuple(stream), broken=text),
        ),
    )
    recorded = Recorded(command=("serve", text), variables={"X": text}, url=text)
    whole = Cassette(cassette=1, recorded=recorded, exchanges=exchanges, count=2)
    written = dumped(whole, _redactor())
    assert secret not in written.replace("\\n", "\n")
    assert REDACTED in written


def test_secret_headers_are_redacted_and_unknown_ones_dropped() -> None:
    headers = {
        "Authorization": FILLER,
        "X-API-Key": FILLER,
        "Cookie": FILLER,
        "X-Mine": FILLER,
        "Accept": "*/*",
    }
    request = RecordedRequest(path="/", headers=headers)
    response = RecordedResponse(
        status=200, headers={"Set-Cookie": FILLER, "Content-Type": "text/plain"}, text="x"
    )
    exchange = RecordedExchange(turn="t", request=request, response=response)
    written = dumped(Cassette(cassette=1, exchanges=(exchange,), count=1), _redactor())
    assert FILLER not in written
    for line in (
        "authorization: '[redacted]'",
        "x-api-key: '[redacted]'",
        "cookie: '[redacted]'",
        "accept: '*/*'",
    ):
        assert line in written
    assert "x-mine" not in written


@pytest.mark.parametrize("size", [1, 2, 3, 7, 50])
def test_a_secret_is_found_in_chunks_of_any_size(size: int) -> None:
    secret = f"sk-proj-{TAIL}"
    data = f'data: {{"text": "größe {secret} ☃ end"}}\n\n'.encode()
    pieces = [data[at : at + size] for at in range(0, len(data), size)]
    clean = Redactor().chunks(pieces)
    assert len(clean) == len(pieces)
    assert b"".join(clean).decode() == 'data: {"text": "größe sk-[redacted] ☃ end"}\n\n'


def test_a_secret_is_found_token_by_token() -> None:
    said = ["The key is sk-", "proj-Zq7xW2", "nB9vK4Zq7", "xW2nB9vK4, and ", "that is all."]
    events = [
        f"event: d\ndata: {json.dumps({'type': 'd', 'output_index': 0, 'delta': piece})}\n\n"
        for piece in said
    ]
    chunks = ((float(n), event.encode()) for n, event in enumerate(events))
    response = response_of(Exchange().answered(200, {"content-type": "text/event-stream"}, chunks))
    exchange = RecordedExchange(turn="t", request=RecordedRequest(path="/v1/responses"), response=response)
    written = dumped(Cassette(cassette=1, exchanges=(exchange,), count=1), _redactor())
    assert not any(piece in written for piece in ("proj-Zq7", "nB9vK4", "xW2nB9"))
    assert '"delta": "[redacted]"' in written
    assert '"delta": ", and "' in written
    assert written.count("event: d") == len(said)


def test_other_texts_stay() -> None:
    harmless = {
        "model": "qwen3",
        "tools": [{"name": "f", "parameters": {"properties": {"password": {"type": "string"}}}}],
        "logprobs": [{"token": "Hello", "bytes": [72], "logprob": -0.1}],
        "max_output_tokens": 12,
        "text": "The task-force asked whether the desk-clerk's token = 3; basic auth, bearer of news.",
        "id": "resp_0123456789abcdef0123456789abcdef",
        "call_id": "chatcmpl-tool-0123456789abcdef",
    }
    assert Redactor().value(harmless) == harmless
    assert Redactor().text(json.dumps(harmless)) == json.dumps(harmless)


def test_redacting_twice_changes_nothing() -> None:
    for text, _ in SECRETS.values():
        once = _redactor().text(text)
        assert _redactor().text(once) == once
