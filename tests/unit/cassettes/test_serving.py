"""Clients get answers from a cassette, also through a recording proxy."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.closing_server import certificate_in, closing_server
from tests.unit.cassettes.samples import PATHS, conversation, of, streamed
from vllm_harness._cassettes.comparing import compare
from vllm_harness._cassettes.format import Cassette
from vllm_harness._cassettes.reading import read
from vllm_harness._cassettes.serving import CassettePlayer
from vllm_harness._cassettes.writing import write
from vllm_harness._errors import UsageError
from vllm_harness._files.redaction import Redactor
from vllm_harness._protocol.samples import SAMPLES

RESPONSES = PATHS["responses"]
KEY = "sk-proj-Zq7xW2nB9vK4Zq7xW2nB9vK4"


def _whole() -> Cassette:
    return of(*conversation().exchanges, streamed("stream", {"input": "Hi"}, SAMPLES["text"].build()))


def _ask(player: CassettePlayer, body: Any, path: str = RESPONSES) -> str:
    found = player.take("POST", path, json.dumps(body).encode())
    return found if isinstance(found, str) else found.turn


def test_each_exchange_is_played_once() -> None:
    cassette = _whole()
    player = CassettePlayer(cassette, Redactor())
    ask, answer, stream = (each.request.body for each in cassette.exchanges)
    assert _ask(player, answer) == "answer"
    assert _ask(player, dict(reversed(ask.items()))) == "ask"
    assert player.left == ["stream"]
    assert _ask(player, ask) == f"no recorded POST {RESPONSES} is the same; the nearest is turn stream: " + (
        '$.stream: recorded true, requested nothing; $.input: recorded "Hi", requested "Weather in Paris?"; '
        f"$.tools: recorded nothing, requested {json.dumps(ask['tools'])}"
    )
    assert "the cassette has no unplayed POST /v1/other" in _ask(player, ask, "/v1/other")
    assert len(player.misses) == 2
    assert _ask(player, stream) == "stream"
    assert player.left == []


def test_requests_are_compared_without_their_secrets(tmp_path: Path) -> None:
    body = {"model": "m", "input": f"my key is {KEY}", "metadata": {"api_key": "x1y2z3"}}
    exchange = conversation().exchanges[0]
    exchange = exchange.model_copy(update={"request": exchange.request.model_copy(update={"body": body})})
    path = tmp_path / "a.yaml"
    write(of(exchange), path, Redactor())
    assert KEY not in path.read_text()
    assert _ask(CassettePlayer(read(path).cassette, Redactor()), body) == "ask"


@contextmanager
def _running(*arguments: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """Runs a `cassette` command that listens; yields its address and its process."""
    command = [sys.executable, "-m", "vllm_harness.cli.start", "cassette", *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        line = process.stderr.readline()
        match = re.match(r"(http://127\.0\.0\.1:\d+) ", line)
        assert match, line + process.stderr.read()
        yield match[1], process
    finally:
        process.kill()
        process.communicate()


def _end(process: subprocess.Popen[str], number: int = signal.SIGINT) -> tuple[int, str, str]:
    process.send_signal(number)
    out, told = process.communicate(timeout=60)
    return process.returncode, out, told


def test_a_proxy_records_what_a_client_gets(tmp_path: Path) -> None:
    cassette = _whole()
    slow = cassette.exchanges[-1]
    assert slow.response.sse is not None
    chunks = [chunk.model_copy(update={"at": 0.4 if n else 0.0}) for n, chunk in enumerate(slow.response.sse)]
    response = slow.response.model_copy(update={"sse": tuple(chunks)})
    cassette = of(*cassette.exchanges[:-1], slow.model_copy(update={"response": response}))
    played, recorded = tmp_path / "played.yaml", tmp_path / "recorded.yaml.gz"
    write(cassette, played, Redactor())
    headers = {"Authorization": f"Bearer {KEY}"}
    with (
        _running("replay", str(played), "--serve", "0", "--timed") as (upstream, server),
        _running("record", "--proxy", "0", "--upstream", upstream, "-o", str(recorded)) as (url, proxy),
        httpx2.Client(base_url=url, headers=headers, timeout=60) as client,
    ):
        for exchange in cassette.exchanges[:-1]:
            answer = client.post(exchange.request.path, json=exchange.request.body)
            assert answer.json() == exchange.response.body
        with client.stream("POST", RESPONSES, json=slow.request.body) as stream:
            answer_bytes = b"".join(stream.iter_raw())
        assert answer_bytes == b"".join(chunk.content for chunk in chunks)
        missing = client.post(RESPONSES, json={"input": "never recorded"})
        assert (missing.status_code, missing.json()["error"]["type"]) == (404, "not_in_the_cassette")
        code, out, _ = _end(proxy)
        assert (code, out) == (0, f"{recorded}: 4 exchanges\n")
        code, out, told = _end(server, signal.SIGTERM)
        assert (code, out) == (1, "exchanges 3, never played 0, misses 2\n")
        assert "the cassette has no unplayed GET /version" in told  # the proxy requests it
        assert "no recorded POST" in told or "the cassette has no unplayed POST" in told
    again = read(recorded).cassette
    assert [each.turn for each in again.exchanges] == ["t1", "t2", "t3", "t4"]
    assert again.exchanges[1].after == "t1"
    assert compare(cassette, of(*again.exchanges[:3])) == []
    assert {each.request.headers["authorization"] for each in again.exchanges} == {"[redacted]"}
    assert again.exchanges[2].response.sse is not None
    times = [chunk.at for chunk in again.exchanges[2].response.sse]
    assert times == sorted(times)
    assert times[-1] >= 0.4  # the upstream server sends the last chunk no earlier


@pytest.mark.parametrize("ends", ["killed", "left"])
def test_nothing_is_lost_if_the_client_leaves_or_the_proxy_is_killed(ends: str, tmp_path: Path) -> None:
    slow = streamed("t", {}, SAMPLES["text"].build())
    assert slow.response.sse is not None
    chunks = tuple(
        chunk.model_copy(update={"at": 60.0 if n > 2 else 0.0}) for n, chunk in enumerate(slow.response.sse)
    )
    slow = slow.model_copy(update={"response": slow.response.model_copy(update={"sse": chunks})})
    played, recorded = tmp_path / "played.yaml", tmp_path / "recorded.yaml"
    write(of(*conversation().exchanges, slow), played, Redactor())
    first = conversation().exchanges[0].request
    with (
        _running("replay", str(played), "--serve", "0", "--timed") as (upstream, server),
        _running("record", "--proxy", "0", "--upstream", upstream, "-o", str(recorded)) as (url, proxy),
        httpx2.Client(base_url=url, timeout=60) as client,
    ):
        client.post(first.path, json=first.body)
        with client.stream("POST", RESPONSES, json=slow.request.body) as stream:
            arriving = stream.iter_raw()  # in a variable: if it were deleted, the client would disconnect
            next(arriving)
            if ends == "killed":
                proxy.kill()
                proxy.communicate()
        if ends == "left":
            client.close()
            assert proxy.stderr is not None
            while "the client left" not in proxy.stderr.readline():
                pass
            _end(proxy)
        code, out, _ = _end(server)
        assert (code, out.splitlines()[1:]) == (1, ["turn answer was never played"])
    if ends == "killed":
        with pytest.raises(UsageError, match="count: missing at the end of the file"):
            read(recorded)
        with recorded.open("a") as file:
            file.write("count: 1\n")
        assert [each.turn for each in read(recorded).cassette.exchanges] == ["t1"]
    else:
        last = read(recorded).cassette.exchanges[-1].response
        assert (last.status, last.broken) == (200, "the client left")
        assert last.sse


def test_a_dead_server_is_recorded(tmp_path: Path) -> None:
    recorded = tmp_path / "a.yaml"
    with (
        _running("record", "--proxy", "0", "--upstream", "http://127.0.0.1:9", "-o", str(recorded)) as (
            url,
            proxy,
        ),
        httpx2.Client(base_url=url, timeout=60) as client,
    ):
        assert client.get("/v1/models").status_code == 502
        assert _end(proxy)[0] == 0
    response = read(recorded).cassette.exchanges[0].response
    assert response.status == 0
    assert "ClientConnectorError" in response.broken


@pytest.mark.parametrize("own_ca", [False, True])
def test_a_proxy_sends_each_request_once(
    own_ca: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It keeps no connection that the server may close, and repeats no request that got no answer."""
    recorded, certificate = tmp_path / "a.yaml", certificate_in(tmp_path) if own_ca else None
    if certificate:
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    with (
        closing_server(certificate) as upstream,
        _running(
            *("record", "--proxy", "0", "--upstream", upstream.endpoint.base_url, "-o", str(recorded))
        ) as (url, proxy),
        httpx2.Client(base_url=url, timeout=60) as client,
    ):
        upstream.requests.clear()  # of its version
        for answered in (client.get, client.post):
            assert [answered("/close/2").status_code for _ in range(2)] == [200, 200]
        for lost in (client.get, client.post):
            assert [lost(f"/{moment}/1").status_code for moment in ("close", "reset")] == [502, 502]
        assert upstream.requests == [1] * 8
        assert _end(proxy)[0] == 0
    statuses = [exchange.response.status for exchange in read(recorded).cassette.exchanges]
    assert statuses == [200] * 4 + [0] * 4


