"""Streams an answer in chunks with every boundary, and compares each stream with the body."""

from __future__ import annotations

import random
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Literal

from openai.types.chat import ChatCompletion, ChatCompletionChunk

from tests.behaviours.stop_strings import AND_ON
from tests.behaviours.tools import CALL, DESCRIPTION, PARAMETERS
from tests.chat_api import COMPARED, output_of, streamed
from tests.messages_api import NO_STOP_SEQUENCE
from vllm_harness._exchange.building import ContentPart, TurnInput, TurnRequest, request_of
from vllm_harness._exchange.endpoint import API_PATHS, Endpoint
from vllm_harness._exchange.sending import Outgoing, http_client, send
from vllm_harness._protocol import Exchange
from vllm_harness._protocol.core.differences import differences
from vllm_harness._protocol.core.events import Json
from vllm_harness._scripted.book import Content, Expectation, Raw
from vllm_harness._scripted.in_server.vllm_harness_names import DELIVERY_HEADER
from vllm_harness._scripted.meaning import Meaning, Reasoning, Text, ToolCall
from vllm_harness._testing.fixtures import ScriptWriter

BoundaryApi = Literal["responses", "chat", "messages", "completions"]
PATHS: Mapping[str, str] = {**API_PATHS, "completions": "/v1/completions"}
AT_ONCE = 24
SEEDED_AT_ONCE = 4
"""For several choices, which the scripted lane seeds: seeded-request-ends-the-engine-on-cpu."""
SHOWN = 6
RANDOM_DELIVERIES = 6
OWN_PARTS = re.compile(r"event \d+: |(?<=\")(call|chatcmpl|msg|fc|resp|rs)[-_][-_a-z0-9]{6,}")
NOISE = 0.05  # the size of a batch changes the order in which a kernel adds

WORDS = "Köln: 5 °C 🌧, \n\n then sun."
HARD = ToolCall("get_weather", {"city": 'Köln "am\\Rhein"\n\t🏔️ </b> {}'})
SCHEMA: Json = {
    "type": "object",
    "properties": {"city": {"enum": ["Rome", "Köln"]}, "days": {"enum": [1, 2]}},
    "required": ["city", "days"],
    "additionalProperties": False,
}
JSON = '{"city": "Köln", "days": 2}'
TOOL: Json = {"name": "get_weather", "description": DESCRIPTION, "parameters": PARAMETERS}
STOP = "STOP"
EVERY: tuple[BoundaryApi, ...] = ("responses", "chat", "messages")
COUNTED: Mapping[BoundaryApi, Json] = {
    "chat": {"logprobs": True, "top_logprobs": 2},
    "completions": {"logprobs": 2},
    "responses": {"include": ["message.output_text.logprobs"], "top_logprobs": 2},
}


@dataclass(frozen=True)
class Shape:
    """A kind of answer.

    Attributes:
        id: its name in the ids of tests.
        says: what the model says; an item for each choice.
        more: further fields of the request, for each API that has the shape.
        needs: the capabilities that a model needs.
        tools: whether the request offers a tool.
        stop: the stop strings of the request.
        limit: the token limit of the answer.
        expect: the state in which the script ends.
    """

    id: str
    says: tuple[Meaning, ...]
    more: Mapping[BoundaryApi, Json]
    needs: tuple[str, ...] = ()
    tools: bool = False
    stop: tuple[str, ...] = ()
    limit: int = 300
    expect: Expectation = "done"
    constrained: bool = False
    tokens: int = field(default=10_000)

    def request(self, api: BoundaryApi, model: str, *, stream: bool, **more: Any) -> Json:
        """Returns the body of a request."""
        given = {name: value for name, value in self.more[api].items() if stream or name != "stream_options"}
        if api == "completions":
            options = {"stream_options": {"include_usage": True}} if stream else {}
            stop = {"stop": list(self.stop)} if self.stop else {}
            limit = {"max_tokens": self.limit, "temperature": 0, "stream": stream}
            return {"model": model, "prompt": "Hi", **limit, **options, **stop, **given, **more}
        strict = {"strict": False} if api == "responses" else {}
        ask = TurnRequest(
            model,
            TurnInput((), (ContentPart(text="Hi"),)),
            functions=[{**TOOL, **strict}] if self.tools else [],
            max_tokens=self.limit,
            stream=stream,
            stop=self.stop,
            more={**given, **more},
        )
        return request_of(api, ask)

    def content(self, api: BoundaryApi, *, harmony: bool) -> list[Content]:
        """Returns what a model says, for `choices` of a script."""
        if api == "completions":  # the prompt is not a conversation, so that nothing is parsed
            return [meaning.text for meaning in self.says] if not harmony else [_final(m) for m in self.says]
        if self.constrained and harmony:
            return [Raw(f"<|channel|>final <|constrain|>json<|message|>{JSON}<|return|>")]
        return list(self.says)

    def cuts(self, tokens: int) -> list[str]:
        """Returns deliveries of an answer with each single cut, and with some drawn ones."""
        length = min(tokens, self.tokens)
        single = [f"cut_at_{place}" for place in range(1, length - 1)]
        drawn = random.Random(self.id)
        several = [
            "_".join(map(str, sorted(drawn.sample(range(1, length), min(length - 1, drawn.randint(2, 5))))))
            for _ in range(RANDOM_DELIVERIES)
        ]
        ends = [f"cut_at_{places}{'_with_end' if odd % 2 else ''}" for odd, places in enumerate(several)]
        return list(dict.fromkeys([*single, *(f"{cut}_with_end" for cut in single), *ends]))


