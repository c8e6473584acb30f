"""The proxy for servers without middleware, run by a server interpreter in front of a small fake server."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from requests import ConnectionError

from vllm_harness._environments import resolve
from vllm_harness._environments.store import MissingEnvironmentError
from vllm_harness._exchange.endpoint import Endpoint
from vllm_harness._scripted.in_server.vllm_harness_names import SCRIPT_DIR
from vllm_harness._server.launch import IN_SERVER
from vllm_harness._server.leases.ports import lease_port

FAKE = """
import asyncio, json, os, sys, uvicorn

async def app(scope, receive, send):
    body = b""
    while True:
        message = await receive()
        body += message.get("body", b"")
        if not message.get("more_body"):
            break
    headers = {name.decode(): value.decode() for name, value in scope["headers"]}
    path, query = scope["raw_path"].decode(), scope["query_string"].decode()
    seen = {"method": scope["method"], "path": path, "query": query, "headers": headers}
    seen["body"] = body.decode()
    status = 418 if scope["path"] == "/teapot" else 200
    await send({"type": "http.response.start", "status": status, "headers": [(b"x-from", b"vllm")]})
    if scope["path"] == "/endless":
        left = asyncio.ensure_future(receive())
        while not left.done():
            await send({"type": "http.response.body", "body": b"tick\\n", "more_body": True})
            await asyncio.sleep(0.05)
        open(sys.argv[1] + ".new", "w").write(left.result()["type"])
        os.rename(sys.argv[1] + ".new", sys.argv[1])
    await send({"type": "http.response.body", "body": json.dumps(seen).encode()})

uvicorn.run(app, uds=sys.argv[sys.argv.index("--uds") + 1], log_level="warning", lifespan="off")
"""


class Proxied:
    """A running proxy.

    Attributes:
        endpoint: the address of the proxy.
        note: the file that the fake server writes when the client of an endless answer disconnects.
        process: the process of the proxy.
    """

    def __init__(self, endpoint: Endpoint, note: Path, process: subprocess.Popen[bytes]) -> None:
        self.endpoint = endpoint
        self.note = note
        self.process = process


@pytest.fixture
def proxied(tmp_path: Path) -> Iterator[Proxied]:
    try:
        python = resolve().python
    except MissingEnvironmentError:
        pytest.skip("there is no server environment")
    fake, note, lease = tmp_path / "fake.py", tmp_path / "note", lease_port()
    fake.write_text(FAKE)
    process = subprocess.Popen(
        [python, IN_SERVER / "vllm_harness_proxy.py", str(lease.port), python, fake, note],
        env={**os.environ, "PYTHONPATH": str(IN_SERVER), SCRIPT_DIR: str(tmp_path)},
        start_new_session=True,
    )
    endpoint = Endpoint(f"http://127.0.0.1:{lease.port}", request_s=60)
    try:
        wait_until_ready(endpoint)
        yield Proxied(endpoint, note, process)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        lease.release()


def wait_until_ready(endpoint: Endpoint) -> None:
    """Waits until the proxy answers, and its status is no longer 503."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            answer = endpoint.get("/health")
        except ConnectionError:
            time.sleep(0.05)
            continue
        if answer.ok:
            return
        assert answer.status_code == 503
        time.sleep(0.05)
    raise TimeoutError(endpoint.base_url)


def test_a_request_is_forwarded_unchanged(proxied: Proxied) -> None:
    answer = proxied.endpoint.request("PUT", "/a%20b?c=d%26e", data="body", headers={"x-mine": "1"})
    seen = answer.json()
    assert (seen["method"], seen["path"], seen["query"]) == ("PUT", "/a%20b", "c=d%26e")
    assert (seen["body"], seen["headers"]["x-mine"]) == ("body", "1")
    assert answer.headers["x-from"] == "vllm"
    assert proxied.endpoint.get("/teapot").status_code == 418


def test_an_answer_streams(proxied: Proxied) -> None:
    with proxied.endpoint.get("/endless", stream=True) as answer:
        assert next(answer.iter_lines(chunk_size=1)) == b"tick"


def test_a_script_reaches_the_server_in_the_body(proxied: Proxied) -> None:
    rule = {"name": "one", "takes": [[1, 2, 3]], "by_choice": True, "when": {}, "left": 1}
    proxied.endpoint.post("/vllm-harness/books/default", json={"rules": [rule]})
    body = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
    seen = proxied.endpoint.post("/v1/chat/completions", json=body).json()
    sent = json.loads(seen["body"])
    assert sent["vllm_xargs"]["harness_ids"] == [1, 2, 3]
    assert {name: sent[name] for name in body} == body


def test_a_disconnect_reaches_the_server(proxied: Proxied) -> None:
    with proxied.endpoint.get("/endless", stream=True) as answer:
        assert next(answer.iter_lines()) == b"tick"
    deadline = time.monotonic() + 60
    while not proxied.note.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert proxied.note.read_text() == "http.disconnect"


def test_many_concurrent_requests(proxied: Proxied) -> None:
    answers = [proxied.endpoint.get("/endless", stream=True) for _ in range(120)]
    assert all(next(answer.iter_lines()) == b"tick" for answer in answers)
    for answer in answers:
        answer.close()


def test_sigterm_stops_the_proxy_and_the_server(proxied: Proxied) -> None:
    proxied.process.terminate()
    proxied.process.wait(60)
    with pytest.raises(ConnectionError):
        proxied.endpoint.get("/health")
