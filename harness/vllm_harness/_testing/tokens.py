"""Records the tokens of a live run, replays them as scripts, and compares both runs.

Each test has a file with a line of JSON for each generating request: path, body, status, answer, tokens.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from vllm_harness._errors import UsageError
from vllm_harness._exchange.answer import answers_of
from vllm_harness._exchange.server import VllmServer
from vllm_harness._protocol import ChatAccumulator, ResponseAccumulator
from vllm_harness._protocol.conversation.exchange import accumulate
from vllm_harness._scripted.book import ScriptBook
from vllm_harness._scripted.recording import TokenRecord, recorded
from vllm_harness._testing.session import TARGET

_USAGE = ("input_tokens", "output_tokens", "prompt_tokens", "completion_tokens")


@contextmanager
def recorded_tokens(server: VllmServer, item: pytest.Item) -> Iterator[None]:
    """Records the tokens generated for a test, if the run stores or compares them with a recording."""
    folder, replayed, target = item.config.option.vllm_record_tokens, recording(item), item.stash[TARGET]
    if target.lane == "attached" or not (folder or replayed):
        yield
        return
    with recorded(server.endpoint) as records:
        yield
    if folder:
        write(records, file_in(folder / target.id, item.nodeid, target.id))
    if replayed and (lines := differences(read(replayed), records)):
        pytest.fail("the replay differs from the live run:\n" + "\n".join(lines), pytrace=False)


def recording(item: pytest.Item) -> Path | None:
    """The path of the recording that a test replays; None if the run replays nothing."""
    folder, target = item.config.option.vllm_replay_tokens, item.stash[TARGET]
    return folder and file_in(folder / f"live-{target.entry.name}", item.nodeid, target.id)


def replayable(item: pytest.Item) -> bool:
    """Whether a test has a recording that can be scripted."""
    path = recording(item) if TARGET in item.stash else None
    records = read(path) if path is not None and path.exists() else []
    return bool(records) and all(record.scriptable for record in records)


def file_in(folder: Path, test: str, target: str) -> Path:
    """The file of a test's recording in a folder; its name does not depend on the target."""
    name = re.sub(r"[^\w.,=\[\]-]+", "-", test.replace(target, "").replace("[-", "["))
    return folder / f"{name}.jsonl"


def write(records: Iterable[TokenRecord], path: Path) -> None:
    """Writes a recording."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(record.model_dump_json() + "\n" for record in records))


def read(path: Path) -> list[TokenRecord]:
    """Reads a recording. Raises UsageError if the file is not a recording."""
    try:
        return [TokenRecord.model_validate_json(line) for line in path.read_bytes().splitlines()]
    except (OSError, ValidationError) as error:
        raise UsageError(
            f"{path} is not a token recording: {error}", hint="record one with --vllm-record-tokens DIR"
        ) from error


def script_recording(records: Sequence[TokenRecord], book: ScriptBook) -> None:
    """Scripts the recorded tokens, request by request."""
    for number, record in enumerate(records, start=1):
        name = f"request {number}"
        if record.refused or not record.tokens:
            book.script("not to be generated", name=name)
        elif record.path == "/v1/responses":
            book.script(turns=record.tokens, name=name)
        else:
            book.script(choices=record.tokens, name=name)


def differences(recorded: Sequence[TokenRecord], replayed: Sequence[TokenRecord]) -> list[str]:
    """Lists the differences in meaning between a recording and its replay, each in a line."""
    lines = []
    if len(recorded) != len(replayed):
        lines.append(f"{len(recorded)} requests were recorded, {len(replayed)} came")
    for number, (left, right) in enumerate(zip(recorded, replayed, strict=False), start=1):
        before, after = meaning(left), meaning(right)
        for key in [key for key in {**before, **after} if before.get(key) != after.get(key)]:
            what = f"request {number} ({left.path}), {key}"
            lines.append(f"{what}: {before.get(key)!r} was recorded, {after.get(key)!r} came")
    return lines


def meaning(record: TokenRecord) -> dict[str, Any]:
    """The meaning of an answer, regardless of streaming and vLLM's version; lists have an item per choice."""
    if record.refused:
        return {"status": record.status}
    body = _folded(record.answer) if isinstance(record.answer, list) else record.answer
    usage = body.get("usage") or {}
    if body.get("object") == "response":
        answers = list(answers_of("responses", body))
        reason = (body.get("incomplete_details") or {}).get("reason")
        more = {"incomplete": reason, "items": [item["type"] for item in body["output"]]}
    else:  # chat completions or text completions
        choices = [{"message": {"content": choice.get("text")}, **choice} for choice in body["choices"]]
        answers, more = list(answers_of("chat", {**body, "choices": choices})), {}
    return {
        "status": [answer.end for answer in answers],
        "text": [answer.text for answer in answers],
        "reasoning": [answer.reasoning for answer in answers],
        "calls": [[(call.name, call.value) for call in answer.calls] for answer in answers],
        "tokens": [usage.get(key) for key in _USAGE if key in usage],
        **more,
    }


def _folded(events: Sequence[dict[str, Any]]) -> dict[str, Any]:
    whole = accumulate(events)
    if isinstance(whole, ChatAccumulator):
        return whole.completion
    ended = whole.terminal if isinstance(whole, ResponseAccumulator) else None
    return {"object": "response", "status": "broken off", "output": [], **(ended or whole.body)}