EVEN = ("tokens_1", "tokens_2", "tokens_3_with_end", "all", "all_with_end")
"""Deliveries in equal chunks."""


def _for(*apis: BoundaryApi, **more: Any) -> dict[BoundaryApi, Json]:
    return dict.fromkeys(apis, more)


def _final(meaning: Meaning) -> Raw:
    return Raw(f"<|channel|>final<|message|>{meaning.text}<|return|>")


THOUGHT = Reasoning("Rome?\nYes, Rome.")
WIDE_THOUGHT = Reasoning("Köln 🌧?\n🦩.")
USAGE = {"include_usage": True, "continuous_usage_stats": True}
FORMATS: dict[BoundaryApi, Json] = {
    "responses": {
        "text": {"format": {"type": "json_schema", "name": "trip", "schema": SCHEMA, "strict": True}}
    },
    "chat": {"response_format": {"type": "json_schema", "json_schema": {"name": "trip", "schema": SCHEMA}}},
}
SHAPES = (
    Shape("text", (Meaning((Text(WORDS),)),), _for(*EVERY, "completions")),
    Shape("reasoning", (Meaning((THOUGHT, Text(WORDS))),), _for(*EVERY), ("reasoning",)),
    Shape("wide_reasoning", (Meaning((WIDE_THOUGHT, Text(WORDS))),), _for(*EVERY), ("reasoning",)),
    Shape("call", (Meaning((CALL,)),), _for(*EVERY), ("tools",), tools=True),
    Shape("hard_call", (Meaning((HARD,)),), _for(*EVERY), ("tools",), tools=True),
    Shape("thought_call", (Meaning((THOUGHT, CALL)),), _for(*EVERY), ("tools", "reasoning"), tools=True),
    Shape(
        "two_calls",
        (Meaning((THOUGHT, Text("So:"), CALL, HARD)),),
        _for(*EVERY),
        ("reasoning", "parallel_tools"),
        tools=True,
    ),
    Shape("structured", (Meaning((Text(JSON),)),), FORMATS, ("structured_output",), constrained=True),
    Shape(
        "stop",
        (Meaning((Text(f"Sun and rain.{STOP}{AND_ON}"),)),),
        _for("chat", "messages", "completions"),
        stop=(STOP,),
        expect="truncated",
        tokens=16,
    ),
    Shape(
        "limit",
        (Meaning((Text("Sun and rain. " * 9),)),),
        _for("chat", "messages", "completions"),
        limit=12,
        expect="truncated",
        tokens=13,
    ),
    Shape(
        "choices",
        (Meaning((Text(WORDS),)), Meaning((Text("No 🌧. At all."),))),
        _for("chat", "completions", n=2, temperature=1),
    ),
    Shape(
        "choices_of_calls",
        (Meaning((CALL,)), Meaning((Text(WORDS),))),
        _for("chat", n=2, temperature=1),
        ("tools",),
        tools=True,
    ),
    Shape("log_probabilities", (Meaning((Text(WORDS),)),), COUNTED),
    Shape("usage", (Meaning((Text(WORDS),)),), _for("chat", "completions", stream_options=USAGE)),
)


