"""The engine that counts: a real server of each family, scripted, asked over HTTP.

Every case is asked among others; one that comes out wrong is asked again alone, and only that answer counts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

import requests

from vllm_harness.configuration.model_entries import Frontend, ModelEntry, load_registry
from vllm_harness.environments.spec import Environment
from vllm_harness.protocol import ChatAccumulator, ResponseAccumulator
from vllm_harness.protocol.core.sse import SSEParser
from vllm_harness.regression.engines.in_process import Call, Case, Parsed
from vllm_harness.regression.results.judge import REFUSED, refused
from vllm_harness.scripted.book import BookRule, Raw, When
from vllm_harness.scripted.families import Family, family_entry
from vllm_harness.scripted.in_server.vllm_harness_names import SCRIPT_REFUSED
from vllm_harness.server.remote import RemoteServer

AT_A_TIME = 32
INTERVALS = {"chat, 3 a chunk": 3, "chat, one chunk": 1000}
"""Ways of asking that need a server of their own: `--stream-interval`."""
NEVER_SAID = "NEVERSAID"
"""A stop string: vLLM holds back as many characters, less one, while it may begin there."""
REQUEST_S = 120.0
_NO_MARKER = str.maketrans("<>[]|｜", "()()!!")
"""A case's name is what the user says, and its markers would stand in the prompt."""
Wrong = Callable[[Parsed], bool]


@dataclass(frozen=True)
class Answered:
    """What a family's servers said.

    Attributes:
        parsed: every case in each of its ways.
        alone: case and way of those that came out otherwise alone than among others.
    """

    parsed: list[Parsed]
    alone: tuple[str, ...]


def answers(
    environment: Environment,
    family: Family,
    cases: Sequence[Case],
    wrong: Wrong,
    *,
    frontend: Frontend = "python",
) -> Answered:
    """Asks a family's cases over HTTP, each in its ways.

    Args:
        cases: those whose ways are in `ASK` or `INTERVALS`.
        wrong: tells which answers are asked for again, alone.
        frontend: which of vLLM's HTTP front ends answers; that in Rust has no Responses.

    Raises:
        StartupError: a server does not start.
    """
    parsed: list[Parsed] = []
    alone: list[str] = []
    entry = entry_of(family)
    for args, ways in _servers(cases, frontend):
        with RemoteServer(entry, lane="scripted", vllm=environment, args=args, frontend=frontend) as server:
            asked = [(case, way) for case in cases for way in case.ways if way in ways]
            asker = _Asker(server, family, [case for case, _ in asked])
            with ThreadPoolExecutor(AT_A_TIME) as pool:
                among = list(pool.map(asker.ask, *zip(*asked, strict=True)))
            for (case, way), answer in zip(asked, among, strict=True):
                again = asker.ask(case, way) if wrong(answer) else answer
                if _unnamed(again, case) != _unnamed(answer, case):
                    alone.append(f"{case.name}: {way}")
                parsed.append(again)
    return Answered(parsed, tuple(alone))


def _unnamed(answer: Parsed, case: Case) -> Parsed:
    """Without the ids that the server made up."""
    if case.ids:
        return answer
    return answer.model_copy(
        update={"calls": tuple(call.model_copy(update={"id": None}) for call in answer.calls)}
    )


def under_load(
    environment: Environment, family: Family, cases: Sequence[Case], *, frontend: Frontend = "python"
) -> Iterator[tuple[Case, str, Parsed, Parsed]]:
    """Asks each case alone, then all at the same time: case, way, both answers."""
    entry = entry_of(family)
    with RemoteServer(entry, lane="scripted", vllm=environment, frontend=frontend) as server:
        asker = _Asker(server, family, cases)
        for way in ("chat", "chat stream"):
            alone = [asker.ask(case, way) for case in cases]
            with ThreadPoolExecutor(len(cases)) as pool:
                together = list(pool.map(asker.ask, cases, [way] * len(cases)))
            for case, one, other in zip(cases, alone, together, strict=True):
                yield case, way, one, other


def entry_of(family: Family) -> ModelEntry:
    """What is served: its stand-in with a tokenizer of ours, or where its format is code, its own."""
    if family.form is None:
        assert family.entry is not None
        return load_registry().get(family.entry)
    return family_entry(family)