def _raw_answer(url: str, request_line: str) -> bytes:
    """Sends a request with a key as raw bytes; returns the whole answer."""
    headers = f"Host: a\r\nAuthorization: Bearer {KEY}\r\nConnection: close\r\n"
    with socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2])), timeout=60) as client:
        client.sendall(f"{request_line} HTTP/1.1\r\n{headers}\r\n".encode())
        return b"".join(iter(lambda: client.recv(65536), b""))


@pytest.mark.parametrize("port_of_upstream", ["", ":9"])
def test_a_proxy_refuses_a_target_that_is_not_a_path(port_of_upstream: str, tmp_path: Path) -> None:
    """Joined to the upstream's address, such a target could name another host, which would get the key."""
    recorded = tmp_path / "a.yaml"
    with socket.create_server(("127.0.0.1", 0)) as other:
        host = f"127.0.0.1:{other.getsockname()[1]}"
        targets = [
            *(f"http://{host}/v1/models", f"https://{host}", f"//{host}/x", f"@{host}", f"@{host}/x"),
            *(f"user:password@{host}/x", f":{host[10:]}", f":{host[10:]}/x", "abc://x/stolen"),
            *(f".{host}/x", "v1/models", "*", "?x", "#x", f"\\{host}/x", "http://[x/", "abc://x:y/"),
        ]
        requests = [
            *(f"GET {target}" for target in targets),
            *(f"CONNECT {target}" for target in (host, "x:y", "/v1/models", f"http://{host}/")),
            *("OPTIONS *", f"POST http://{host}/v1/responses"),
        ]
        upstream = f"http://127.0.0.1{port_of_upstream}"
        with _running("record", "--proxy", "0", "--upstream", upstream, "-o", str(recorded)) as (url, proxy):
            statuses = {line: _raw_answer(url, line).split(b" ")[1:2] for line in requests}
            code, out, lines = _end(proxy)
        other.setblocking(False)
        with pytest.raises(BlockingIOError):
            other.accept()
    assert [line for line, status in statuses.items() if status != [b"400"]] == []
    assert (code, out) == (0, f"{recorded}: 0 exchanges\n")
    assert "Traceback" not in lines
    assert KEY not in lines
    assert len(lines.splitlines()) >= len(requests)
