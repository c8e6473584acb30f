"""Cassette files can be written and read again; errors name the file and the line."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.unit.cassettes.samples import conversation, of, streamed
from vllm_harness._cassettes.checking import check
from vllm_harness._cassettes.format import (
    Cassette,
    Recorded,
    RecordedChunk,
    RecordedExchange,
    RecordedRequest,
    RecordedResponse,
)
from vllm_harness._cassettes.reading import MAX_BYTES, read, schema
from vllm_harness._cassettes.writing import CassetteWriter, check_writable, dumped, write
from vllm_harness._errors import UsageError
from vllm_harness._files.redaction import Redactor
from vllm_harness._protocol.samples import SAMPLES
from vllm_harness.cli.main import app

PLAIN = Redactor()
STRANGE = "a: 'b'\r\n\ttab \x07 bell, \u2028 line, ☃ 🎉, yes, 1e3, ~\n\n"


def _strange() -> Cassette:
    sse = (
        RecordedChunk(at=0.001, data=STRANGE),
        RecordedChunk(at=0.5, data=b"\xff\xe2\x98"),
        RecordedChunk(at=0.5, data="\n\n"),
    )
    body = {"yes": "no", "": [STRANGE, 1.5, 1e-7, None, True, {}, []], "long": "word " * 5000}
    response = RecordedResponse(
        status=200, headers={"content-type": "text/event-stream"}, seconds=0.5, sse=sse
    )
    stream = RecordedExchange(
        turn="1", request=RecordedRequest(path="/", body=body), response=response, tokens=((1, 2), ())
    )
    bad = RecordedExchange(
        turn="on", after="1", request=RecordedRequest(method="GET", path="/x?y=1", text=b"\xff"),
        response=RecordedResponse(status=0, text=STRANGE, broken="ConnectError: no"),
    )  # fmt: skip
    return of(stream, bad, vllm="0.32.0", command=("a", "--b=c"))


@pytest.mark.parametrize("name", ["a.yaml", "a.yaml.gz"])
@pytest.mark.parametrize("make", [conversation, _strange, of], ids=["conversation", "strange", "empty"])
def test_cassettes_are_written_and_read(name: str, make: object, tmp_path: Path) -> None:
    assert callable(make)
    cassette, path = make(), tmp_path / name
    write(cassette, path, PLAIN)
    assert read(path).cassette == cassette
    assert list(tmp_path.iterdir()) == [path]
    grown = tmp_path / f"grown-{name}"
    recording = CassetteWriter(grown, cassette.title, cassette.recorded, PLAIN)
    for exchange in cassette.exchanges:
        recording.add(exchange)
    recording.end()
    assert read(grown).cassette == cassette


def test_a_stream_is_written_readably(tmp_path: Path) -> None:
    events = SAMPLES["text"].build()
    text = dumped(of(streamed("t", {}, events)), PLAIN)
    assert f"        event: {events[0]['type']}\n        data: {json.dumps(events[0])}\n" in text


@pytest.mark.parametrize("size", [0, 17, 500])
def test_the_lines_of_events(size: int, tmp_path: Path) -> None:
    events = SAMPLES["text"].build()
    events[3]["sequence_number"] = 99
    path = tmp_path / "a.yaml"
    write(of(streamed("t", {}, events, size)), path, PLAIN)
    found = check(read(path))
    assert found
    line = path.read_text().splitlines()[found[0].line - 1]
    number = found[0].finding.event_index
    assert number is not None
    whole = f"event: {events[number]['type']}"
    assert (
        (whole in line) if size in (0, 500) else (line[8:].strip() and line[8:] in whole) or "turn: t" in line
    )


def _written(tmp_path: Path, change: object = None) -> Path:
    path = tmp_path / "a.yaml"
    text = dumped(conversation(), PLAIN)
    path.write_text(text if change is None else change(text))  # type: ignore[operator]
    return path


def _truncated(text: str, mark: str) -> str:
    assert mark in text
    return text[: text.index(mark)]


WRONG = {
    "cut within an exchange": (
        lambda text: _truncated(text, "  response:\n"),
        r":\d+: exchanges\.0\.response: |:\d+: count",
    ),
    "truncated within a word": (lambda text: _truncated(text, "call_1") + "'", r":\d+: "),
    "cut between exchanges": (
        lambda text: _truncated(text, "- turn: answer"),
        r":\d+: count: the file ends without it",
    ),
    "a turn is missing": (
        lambda text: _truncated(text, "- turn: answer") + "count: 2\n",
        r":\d+: count: 2, but the file has 1 exchanges",
    ),
    "the first turn is missing": (
        lambda text: text[: text.index("- turn: ask")] + text[text.index("- turn: answer") :],
        r":\d+: exchanges\.0\.after: it continues turn 'ask', which is not above it",
    ),
    "a cyclic branch": (
        lambda text: text.replace("- turn: ask\n", "- turn: ask\n  after: answer\n"),
        r":\d+: exchanges\.0\.after: it continues turn 'answer', which is not above it",
    ),
    "a turn twice": (
        lambda text: text.replace("- turn: answer", "- turn: ask"),
        r":\d+: exchanges\.1\.turn: another turn is also named 'ask'",
    ),
    "a key twice": (lambda text: text + "count: 2\n", r":\d+: duplicate key 'count'"),
    "an unknown version": (
        lambda text: text.replace("cassette: 1", "cassette: 7"),
        r":1: cassette: version 7",
    ),
    "no version": (lambda text: text.replace("cassette: 1\n", ""), r":1: cassette: the version"),
    "an unknown key": (
        lambda text: text.replace("  response:", "  respons:", 1),
        r":\d+: exchanges\.0\.respons: unknown key, did you mean 'response'",
    ),
    "no YAML": (lambda text: "{" + text, r":\d+: "),
    "a list": (lambda text: "- 1\n", r":1: cassette: the version"),
    "nothing": (lambda text: "", r":1: the file is empty"),
    "code": (lambda text: text + "x: !!python/object/apply:os.system [ls]\n", r":\d+: "),
}


@pytest.mark.parametrize("name", WRONG)
def test_an_error_names_file_and_line(name: str, tmp_path: Path) -> None:
    change, told = WRONG[name]
    path = _written(tmp_path, change)
    before = path.read_bytes()
    with pytest.raises(UsageError, match=re.escape(str(path)) + f"(?:{told})"):
        read(path)
    assert path.read_bytes() == before


def test_a_truncated_cassette_is_an_error(tmp_path: Path) -> None:
    text = dumped(conversation(), PLAIN)
    path = tmp_path / "a.yaml"
    for size in range(0, len(text) - 2, 97):
        path.write_text(text[:size])
        with pytest.raises(UsageError, match=r"a\.yaml:\d+: "):
            read(path)


def test_a_truncated_archive_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml.gz"
    write(conversation(), path, PLAIN)
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(UsageError, match=r"a\.yaml\.gz:\d+: the compressed data is truncated or damaged"):
        read(path)
    path.write_bytes(b"no archive")
    with pytest.raises(UsageError, match=r"a\.yaml\.gz:1: the compressed data"):
        read(path)


def test_a_file_that_is_too_large_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    with path.open("wb") as file:
        file.truncate(2**30)
    with pytest.raises(UsageError, match=rf"a\.yaml:1: more than {MAX_BYTES} bytes\n"):
        read(path)


def test_a_compressed_file_that_is_too_large_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml.gz"
    member = gzip.compress(bytes(2**24))
    path.write_bytes(member * 64)
    assert path.stat().st_size < 2**21
    with pytest.raises(
        UsageError, match=rf"a\.yaml\.gz:1: more than {MAX_BYTES} bytes when it is decompressed"
    ):
        read(path)


def test_a_path_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    for path in (tmp_path / "a.json", tmp_path / "none" / "a.yaml"):
        with pytest.raises(UsageError, match=re.escape(str(path.parent if "none" in str(path) else path))):
            check_writable(path)
    check_writable(tmp_path / "a.yaml.gz")


def test_replay_and_validate_report_a_broken_rule(tmp_path: Path) -> None:
    path = _written(tmp_path)
    for command in (["cassette", "replay"], ["validate"]):
        result = CliRunner().invoke(app, [*command, str(path)])
        assert result.exit_code == 0, result.output
    broken = _written(
        tmp_path, lambda text: text.replace("previous_response_id: resp_1", "previous_response_id: x")
    )
    line = next(n for n, row in enumerate(broken.read_text().splitlines(), 1) if "- turn: answer" in row)
    for command in (["cassette", "replay"], ["validate"]):
        result = CliRunner().invoke(app, [*command, str(broken)])
        assert result.exit_code == 1
        assert f"{broken}:{line}: " in result.output
        assert "CV101" in result.output


def test_the_schema_has_the_keys_of_a_cassette() -> None:
    assert {"cassette", "exchanges", "count"} <= set(schema()["required"])
    assert Recorded.__name__ in schema()["$defs"]