def _servers(cases: Sequence[Case], frontend: Frontend) -> Iterator[tuple[tuple[str, ...], tuple[str, ...]]]:
    """The server flags that the ways of these cases need, and which ways each serves."""
    asked = dict.fromkeys(way for case in cases for way in case.ways)
    ways = [way for way in asked if frontend == "python" or not way.startswith("responses")]
    if plain := tuple(way for way in ways if way in ASK):
        yield (), plain
    for way in ways:
        if way in INTERVALS:
            yield ("--stream-interval", str(INTERVALS[way])), (way,)


class _Asker:
    """Asks one server for what each case of one family says; a case's name asks for it."""

    def __init__(self, server: RemoteServer, family: Family, cases: Sequence[Case]) -> None:
        self._server = server
        self._family = family
        self._let_through: dict[tuple[str, bool], int] = {}
        book = server.book()
        says = {
            name: [number for piece in case.pieces for number in self._encoded(piece) or ()]
            if case.quoted
            else Raw(text)
            for case in cases
            for name, text in _texts(case).items()
        }
        for name, say in says.items():
            book.add(BookRule(name, (say,), When(user=rf"^{re.escape(name)}(\n|$)"), times=None))

    def ask(self, case: Case, way: str) -> Parsed:
        """One answer; a refusal, a broken stream or a server error is an error in it.

        Where a grammar refuses what would be said, what may be said instead is tried in turn.
        """
        refusals = []
        for name, text, place in self._in_turn(case, way):
            answer = self._ask(case, way, name)
            if not refused(answer):
                if answer.error is None:
                    self._let_through[way, case.choice == "required"] = place
                return answer if text == case.text else answer.model_copy(update={"said": text})
            refusals.append(answer)
        return refusals[0]

    def _in_turn(self, case: Case, way: str) -> list[tuple[str, str, int]]:
        """What may be said: the words that ask for it, the text, its place; what went through last first."""
        likely = self._let_through.get((way, case.choice == "required"), 0)
        texts = _texts(case)
        first = {text: name for name, text in reversed(texts.items())}
        every = [
            (name, text, place) for place, (name, text) in enumerate(texts.items()) if first[text] == name
        ]
        return sorted(every, key=lambda one: one[2] != likely)

    def _ask(self, case: Case, way: str, name: str) -> Parsed:
        place = {"family": self._family.name, "case": case.name, "way": way}
        try:
            path, body, read = ASK.get(way, _CHAT_STREAM)
            request = {"model": self._server.model, "temperature": 0, **body(case, name)}
            answer = requests.post(
                self._server.url_for(path),
                json={**request, **self._family.request},
                stream=bool(request["stream"]),
                timeout=REQUEST_S,
            )
            if not answer.ok:
                error = answer.json().get("error") or {}
                kind = REFUSED if error.get("code") == SCRIPT_REFUSED else f"HTTP {answer.status_code}"
                return Parsed(**place, error=f"{kind}: {error.get('message')}")
            found = Parsed(**place, **read(answer))
            if found.thought is None:
                return found
            return found.model_copy(update={"spoken": self._tokens(found.reasoning)})
        except (requests.RequestException, ValueError) as error:
            return Parsed(**place, error=f"{type(error).__name__}: {error}")

    def _tokens(self, text: str | None) -> int | None:
        """How many tokens a text is, where the server tells."""
        found = self._encoded(text or "")
        return None if found is None else len(found)

    def _encoded(self, text: str) -> list[int] | None:
        if not text:
            return []
        asked = {"model": self._server.model, "prompt": text, "add_special_tokens": False}
        answer = requests.post(self._server.url_for("/tokenize"), json=asked, timeout=REQUEST_S)
        return [int(number) for number in answer.json()["tokens"]] if answer.ok else None


def _texts(case: Case) -> dict[str, str]:
    """What may be said, the first that the grammar lets through, by the words that ask for it."""
    name = case.name.translate(_NO_MARKER)
    others = {f"{name} ({number})": text for number, text in enumerate(case.instead, start=2)}
    return {name: case.text, **others}


def _chat(case: Case, name: str, *, stream: bool) -> dict[str, Any]:
    tools = {"tools": list(case.tools)} if case.tools else {}
    choice = _choice(case, lambda function: {"type": "function", "function": {"name": function}})
    messages = [{"role": "user", "content": _question(case, name)}]
    return {"messages": messages, "stream": stream, **tools, **choice}


