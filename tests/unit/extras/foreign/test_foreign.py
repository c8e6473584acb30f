"""Recordings made by other tools: turns of agentic-api, VCR cassettes, HTTP archives."""

from __future__ import annotations

import base64
import gzip
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from tests.unit.cassettes.samples import CALL, conversation, of, response, streamed
from vllm_harness._cassettes.comparing import compare
from vllm_harness._cassettes.reading import read
from vllm_harness._errors import UsageError
from vllm_harness._files.redaction import Redactor
from vllm_harness._protocol.core.examples import as_sse
from vllm_harness._protocol.samples import SAMPLES
from vllm_harness.cli.main import app
from vllm_harness.extras.foreign import turns

EVENTS = SAMPLES["call"].build()
STREAM = as_sse(EVENTS)
BODY = response("resp_2", {**CALL, "id": "fc_9", "call_id": "call_9"})


def _turns() -> Any:
    lines = [f"{line}\n" for line in STREAM.split("\n")[:-1]]
    request = {
        "method": "POST",
        "path": "/v1/responses",
        "query_params": {},
        "body": {"model": "m", "stream": True},
    }
    headers = {"content-type": "text/event-stream; charset=utf-8"}
    return {
        "turns": [
            {
                "filename": "t1",
                "request": request,
                "response": {"headers": headers, "sse": lines, "status_code": 200},
            }
        ]
    }


def _vcr() -> Any:
    request = {"method": "POST", "uri": "https://api/v1/responses?x=1", "headers": {"A": ["b"]}, "body": "{}"}
    status = {"code": 200, "message": "OK"}
    plain = {"status": status, "headers": {}, "body": {"string": json.dumps(BODY)}}
    stream = {
        "status": status,
        "headers": {"Content-Type": ["text/event-stream"]},
        "body": {"string": STREAM},
    }
    other = {"request": {**request, "uri": "https://elsewhere/x"}, "response": plain}
    return {"interactions": [{"request": request, "response": each} for each in (plain, stream)] + [other]}


def _har() -> Any:
    request = {"method": "POST", "url": "https://api/v1/responses", "headers": [], "postData": {"text": "{}"}}
    packed = base64.b64encode(STREAM.encode()).decode()
    content = {"mimeType": "text/event-stream", "encoding": "base64", "text": packed}
    answers = [{"mimeType": "application/json", "text": json.dumps(BODY)}, content]
    return {
        "log": {
            "entries": [
                {"time": 120, "request": request, "response": {"status": 200, "headers": [], "content": each}}
                for each in answers
            ]
        }
    }


FORMS = {
    "turns.yaml": (yaml.safe_dump(_turns()), 1),
    "vcr.yaml": (yaml.safe_dump(_vcr()), 2),
    "archive.har": (json.dumps(_har(), indent="\t"), 2),
}


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("name", FORMS)
def test_read_and_validate(name: str, packed: bool, tmp_path: Path) -> None:
    text, count = FORMS[name]
    path = tmp_path / (f"{name}.gz" if packed else name)
    path.write_bytes(gzip.compress(text.encode()) if packed else text.encode())
    cassette = read(path).cassette
    assert len(cassette.exchanges) == count
    assert cassette.exchanges[-1].response.sse is not None
    for command in (["validate"], ["cassette", "replay"]):
        result = CliRunner().invoke(app, [*command, str(path)])
        assert result.exit_code == 0, result.output
    broken = text.encode().replace(b"response.completed", b"response.complete")
    bad = STREAM.replace("response.completed", "response.complete").encode()
    if name == "archive.har":
        broken = text.encode().replace(base64.b64encode(STREAM.encode()), base64.b64encode(bad))
    path.write_bytes(gzip.compress(broken) if packed else broken)
    for command in (["validate"], ["cassette", "replay"]):
        result = CliRunner().invoke(app, [*command, str(path)])
        assert result.exit_code == 1, result.output
        assert f"{path}:" in result.output


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        (
            "a.yaml",
            "turns:\n- filename: t1\n  request: {path: /v1/responses}\n",
            r"a\.yaml:2: turns\.0\.response: ",
        ),
        ("a.yaml", "turns:\n- request:\n    method: GET\n", r"a\.yaml:\d+: turns\.0\."),
        ("a.yaml", "turns: 3\n", r"a\.yaml:1: turns: "),
        ("a.yaml", "interactions:\n- request: 3\n  response: {}\n", r"a\.yaml:2: interactions\.0\.request: "),
        ("a.har", '{"log":\n {"entries": [}}', r"a\.har:2: not JSON"),
        ("a.har", '{"log": {}}', r"a\.har:1: log\.entries: "),
    ],
)
def test_errors_name_file_and_line(name: str, text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(UsageError, match=message):
        read(path)


def test_turns_round_trip(tmp_path: Path) -> None:
    cassette = of(*conversation().exchanges, streamed("streamed", {}, EVENTS))
    path, output = tmp_path / "a.yaml", tmp_path / "turns.yaml"
    path.write_text(turns.written(cassette, Redactor()))
    again = read(path).cassette
    assert [each.turn for each in again.exchanges] == ["ask", "answer", "streamed"]
    assert [each.request.body for each in again.exchanges] == [
        each.request.body for each in cassette.exchanges
    ]
    assert compare(cassette, again) == []
    result = CliRunner().invoke(
        app, ["cassette", "convert", str(path), "-o", str(output), "--format", "turns"]
    )
    assert result.exit_code == 0, result.output
    assert output.read_text() == path.read_text()
    ours = tmp_path / "ours.yaml.gz"
    assert CliRunner().invoke(app, ["cassette", "convert", str(path), "-o", str(ours)]).exit_code == 0
    assert read(ours).cassette.exchanges == again.exchanges
