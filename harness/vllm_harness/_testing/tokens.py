"""Token recordings: what vLLM generated in a run, scripted again on the scripted lane, and compared with it.

One file of JSON lines a test, one line a request that generates: path, request, status, answer, tokens.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from vllm_harness._errors import UsageError
from vllm_harness._exchange.server import VllmServer
from vllm_harness._protocol import ChatAccumulator, ResponseAccumulator
from vllm_harness._protocol.conversation.exchange import accumulate
from vllm_harness._scripted.book import ScriptBook
from vllm_harness._scripted.recording import TokenRecord, recorded
from vllm_harness._testing.session import TARGET


@contextmanager
def kept_tokens(server: VllmServer, item: pytest.Item) -> Iterator[None]:
    """Records what a server generates for a test, where the run keeps it or holds it against a recording."""
    kept, replayed, target = item.config.option.vllm_record_tokens, recording(item), item.stash[TARGET]
    if target.lane == "attached" or not (kept or replayed):
        yield
        return
    with recorded(server.endpoint) as records:
        yield
    if kept:
        write(records, file_in(kept / target.id, item.nodeid, target.id))
    if replayed and (differ := differences(read(replayed), records)):
        pytest.fail("the replay differs from the live run:\n" + "\n".join(differ), pytrace=False)


def recording(item: pytest.Item) -> Path | None:
    """The recording that a test replays."""
    folder, target = item.config.option.vllm_replay_tokens, item.stash[TARGET]
    return folder and file_in(folder / f"live-{target.entry.name}", item.nodeid, target.id)


def replayable(item: pytest.Item) -> bool:
    """Whether a test has a recording that can be scripted."""
    path = recording(item) if TARGET in item.stash else None
    records = read(path) if path is not None and path.exists() else []
    return bool(records) and all(record.scriptable for record in records)


def file_in(folder: Path, test: str, target: str) -> Path:
    """A test's recording in the folder of a target's recordings; its name does not depend on the target."""
    name = re.sub(r"[^\w.,=\[\]-]+", "-", test.replace(target, "").replace("[-", "["))
    return folder / f"{name}.jsonl"


def write(records: Iterable[TokenRecord], path: Path) -> None:
    """Writes a recording."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(record.model_dump_json() + "\n" for record in records))


def read(path: Path) -> list[TokenRecord]:
    """A recording. Raises UsageError where the file is none."""
    try:
        return [TokenRecord.model_validate_json(line) for line in path.read_bytes().splitlines()]
    except (OSError, ValidationError) as error:
        raise UsageError(
            f"{path} is no token recording: {error}", hint="record one with --vllm-record-tokens DIR"
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
    """Where a replay does not mean the same as its recording; empty where it does."""
    found = []
    if len(recorded) != len(replayed):
        found.append(f"{len(recorded)} requests were recorded, {len(replayed)} came")
    for number, (left, right) in enumerate(zip(recorded, replayed, strict=False), start=1):
        before, after = meaning(left), meaning(right)
        for key in [key for key in {**before, **after} if before.get(key) != after.get(key)]:
            what = f"request {number} ({left.path}), {key}"
            found.append(f"{what}: {before.get(key)!r} was recorded, {after.get(key)!r} came")
    return found


def meaning(record: TokenRecord) -> dict[str, Any]:
    """What an answer means, streamed or not, whichever vLLM gave it."""
    if record.refused:
        return {"status": record.status}
    answer = _folded(record.answer) if isinstance(record.answer, list) else record.answer
    usage = answer.get("usage") or {}
    if answer.get("object") == "response":
        return {
            "status": answer["status"],
            "incomplete": (answer.get("incomplete_details") or {}).get("reason"),
            "output": [_item(item) for item in answer["output"]],
            "tokens": (usage.get("input_tokens"), usage.get("output_tokens")),
        }
    return {
        "choices": [_choice(choice) for choice in answer["choices"]],
        "tokens": (usage.get("prompt_tokens"), usage.get("completion_tokens")),
    }


def _folded(events: Sequence[dict[str, Any]]) -> dict[str, Any]:
    whole = accumulate(events)
    if isinstance(whole, ChatAccumulator):
        return whole.completion
    ended = whole.terminal if isinstance(whole, ResponseAccumulator) else None
    return {"object": "response", "status": "broken off", "output": [], **(ended or whole.body)}


def _item(item: dict[str, Any]) -> tuple[Any, ...]:
    if item["type"] == "function_call":
        return ("function_call", item["name"], _value(item["arguments"]))
    return (item["type"], *(part.get("text") for part in item.get("content") or ()))


def _value(arguments: str) -> Any:
    """Arguments as JSON, however they are written; cut off ones as text."""
    try:
        return json.loads(arguments)
    except ValueError:
        return arguments


def _choice(choice: dict[str, Any]) -> dict[str, Any]:
    message = choice.get("message") or {"content": choice.get("text")}
    calls = [call["function"] for call in message.get("tool_calls") or ()]
    return {
        "content": message.get("content") or "",
        "reasoning": message.get("reasoning") or message.get("reasoning_content") or "",
        "calls": [(call["name"], _value(call["arguments"])) for call in calls],
        "finish": choice.get("finish_reason"),
    }
