"""The entry points: watched streams, known deviations, timing, and `vllm-harness validate`."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

import httpx2
import pytest
from openai import AsyncOpenAI, AsyncStream, OpenAI, Stream
from openai.types.chat import ChatCompletionChunk
from openai.types.responses import ResponseStreamEvent
from pydantic import ValidationError
from typer.testing import CliRunner

from tests.unit.protocol.recorded import STREAMS
from vllm_harness._errors import UsageError
from vllm_harness._files.located_yaml import YamlFileError
from vllm_harness._protocol import (
    KnownDeviation,
    ProtocolInputError,
    ProtocolViolation,
    Severity,
    apply_known,
    timing_facts,
    validate_stream,
    validate_stream_async,
    watch,
    watch_async,
)
from vllm_harness._protocol.core.examples import Edit, as_sse, edited
from vllm_harness._protocol.samples import SAMPLES
from vllm_harness.cli.main import app

BREAK: list[Edit] = [("set", "response.output_text.delta", "delta", "Bye")]


def _response(wire: str) -> httpx2.Response:
    return httpx2.Response(200, content=wire.encode(), request=httpx2.Request("POST", "http://localhost"))


def _sdk(events: list[dict[str, Any]], cast_to: Any = ResponseStreamEvent) -> Stream[Any]:
    return Stream(cast_to=cast_to, response=_response(as_sse(events)), client=OpenAI(api_key="none"))


@pytest.mark.parametrize("recorded", STREAMS[::5], ids=lambda recorded: recorded.name)
def test_watched_sdk_stream_has_the_findings_of_its_json(recorded: Any) -> None:
    watched = watch(_sdk(recorded.events))
    assert [event.type for event in watched] == [event["type"] for event in recorded.events]
    assert [f.code for f in watched.findings] == [f.code for f in validate_stream(recorded.events)]


def test_watch_raises_at_the_end() -> None:
    watched = watch(_sdk(edited(SAMPLES["text"].build(), BREAK)))
    seen = []
    with pytest.raises(ProtocolViolation, match="RS308") as raised:
        seen.extend(watched)
    assert len(seen) == len(SAMPLES["text"].build())
    assert raised.value.findings[0].code == "RS308"


def test_watch_collects_without_raising() -> None:
    with watch(_sdk(edited(SAMPLES["text"].build(), BREAK)), raises=False) as watched:
        assert watched.response.status_code == 200
        assert len(list(watched)) == 10
    assert [finding.code for finding in watched.findings] == ["RS308"]


def test_watch_accepts_chat_streams() -> None:
    events = SAMPLES["chat_two_calls"].build()
    assert len(list(watch(_sdk(events, ChatCompletionChunk)))) == len(events)


async def test_asynchronous_counterparts() -> None:
    async def events():  # type: ignore[no-untyped-def]
        for event in edited(SAMPLES["text"].build(), BREAK):
            yield event

    assert [finding.code for finding in await validate_stream_async(events())] == ["RS308"]
    answer = _response(as_sse(SAMPLES["text"].build()))
    stream = AsyncStream(cast_to=ResponseStreamEvent, response=answer, client=AsyncOpenAI(api_key="none"))  # type: ignore[var-annotated,arg-type]
    assert len([event async for event in watch_async(stream)]) == 10


def _known(code: str, versions: str = "<0.26", path: str = "") -> KnownDeviation:
    return KnownDeviation(
        code=code, reference="vllm#46940", versions=versions, note="status is null", path=path
    )


def test_known_findings_name_their_reference() -> None:
    events = edited(SAMPLES["call"].build(), [("set", "response.output_item.done#1", "item.status", None)])
    known = [_known("IT103"), _known("RS212", path="$.response.output[*].status")]
    found = validate_stream(events)
    assert {finding.known for finding in apply_known(found, known, "0.24.0")} == {"vllm#46940"}
    assert {finding.known for finding in apply_known(found, known, "0.26.0")} == {""}


def test_fixed_deviations_are_reported() -> None:
    known = [_known("IT103")]
    assert apply_known([], known, "0.24.0") == []
    gone = apply_known([], known, "0.24.0", exercised=["vllm#46940"])
    assert [(finding.code, finding.severity) for finding in gone] == [("KD101", Severity.ERROR)]
    assert apply_known([], known, "0.26.0", exercised=["vllm#46940"]) == []
    assert apply_known([], known, "0.25.1rc1+cpu", exercised=["vllm#46940"]) != []


@pytest.mark.parametrize(("code", "versions"), [("XX999", ""), ("IT103", "about 0.25")])
def test_invalid_known_deviation_is_rejected(code: str, versions: str) -> None:
    with pytest.raises(ValidationError, match=r"no rule has the code|not a version specifier"):
        _known(code, versions=versions)


def test_timing_facts() -> None:
    events = SAMPLES["raw_reasoning"].build()
    spread = timing_facts((number * 0.1, event) for number, event in enumerate(events))
    assert spread.incremental is True
    assert spread.first_event == 0
    assert spread.deltas == 4
    assert spread.largest_gap == pytest.approx(0.6)
    burst = timing_facts((5.0 + number * 0.001, event) for number, event in enumerate(events))
    assert burst.incremental is False
    assert timing_facts([]).first_event is None
    with pytest.raises(ValueError, match="backwards"):
        timing_facts([(1.0, events[0]), (0.5, events[1])])


# The command line.

run = CliRunner().invoke


def _file(folder: Path, name: str, text: str) -> str:
    path = folder / name
    path.write_text(text)
    return str(path)


def test_a_clean_capture_exits_0(tmp_path: Path) -> None:
    file = _file(tmp_path, "a.sse", as_sse(SAMPLES["text"].build()))
    result = run(app, ["validate", file])
    assert (result.exit_code, result.stdout.strip()) == (0, "0 error, 0 warning, 0 info")


FOREIGN = pytest.mark.extra("foreign")


@pytest.mark.parametrize("suffix", [".sse", ".jsonl", ".json", pytest.param(".yaml", marks=FOREIGN)])
def test_findings_exit_1_with_file_and_line(tmp_path: Path, suffix: str) -> None:
    events = edited(SAMPLES["text"].build(), BREAK)
    texts = {
        ".sse": as_sse(events),
        ".jsonl": "\n".join(map(json.dumps, events)),
        ".json": json.dumps({"request": {}, "events": events}),
        ".yaml": json.dumps(
            {
                "interactions": [
                    {
                        "request": {"uri": "http://x/v1/responses", "method": "POST", "parsed_body": {}},
                        "response": {"body": {"string": as_sse(events)}, "status": {"code": 200}},
                    }
                ]
            }
        ),
    }
    file = _file(tmp_path, f"a{suffix}", texts[suffix])
    result = run(app, ["validate", file])
    assert result.exit_code == 1
    line = {".sse": 19, ".jsonl": 7}.get(suffix, 1)
    assert f"{file}:{line}: event 6: RS308 error" in result.stdout


def test_formats_select_and_ignore(tmp_path: Path) -> None:
    file = _file(tmp_path, "a.sse", as_sse(edited(SAMPLES["text"].build(), BREAK)))
    sarif = json.loads(run(app, ["validate", file, "--format", "sarif"]).stdout)
    assert sarif["runs"][0]["results"][0]["ruleId"] == "RS308"
    assert sarif["runs"][0]["tool"]["driver"]["rules"][0]["id"] == "RS308"
    values = json.loads(run(app, ["validate", file, "--format", "json"]).stdout)
    assert [(value["code"], value["line"]) for value in values] == [("RS308", 19)]
    assert run(app, ["validate", file, "--format", "github"]).stdout.startswith("::error file=")
    assert run(app, ["validate", file, "--ignore", "RS3"]).exit_code == 0
    assert run(app, ["validate", file, "--select", "IT,RS1"]).exit_code == 0
    assert isinstance(run(app, ["validate", file, "--select", "ZZ"]).exception, UsageError)


def test_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    class Stdin:
        buffer = io.BytesIO(as_sse(edited(SAMPLES["chat_call"].build(), [("drop", 2)])).encode())

    monkeypatch.setattr(sys, "stdin", Stdin)
    from vllm_harness._protocol.captures import read_capture, validate_capture

    assert [finding.code for _, finding in validate_capture(read_capture("-"))] == ["CC206"]


@pytest.mark.parametrize(
    ("name", "text", "place"),
    [
        ("a.json", '{\n"a": 1,\n}', "a.json:3: not valid JSON"),
        ("a.jsonl", '{"type": "x"}\n{', "a.jsonl:2: not valid JSON"),
        ("a.jsonl", '{"type": "x"}\n3', "a.jsonl:2: not a JSON object"),
        ("a.sse", "hello", "a.sse:1: no server-sent events"),
        ("a.json", "[1]", "a.json:1: neither"),
        ("a.json", '{"interactions": []}', "a.json:1: VCR cassettes are read from `.yaml` files"),
        ("a.yaml", "a: b: c", "a.yaml:1: mapping values are not allowed in this context"),
        ("a.json", "  ", "a.json: the file is empty"),
    ],
)
def test_bad_input_names_file_and_line(tmp_path: Path, name: str, text: str, place: str) -> None:
    error = run(app, ["validate", _file(tmp_path, name, text)]).exception
    assert isinstance(error, ProtocolInputError | YamlFileError)
    assert error.exit_code == 2
    assert place in str(error)


CASSETTE = "interactions:\n- request: {uri: 'http://x/v1/%s', method: POST}\n  response: {parsed_body: %s}\n"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        pytest.param("a.yaml", "interactions: []", marks=FOREIGN),
        pytest.param("a.yaml", CASSETTE % ("embeddings", "{object: list}"), marks=FOREIGN),
        pytest.param("a.yaml", CASSETTE % ("responses", "{hello: 1}"), marks=FOREIGN),
        ("a.json", "{}"),
        ("a.json", "[]"),
        ("a.json", '{"hello": 1}'),
        ("a.json", '{"exchanges": []}'),
        ("a.json", '{"request": {}, "body": {}}'),
        ("a.jsonl", ""),
        ("a.jsonl", "\n\n"),
        ("a.jsonl", '{"request": {}, "body": {}}'),
        ("a.sse", ": a comment\n\n: another\n\n"),
    ],
)
def test_nothing_to_check_is_not_clean(tmp_path: Path, name: str, text: str) -> None:
    file = _file(tmp_path, name, text)
    result = run(app, ["validate", file])
    assert isinstance(result.exception, ProtocolInputError)
    assert result.exception.exit_code == 2
    assert file in str(result.exception)
    assert "0 error" not in result.stdout


def test_api_option_decides_what_a_body_is(tmp_path: Path) -> None:
    file = _file(tmp_path, "a.json", "{}")
    for api in ("responses", "chat", "messages"):
        assert run(app, ["validate", file, "--api", api]).exit_code == 1
    assert run(app, ["validate", _file(tmp_path, "b.json", '{"object": "chat.completion"}')]).exit_code == 1


def test_other_files_are_still_reported(tmp_path: Path) -> None:
    good = _file(tmp_path, "good.sse", as_sse(SAMPLES["text"].build()))
    broken = _file(tmp_path, "broken.sse", as_sse(edited(SAMPLES["text"].build(), BREAK)))
    empty = [_file(tmp_path, f"empty-{number}.json", "{}") for number in range(2)]
    result = run(app, ["validate", empty[0], good, broken, empty[1]])
    assert f"{broken}:19: event 6: RS308 error" in result.stdout
    assert isinstance(result.exception, UsageError)
    assert result.exception.exit_code == 2
    assert all(file in str(result.exception) for file in empty)
    assert good not in str(result.exception)


def test_kinds_without_rules_are_known(tmp_path: Path) -> None:
    file = _file(tmp_path, "a.json", '{"object": "response.input_tokens", "input_tokens": 3}')
    assert run(app, ["validate", file]).exit_code == 0


@pytest.mark.parametrize("last", ["*a8", "&b [*b]"], ids=["a thousand million words", "itself"])
def test_cassette_with_exploding_aliases_is_rejected(tmp_path: Path, last: str) -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9)]
    text = "\n".join(lines) + "\n" + CASSETTE % ("responses", f"{{object: response, output: {last}}}")
    error = run(app, ["validate", _file(tmp_path, "a.yaml", text)]).exception
    assert isinstance(error, YamlFileError)
    assert "aliases" in str(error)


def test_deeply_nested_cassette_is_rejected(tmp_path: Path) -> None:
    for deep in ("[" * 50_000, "- " * 50_000 + "x"):
        error = run(app, ["validate", _file(tmp_path, "a.yaml", f"interactions:\n  {deep}")]).exception
        assert isinstance(error, YamlFileError)
        assert "a.yaml:2: nested too deeply" in str(error)


def test_control_characters_are_not_printed(tmp_path: Path) -> None:
    file = _file(tmp_path, "a.sse", 'data: {"type": "\x1b]0;owned\x07"}\n\n')
    result = CliRunner().invoke(app, ["validate", file], color=True)
    assert "owned" in result.stdout
    assert "\x1b" not in result.stdout
    assert "\x07" not in result.stdout


def test_missing_file_is_bad_input(tmp_path: Path) -> None:
    assert isinstance(run(app, ["validate", str(tmp_path / "none.sse")]).exception, ProtocolInputError)


def test_explain() -> None:
    assert "## Bad" in run(app, ["validate", "explain", "rs308"]).stdout
    assert "RS308" in run(app, ["validate", "explain"]).stdout
    assert isinstance(run(app, ["validate", "explain", "RS999"]).exception, UsageError)