@dataclass(frozen=True)
class Asked:
    """A server whose answers are checked.

    Attributes:
        endpoint: its address, with the header of the book.
        model: the model's name.
        check: returns the plugin's check with a name (`check_body`, `check_stream`, `check_same`).
        more: further fields of each request.
        at_once: the number of streams that run at a time.
    """

    endpoint: Endpoint
    model: str
    check: Callable[[str], Callable[..., None]]
    more: Mapping[str, Any] = field(default_factory=dict)
    at_once: int = AT_ONCE

    def problems(self, shape: Shape, api: BoundaryApi, codes: Sequence[str]) -> dict[str, list[str]]:
        """Requests a body, and a stream in each delivery; returns what is wrong, with the deliveries."""
        at_once = self.at_once if len(shape.says) == 1 else SEEDED_AT_ONCE
        with http_client(self.endpoint) as client, ThreadPoolExecutor(at_once) as pool:

            def sent(code: str) -> Exchange:
                body = shape.request(api, self.model, stream=bool(code), **self.more)
                header = {DELIVERY_HEADER: code} if code else {}
                return send(client, Outgoing(self.endpoint, PATHS[api], body, header))

            body = sent("")  # alone, so that the streams find the prompt in the cache
            assert body.ok, body.content
            streams = pool.map(sent, codes)
            found: dict[str, list[str]] = defaultdict(list)
            for code, stream in zip(codes, streams, strict=True):
                for problem in self._problems_of(api, stream, body):
                    found[problem].append(code)
        return dict(found)

    def _problems_of(self, api: BoundaryApi, stream: Exchange, body: Exchange) -> Iterator[str]:
        if not stream.ok or stream.events is None:
            yield f"{stream.status} {stream.broken} {stream.content[:300]!r}"
            return
        yield from _differences_of(api, stream, body.body or {})
        if api == "completions":
            return
        # the text of chat, reasoning included, is compared above, where empty equals absent
        ignore = {"chat": (*COMPARED, "reasoning"), "messages": NO_STOP_SEQUENCE, "responses": ()}[api]
        for check, *given in (
            ("check_stream", stream.events),
            ("check_same", stream.events, body.body),
        ):
            named = {"api": api, "request": stream.request} if check == "check_stream" else {"ignore": ignore}
            try:
                self.check(check)(*given, **named)
            except AssertionError as error:
                yield from OWN_PARTS.sub("", str(error)).splitlines()


def expect_none(problems: Mapping[str, Sequence[str]]) -> None:
    """Fails with all problems, each with the deliveries that show it."""
    assert not problems, "\n".join(
        f"{problem} [{len(codes)} deliveries: {', '.join(codes[:SHOWN])}]"
        for problem, codes in problems.items()
    )


def written(
    script: ScriptWriter | Callable[..., Any],
    shape: Shape,
    api: BoundaryApi,
    *,
    harmony: bool,
    times: int | None = None,
) -> int:
    """Scripts a shape for any number of requests; returns the number of tokens of the longest choice."""
    script_ = script(
        choices=shape.content(api, harmony=harmony),
        times=times,
        expect=shape.expect,
        constrained=shape.constrained or shape.tools,  # without the blank lines before a call
    )
    return max(map(len, script_.takes))


def _differences_of(api: BoundaryApi, stream: Exchange, body: Mapping[str, Any]) -> Iterator[str]:
    """Compares what `check_same` leaves out: the text of chat, log-probabilities, all of completions."""
    events = stream.json_events
    if api == "completions":
        yield from _differing(_completion(events), _completion([body]))
    elif api == "chat":
        whole = ChatCompletion.model_validate(body)
        chunks = [ChatCompletionChunk.model_validate(event) for event in events]
        for index in range(len(whole.choices)):
            own, other = streamed(chunks, index), output_of(whole, index)
            if own != other:
                yield f"choice {index}: stream {own}, body {other}"
        yield from _differing(_chat_logprobs(events, "delta"), _chat_logprobs([body], "message"))
    elif api == "responses":
        deltas = [event for event in events if event["type"] == "response.output_text.delta"]
        parts = [part for item in body["output"] if item["type"] == "message" for part in item["content"]]
        yield from _differing(_entries(deltas), _entries(parts))


def _completion(events: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    whole: dict[str, Any] = defaultdict(
        lambda: {"text": "", "finish": [], "tokens": [], "offsets": [], "values": []}
    )
    for event in events:
        for choice in event["choices"]:
            own = whole[str(choice["index"])]
            own["text"] += choice["text"]
            own["finish"] += (
                [choice["finish_reason"], choice["stop_reason"]] if choice["finish_reason"] else []
            )
            counted = choice.get("logprobs") or {}
            own["tokens"] += counted.get("tokens", [])
            own["offsets"] += counted.get("text_offset", [])
            own["values"] += counted.get("token_logprobs", [])
    usage = events[-1].get("usage") or {}
    return {
        **whole,
        "usage": {name: usage.get(name) for name in ("prompt_tokens", "completion_tokens", "total_tokens")},
    }


def _chat_logprobs(events: Sequence[Mapping[str, Any]], part: str) -> dict[str, Any]:
    found: dict[str, list[Any]] = defaultdict(list)
    for event in events:
        for choice in event["choices"]:
            found[str(choice["index"])] += (choice.get("logprobs") or {}).get("content") or ()
    return {index: _entries([{"logprobs": entries}]) for index, entries in found.items()}


def _entries(parts: Sequence[Mapping[str, Any]]) -> list[Any]:
    entries = [entry for part in parts for entry in part.get("logprobs") or ()]
    return [{"token": entry["token"], "value": entry["logprob"]} for entry in entries]


def _differing(stream: Any, body: Any) -> Iterator[str]:
    for difference in differences(stream, body):
        left, right = difference.left, difference.right
        near = isinstance(left, float) and isinstance(right, float) and abs(left - right) < NOISE
        if not near:
            yield f"{difference.path}: stream {left!r}, body {right!r}"
