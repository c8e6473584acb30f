"""Generates run folders from seeds: streams of the three APIs, some of them broken, with the findings."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from vllm_harness._protocol.chat import render as chat
from vllm_harness._protocol.core.events import Json
from vllm_harness._protocol.core.examples import as_sse, edited
from vllm_harness._protocol.core.sse import parse_sse
from vllm_harness._protocol.messages import render as messages
from vllm_harness._protocol.responses import render as responses
from vllm_harness._protocol.streams import validate_stream
from vllm_harness._runs.folder import RunWriter
from vllm_harness._runs.records import (
    AnyRecord,
    Arrival,
    CaseRecord,
    End,
    ExchangeRecord,
    Header,
    Kind,
    LogLines,
    Outcome,
    Piece,
    RunFinding,
    Series,
    TargetRecord,
)

STARTED = 1_795_000_000.0
DEFECT = "arguments-are-written-anew"
TEXT = "The weather in Zürich is mild today.\nTomorrow brings rain, and a storm from the west by night."
REASONING = "The user asks about the weather. I should call the tool first, then answer in one sentence."
ARGUMENTS = '{"city": "Zürich", "unit": "celsius"}'
MODELS = ("qwen3", "gpt-oss", "llama3.1", "deepseek-r1", "mistral-small", "granite4", "kimi-k2", "glm-4.6")
GROUPS = tuple(
    f"tests/{folder}/test_{name}.py"
    for folder, names in {
        "behaviours": (
            "chat_basics",
            "chat_calls",
            "chat_reasoning",
            "chat_stop",
            "chat_structured",
            "messages_text",
            "messages_tools",
            "responses_basics",
            "responses_calls",
            "responses_limits",
            "responses_structured",
            "responses_turns",
        ),
        "standard": ("constraints", "prompts", "responses_tools"),
        "defects": ("chat", "responses"),
    }.items()
    for name in names
)
ITEMS = [responses.reasoning(REASONING), responses.function_call(ARGUMENTS), responses.message(TEXT)]
MESSAGE: Json = {
    "reasoning": REASONING,
    "content": TEXT,
    "tool_calls": [
        {"id": "call_1", "type": "function", "function": {"name": "get_weather", "arguments": ARGUMENTS}}
    ],
}
BLOCKS = [messages.thinking(REASONING), messages.text(TEXT), messages.tool_use({"city": "Zürich"})]
TOOL: Json = {
    "type": "function",
    "name": "get_weather",
    "description": "The weather of a city.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}


def words(text: str) -> list[str]:
    """Splits a text into words, similar to tokens."""
    return re.findall(r"\s*\w{1,6}|\s*[^\w\s]|\s+", text)


def stream_of(api: str, broken: bool) -> list[Json]:
    """The stream events of an answer; if it is broken, they violate rules of the API."""
    if api == "responses":
        events = responses.response_events(ITEMS, split=words)
        edits = [
            ("set", "response.output_text.done", "text", TEXT[:-7]),
            ("set", "response.function_call_arguments.done", "item_id", "fc_9"),
        ]
        return edited(events, edits) if broken else events
    if api == "chat":
        chunks = chat.completion_chunks([MESSAGE], split=words)
        return edited(chunks, [("set", -1, "id", "chatcmpl-2")]) if broken else chunks
    events = messages.answer_events(BLOCKS, split=words)
    return edited(events, [("drop", "content_block_stop#1")]) if broken else events


def body_of(api: str) -> Json:
    """The same answer as a body; its arguments are written differently."""
    if api == "responses":
        call = responses.function_call('{"city": "Z\\u00fcrich", "unit": "celsius"}')
        return responses.response([ITEMS[0], call, ITEMS[2]])
    return chat.completion([MESSAGE]) if api == "chat" else messages.answer(BLOCKS)


PATHS = {"responses": "/v1/responses", "chat": "/v1/chat/completions", "messages": "/v1/messages"}


def request_of(api: str, model: str, stream: bool) -> Json:
    """A request for an API."""
    question = [{"role": "user", "content": "What's the weather in Zürich? It's `urgent`."}]
    tools: dict[str, Any] = {
        "responses": {"input": question, "tools": [TOOL]},
        "chat": {"messages": question, "tools": [{"type": "function", "function": TOOL}]},
        "messages": {"messages": question, "max_tokens": 200},
    }
    return {"model": model, **tools[api], "temperature": 0, "stream": stream}


def arrivals(text: str, rng: random.Random) -> Iterator[Arrival]:
    """A stream split into pieces of random sizes, as if it came from a network."""
    after = rng.uniform(0.02, 0.05)
    place = 0
    while place < len(text):
        size = rng.randint(150, 900)
        yield Arrival(after=after, text=text[place : place + size])
        place += size
        after += rng.choice((0.002, 0.004, 0.011, 0.03))


def pieces(text: str) -> tuple[Piece, ...]:
    """Splits text into tokens with made-up ids."""
    return tuple(Piece(ids=(1000 + sum(map(ord, word)) % 90_000,), text=word) for word in words(text))


OUTPUT = (
    f"<think>\n{REASONING}\n</think>\n\n<tool_call>\n"
    f'{{"name": "get_weather", "arguments": {ARGUMENTS}}}\n</tool_call>\n{TEXT}<|im_end|>'
)
PROMPT = "<|im_start|>user\nWhat's the weather in Zürich?<|im_end|>\n<|im_start|>assistant\n"


def exchanges_of(case: CaseRecord, api: str, broken: bool, rng: random.Random) -> list[ExchangeRecord]:
    """Two exchanges of a case: a stream, and a body with the same answer."""
    shared: dict[str, Any] = {
        "target": case.target,
        "case": case.id,
        "api": api,
        "path": PATHS[api],
        "headers": {"content-type": "application/json", "x-request-id": f"{rng.getrandbits(32):08x}"},
        "status": 200,
        "prompt": pieces(PROMPT),
        "output": pieces(OUTPUT),
    }
    stream = tuple(arrivals(as_sse(stream_of(api, broken)), rng))
    identifier = f"{case.target}/{case.id}"
    return [
        ExchangeRecord(
            id=f"{identifier}/1",
            at=STARTED + 5,
            request=request_of(api, case.target, True),
            answer_headers={"content-type": "text/event-stream; charset=utf-8"},
            stream=stream,
            seconds=stream[-1].after + 0.001,
            twin=f"{identifier}/2",
            **shared,
        ),
        ExchangeRecord(
            id=f"{identifier}/2",
            at=STARTED + 6,
            request=request_of(api, case.target, False),
            answer_headers={"content-type": "application/json"},
            answer=body_of(api),
            seconds=0.21,
            **shared,
        ),
    ]


def findings_of(exchange: ExchangeRecord, known: str) -> tuple[RunFinding, ...]:
    """The validator's findings in a recorded stream."""
    raw = "".join(each.text for each in exchange.stream).encode()
    api: Any = exchange.api
    return tuple(
        RunFinding(
            code=each.code,
            severity=each.severity.value,
            message=each.message,
            exchange=exchange.id,
            event_index=each.event_index,
            path=each.path,
            expected=each.expected,
            actual=each.actual,
            known=known,
        )
        for each in validate_stream(parse_sse([raw]), api=api)
    )


