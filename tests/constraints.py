"""Tests constraints: which answers a request allows and forbids, on each API, as a body and a stream.

An allowed answer must come back unchanged; a grammar must refuse a forbidden answer at the first wrong token.
A vLLM that ignores a constraint lets the model give the forbidden answer.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, Literal

import pytest
from pydantic import Field
from requests import Response

from tests.apis import APIS, AT_ONCE, PATHS, Api, Json, Said, error_message, known_row, said
from tests.body_and_stream import body_and_stream
from tests.case_files import FOLDER
from vllm_harness import known_defect
from vllm_harness._exchange.endpoint import Endpoint
from vllm_harness._files.located_yaml import read_yaml
from vllm_harness._files.strict import StrictModel
from vllm_harness._scripted.book import Raw, When
from vllm_harness._scripted.dialects import render
from vllm_harness._scripted.meaning import Meaning, ToolCall
from vllm_harness._server.remote import RemoteServer
from vllm_harness._testing.fixtures import ScriptWriter

THOUGHTS = "Hm, a trip. Let me think."
END = "<end>"
PARAMETERS: Json = {
    "type": "object",
    "properties": {"city": {"enum": ["Paris", "Rome"]}, "days": {"type": "integer"}},
    "required": ["city"],
    "additionalProperties": False,
}
PLAIN, AS_JSON = "<|channel|>final<|message|>", "<|channel|>final <|constrain|>json<|message|>"
REFUSED = re.compile(
    r"was refused at token (?P<position>\d+) of \d+: .* does not allow .+; allowed instead: '.+"
)


class Named(StrictModel):
    """Forces one function."""

    name: str


class Allowed(StrictModel):
    """Restricts the choice to some of the tools."""

    allowed: tuple[str, ...]
    mode: Literal["auto", "required"]


class Asks(StrictModel):
    """A constraint, independent of any API.

    Attributes:
        tools: the names of the offered tools, and whether each is strict.
        choice: which of the tools may or must be called.
        parallel: false if at most one call is allowed.
        format: the format of the answer: any JSON object, or a schema.
        structured: vLLM's own `structured_outputs`.
    """

    tools: dict[str, bool] = Field(default_factory=dict)
    choice: Literal["auto", "required"] | Named | Allowed | None = None
    parallel: bool | None = None
    format: Literal["json_object"] | Json | None = None
    structured: Json | None = None

    @property
    def as_json(self) -> bool:
        """Whether a text answer must be JSON, which Harmony states in its header."""
        return self.format is not None or not {"json", "json_object"}.isdisjoint(self.structured or {})


class Call(StrictModel):
    """A tool call that the model makes."""

    name: str
    arguments: Json


class After(StrictModel):
    """The position right after the first occurrence of a text."""

    after: str


class ByFormat(StrictModel):
    """A position in gpt-oss's format (`harmony`) and in those of all other models (`standard`)."""

    harmony: str
    standard: str


class KnownOn(StrictModel):
    """A known defect that an answer shows, on these model entries."""

    id: str
    models: tuple[str, ...] = ()


class Saying(StrictModel):
    """An answer of the model.

    Attributes:
        id: the name of the answer, unique within the row.
        text, calls: the text, or the calls.
        joined: whether to omit the newline between calls, which the grammar for forced calls forbids.
        wrong: where the answer first breaks the constraint; None if the answer is allowed.
        known: maps an API to the defect that makes vLLM accept a wrong answer or lose an allowed answer.
    """

    id: str
    text: str | None = None
    calls: tuple[Call, ...] = ()
    joined: bool = False
    wrong: str | After | ByFormat | None = None
    known: dict[Api, str | KnownOn] = Field(default_factory=dict)

    @property
    def said(self) -> Said:
        """The text and the calls."""
        return (self.text or "", [(call.name, call.arguments) for call in self.calls])


class Row(StrictModel):
    """A constraint with answers that it allows and answers that it forbids.

    Attributes:
        id: the name of the row.
        covers: the behaviours that the row covers.
        asks: the constraint.
        apis: the APIs that support it.
        needs: the capabilities that the model entry needs.
        allows, forbids: the model answers that the constraint allows and forbids.
    """

    id: str
    covers: tuple[str, ...]
    asks: Asks
    apis: tuple[Api, ...] = APIS
    needs: tuple[str, ...] = ()
    allows: tuple[Saying, ...]
    forbids: tuple[Saying, ...]


@cache
def rows() -> tuple[Row, ...]:
    """Returns the rows of `cases/constraints.yaml`."""
    loaded = read_yaml(FOLDER / "constraints.yaml").data
    return tuple(Row.model_validate(row) for row in loaded)