def _responses(case: Case, name: str, *, stream: bool) -> dict[str, Any]:
    flat = [{"type": "function", "strict": False, **tool["function"]} for tool in case.tools]
    choice = _choice(case, lambda function: {"type": "function", "name": function})
    tools = {"tools": flat} if flat else {}
    return {"input": _question(case, name), "stream": stream, "store": False, **tools, **choice}


def _stopped(case: Case, name: str) -> dict[str, Any]:
    return {**_chat(case, name, stream=True), "stop": [NEVER_SAID]}


def _question(case: Case, name: str) -> str:
    """What the user says; its first line is the name that the script goes by."""
    return f"{name}\n{case.asked}" if case.asked else name


def _choice(case: Case, named: Callable[[str], dict[str, Any]]) -> dict[str, Any]:
    if case.choice is None:
        return {}
    given = case.choice in ("none", "auto", "required")
    return {"tool_choice": case.choice if given else named(case.choice)}


def _read_chat(answer: requests.Response) -> dict[str, Any]:
    body = answer.json()
    message = body["choices"][0]["message"]
    reasoning = message.get("reasoning") or message.get("reasoning_content")
    told = _told(reasoning, message.get("content"), _functions(message.get("tool_calls") or ()))
    return {**told, **_thought(body, "completion_tokens_details")}


def _read_chat_stream(answer: requests.Response) -> dict[str, Any]:
    chat = ChatAccumulator()
    error = _feed(answer, chat)
    return _told(chat.reasoning, chat.text, _functions(chat.tool_calls), error)


def _read_responses(answer: requests.Response) -> dict[str, Any]:
    whole = ResponseAccumulator()
    body = answer.json()
    for index, item in enumerate(body["output"]):
        whole.feed({"type": "response.output_item.done", "output_index": index, "item": item})
    told = _told(whole.reasoning, whole.text, whole.tool_calls)
    return {**told, **_thought(body, "output_tokens_details")}


def _read_responses_stream(answer: requests.Response) -> dict[str, Any]:
    response = ResponseAccumulator()
    error = _feed(answer, response)
    return _told(response.reasoning, response.text, response.tool_calls, error)


def _feed(answer: requests.Response, into: ChatAccumulator | ResponseAccumulator) -> str | None:
    """Feeds a stream; tells the error it may end with."""
    parser, error = SSEParser(), None
    for chunk in answer.iter_content(None):
        for event in parser.feed(chunk):
            if event.event == "error" or event.data.startswith('{"error"'):
                kind = REFUSED if f'"{SCRIPT_REFUSED}"' in event.data else "error event"
                error = f"{kind}: {event.data[:300]}"
            into.feed(event)
    return error


def _thought(body: dict[str, Any], details: str) -> dict[str, int]:
    """How many tokens of reasoning a usage counts, where it counts any kind."""
    counted = ((body.get("usage") or {}).get(details) or {}).get("reasoning_tokens")
    return {} if counted is None else {"thought": counted}


def _functions(calls: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{**(call.get("function") or {}), "id": call.get("id")} for call in calls]


def _told(
    reasoning: str | None, content: str | None, calls: Sequence[dict[str, Any]], error: str | None = None
) -> dict[str, Any]:
    found = tuple(
        Call(
            name=call.get("name"),
            arguments=call.get("arguments") or "",
            id=call.get("call_id") or call.get("id"),
        )
        for call in calls
    )
    return {"reasoning": reasoning, "content": content, "calls": found, "error": error}


Way = tuple[str, Callable[[Case, str], dict[str, Any]], Callable[[requests.Response], dict[str, Any]]]
_CHAT_STREAM: Way = ("/v1/chat/completions", partial(_chat, stream=True), _read_chat_stream)
ASK: dict[str, Way] = {
    "chat": ("/v1/chat/completions", partial(_chat, stream=False), _read_chat),
    "chat stream": _CHAT_STREAM,
    "chat stream, stop": ("/v1/chat/completions", _stopped, _read_chat_stream),
    "responses": ("/v1/responses", partial(_responses, stream=False), _read_responses),
    "responses stream": ("/v1/responses", partial(_responses, stream=True), _read_responses_stream),
}