def case_records(case: CaseRecord, rng: random.Random) -> list[AnyRecord]:
    """The records of a case: its exchanges, log and result; a failed case has a broken stream."""
    broken = case.outcome in (Outcome.FINDING, Outcome.KNOWN)
    api = next((each for each in ("messages", "responses") if each in case.group), "chat")
    exchanges = exchanges_of(case, api, broken, rng)
    findings = findings_of(exchanges[0], DEFECT if case.outcome is Outcome.KNOWN else "") if broken else ()
    log = (
        "INFO 11-25 02:33:01 [async_llm.py:261] Added request chatcmpl-1.",
        *(["WARNING 11-25 02:33:01 [serving.py:88] The tool call could not be parsed."] if broken else []),
        'INFO:     127.0.0.1:51234 - "POST /v1/responses HTTP/1.1" 200 OK',
    )
    return [
        *exchanges,
        LogLines(target=case.target, case=case.id, source=f"{case.target}.log", lines=log),
        case.model_copy(update={"findings": findings}),
    ]


def write_run(
    folder: Path,
    *,
    seed: int = 1,
    targets: int = 4,
    cases: int = 120,
    version: str = "0.32.0",
    failing: float = 0.05,
    recorded: float = 1.0,
    more: Sequence[AnyRecord] = (),
) -> Path:
    """Writes a run folder.

    Args:
        folder: the run folder.
        seed: the random seed.
        targets: the number of targets.
        cases: the total number of cases across all targets.
        version: the version of vLLM.
        failing: the share of cases with a finding; the shares of known defects and skips are the same.
        recorded: the share of passed cases with exchanges.
        more: further records to write.
    """
    rng = random.Random(seed)
    header = Header(
        kind=Kind.SUITES,
        name="nightly",
        command=("vllm-harness", "run", "--lane", "scripted", "--vllm", version),
        harness="0.2.0",
        machine="2 cores, 23 GiB of memory, no GPU",
        seed=seed,
        started=STARTED,
    )
    with RunWriter.begin(folder, header) as writer:
        for number in range(targets):
            writer.write(_target(number, version))
        for at in range(cases):
            case = _case(at, targets, rng, failing, version)
            full = case.outcome in (Outcome.FINDING, Outcome.KNOWN) or rng.random() < recorded
            for record in case_records(case, rng) if full else [case]:
                writer.write(record)
        for record in (*_series(targets, rng, version), *more):
            writer.write(record)
        writer.write(End(at=STARTED + 754.2, exit_code=1))
    return folder