@dataclass(frozen=True)
class Attempt:
    """An answer that is tested under a constraint, as a body and as a stream.

    Attributes:
        api: the API of the request.
        row, saying: the constraint, and the answer.
        thinks: whether reasoning precedes the answer.
    """

    api: Api
    row: Row
    saying: Saying
    thinks: bool

    @property
    def name(self) -> str:
        """The name in reports; it is also the user message of the requests, which selects the script."""
        return f"{self.api}, {self.row.id}, {self.saying.id}{', after thoughts' if self.thinks else ''}"

    @property
    def allowed(self) -> bool:
        """Whether the constraint allows the answer."""
        return self.saying.wrong is None

    def raw(self, dialect: str) -> str:
        """Returns the raw text that the model generates."""
        meaning = Meaning.of(
            self.saying.text,
            reasoning=THOUGHTS if self.thinks else None,
            calls=tuple(ToolCall(call.name, call.arguments) for call in self.saying.calls),
        )
        text = render(dialect, meaning, constrained=True)
        text = text.replace("</tool_call>\n<", "</tool_call><") if self.saying.joined else text
        return text.replace(PLAIN, AS_JSON) if self.row.asks.as_json else text

    def request(self, model: str, *, stream: bool) -> Json:
        """Returns the body of the request to the API."""
        return {"model": model, "stream": stream, **_REQUESTS[self.api](self.row.asks, self.name)}


def constraints_of(api: Api) -> list[Any]:
    """Returns a pytest parameter for each row with answers to test on an API."""
    return [
        pytest.param(
            row,
            id=row.id,
            marks=[pytest.mark.vllm_needs(api, *row.needs), pytest.mark.covers(*row.covers)],
        )
        for row in rows()
        if api in row.apis and _tried(api, row)
    ]


def _tried(api: Api, row: Row) -> list[Saying]:
    """Returns the row's answers without those that a known defect affects."""
    return [saying for saying in (*row.allows, *row.forbids) if api not in saying.known]


def _attempts(api: Api, row: Row, saying: Saying, capabilities: Collection[str]) -> Iterator[Attempt]:
    """Yields the answer; the first allowed, first forbidden and last forbidden also after reasoning.

    The last forbidden answer breaks the constraint late: in the arguments, in a second call, or after a call.
    """
    yield Attempt(api, row, saying, thinks=False)
    if saying in (row.allows[0], row.forbids[0], row.forbids[-1]) and "reasoning" in capabilities:
        yield Attempt(api, row, saying, thinks=True)


def known_sayings() -> list[Any]:
    """Returns a pytest parameter (API, row, answer) for each answer on which an API shows a known defect."""
    return [
        known_row(_mark(defect), api, row, saying)
        for row in rows()
        for saying in (*row.allows, *row.forbids)
        for api, defect in saying.known.items()
    ]


def _mark(known: str | KnownOn) -> pytest.MarkDecorator:
    return known_defect(known) if isinstance(known, str) else known_defect(known.id, models=known.models)


@dataclass(frozen=True)
class Constraints:
    """Tests answers under constraints on a server.

    Attributes:
        server: the server.
        http: the server's endpoint, whose answers the test's scripts determine.
        script: scripts the model's answers.
    """

    server: RemoteServer
    http: Endpoint
    script: ScriptWriter

    def check(self, api: Api, row: Row) -> None:
        """Tests all answers of a row over an API; fails with a line for each unexpected result."""
        self._check(api, row, _tried(api, row))

    def check_known(self, api: Api, row: Row, saying: Saying) -> None:
        """Tests one answer that a known defect affects."""
        self._check(api, row, [saying])

    def _check(self, api: Api, row: Row, sayings: Iterable[Saying]) -> None:
        capabilities = self.server.entry.capabilities
        tried = [attempt for saying in sayings for attempt in _attempts(api, row, saying, capabilities)]
        with ThreadPoolExecutor(AT_ONCE) as pool:
            wrong = [line for lines in pool.map(self._try, tried) for line in lines]
        assert not wrong, "\n".join(wrong)

    def _try(self, attempt: Attempt) -> list[str]:
        raw = attempt.raw(self.server.entry.dialect or "")
        written = self.script(
            Raw(raw),
            name=attempt.name,
            when=When(user=f"^{re.escape(attempt.name)}$"),
            times=2,
            expect="done" if attempt.allowed else "refused",
        )
        assert written is not None

        @cache
        def token(position: int) -> tuple[int, int]:
            """Returns the start and end of a token in characters; body and stream share the cache."""
            ids = written.takes[0]
            return len(self._text(ids[:position])), len(self._text(ids[: position + 1]))

        def problem(answer: Response) -> str | None:
            if attempt.allowed:
                content = said(attempt.api, answer) if answer.status_code == 200 else answer.text[:300]
                return None if content == attempt.saying.said else f"came as {content}"
            refused = REFUSED.search(error_message(answer))
            if refused is None:
                return f"the model may say {attempt.saying.said}: {answer.text[-300:]}"
            place = _place(attempt, raw, harmony=self.server.entry.harmony)
            start, end = token(int(refused["position"]))
            return None if start <= place < end else f"refused after {raw[:start]!r}: {refused[0]}"

        def answer(*, stream: bool) -> Response:
            request = attempt.request(self.server.model, stream=stream)
            return self.http.post(PATHS[attempt.api], json=request)

        answers = body_and_stream(partial(answer, stream=False), partial(answer, stream=True), exact=True)
        return [
            f"{attempt.name}, {way}: {fault}"
            for way, came in zip(("body", "streamed"), answers, strict=True)
            if (fault := problem(came))
        ]

    def _text(self, ids: Sequence[int]) -> str:
        body = {"model": self.server.model, "tokens": list(ids)}
        return str(self.http.post("/detokenize", json=body).json()["prompt"])


def _place(attempt: Attempt, raw: str, *, harmony: bool) -> int:
    """Returns the character position at which the model first breaks the constraint."""
    wrong, begin = attempt.saying.wrong, raw.find(THOUGHTS) + len(THOUGHTS) if attempt.thinks else 0
    if wrong == END:
        return len(raw) - 1
    if isinstance(wrong, After):
        return raw.index(wrong.after, begin) + len(wrong.after)
    text = wrong if isinstance(wrong, str) else wrong.harmony if harmony else wrong.standard  # type: ignore[union-attr]
    after_header = raw.index(PLAIN, begin) if harmony and text == "<|message|>" else begin
    return raw.index(text, after_header)


def _for_responses(asks: Asks, question: str) -> Json:
    request: Json = {"input": question}
    if asks.tools:
        request["tools"] = [{"type": "function", **_function(*tool)} for tool in asks.tools.items()]
    if isinstance(asks.choice, Allowed):
        tools = [{"type": "function", "name": name} for name in asks.choice.allowed]
        request["tool_choice"] = {"type": "allowed_tools", "mode": asks.choice.mode, "tools": tools}
    elif isinstance(asks.choice, Named):
        request["tool_choice"] = {"type": "function", "name": asks.choice.name}
    elif asks.choice:
        request["tool_choice"] = asks.choice
    if asks.format == "json_object":
        request["text"] = {"format": {"type": "json_object"}}
    elif asks.format is not None:
        request["text"] = {"format": {"type": "json_schema", "name": "trip", "schema": asks.format}}
    return request | _common(asks)


def _for_chat(asks: Asks, question: str) -> Json:
    request: Json = {"messages": [{"role": "user", "content": question}]}
    if asks.tools:
        tools = [{"type": "function", "function": _function(*tool)} for tool in asks.tools.items()]
        request["tools"] = tools
    if isinstance(asks.choice, Named):
        request["tool_choice"] = {"type": "function", "function": {"name": asks.choice.name}}
    elif asks.choice:
        request["tool_choice"] = asks.choice
    if asks.format == "json_object":
        request["response_format"] = {"type": "json_object"}
    elif asks.format is not None:
        schema = {"name": "trip", "schema": asks.format}
        request["response_format"] = {"type": "json_schema", "json_schema": schema}
    return request | _common(asks)


def _common(asks: Asks) -> Json:
    parallel = {} if asks.parallel is None else {"parallel_tool_calls": asks.parallel}
    return parallel | ({"structured_outputs": asks.structured} if asks.structured else {})


def _for_messages(asks: Asks, question: str) -> Json:
    request: Json = {"messages": [{"role": "user", "content": question}], "max_tokens": 500}
    if asks.tools:
        request["tools"] = [
            {"name": name, "input_schema": PARAMETERS, "strict": strict}
            for name, strict in asks.tools.items()
        ]
    if asks.choice:
        choice: Json = {"type": {"auto": "auto", "required": "any"}.get(str(asks.choice), "tool")}
        named = {"name": asks.choice.name} if isinstance(asks.choice, Named) else {}
        single = {"disable_parallel_tool_use": True} if asks.parallel is False else {}
        request["tool_choice"] = choice | named | single
    if asks.format is not None:
        request["output_config"] = {"format": {"type": "json_schema", "schema": asks.format}}
    return request


def _function(name: str, strict: bool) -> Json:
    return {"name": name, "parameters": PARAMETERS, "strict": strict}


_REQUESTS: dict[Api, Callable[[Asks, str], Json]] = {
    "responses": _for_responses,
    "chat": _for_chat,
    "messages": _for_messages,
}


@pytest.fixture
def constraints(vllm_server: RemoteServer, http: Endpoint, script: ScriptWriter) -> Constraints:
    """Tests answers under constraints on the server."""
    return Constraints(vllm_server, http, script)