def _target(number: int, version: str) -> TargetRecord:
    model = MODELS[number % len(MODELS)]
    name = model if number < len(MODELS) else f"{model}-{number // len(MODELS)}"
    return TargetRecord(
        id=f"{name}@{version}",
        title=name,
        family=model,
        lane="scripted",
        vllm=version,
        environment=f"release vllm {version} (cpu, torch 2.13.0+cpu)",
        frontend="python",
        device="cpu",
        command=("vllm", "serve", f"./{model}", "--tool-call-parser", "hermes", "--enable-auto-tool-choice"),
        logs=(f"{model}.log",),
        startup_s=6.4,
    )


def _case(at: int, targets: int, rng: random.Random, failing: float, version: str) -> CaseRecord:
    group = GROUPS[at * 7 % len(GROUPS)]
    drawn = rng.random()
    share = (Outcome.FINDING, Outcome.KNOWN, Outcome.SKIPPED)
    outcome = share[int(drawn / failing)] if drawn < 3 * failing else Outcome.PASSED
    test = ("text_arrives_whole", "a_call_is_streamed", "reasoning_is_kept", "usage_adds_up")[at % 4]
    return CaseRecord(
        id=f"{group}::test_{test}[{at:05d}-scripted]",
        target=_target(at % targets, version).id,
        group=group,
        covers=(f"VR-{at % 90:03d}",),
        outcome=outcome,
        defects=(DEFECT,) if outcome is Outcome.KNOWN else (),
        reason="the model has no tools" if outcome is Outcome.SKIPPED else "",
        details="E       AssertionError: assert 'mild' == 'wild'\n" if outcome is Outcome.FINDING else "",
        started=STARTED + at * 0.1,
        seconds=round(rng.uniform(0.02, 2.5), 3),
        attempts=2 if rng.random() < 0.02 else 1,
    )


def _series(targets: int, rng: random.Random, version: str) -> Iterator[Series]:
    for number in range(min(targets, 2)):
        target = _target(number, version).id
        slow = 1 + number * 0.4
        ttft = tuple(
            (p, round(slow * 38 / (1 - p / 100) ** 0.3, 2)) for p in (0.0, 25.0, 50.0, 75.0, 90.0, 99.0, 99.9)
        )
        yield Series(target=target, name="time to first token", unit="ms", form="percentiles", points=ttft)
        rate = tuple(
            (float(second), round(120 / slow + 18 * math.sin(second / 5) + rng.uniform(-6, 6), 2))
            for second in range(60)
        )
        yield Series(target=target, name="output tokens", unit="tokens/s", form="time", points=rate)
