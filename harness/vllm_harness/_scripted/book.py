"""Script books: what the model generates for which request, given as meaning, raw text or token ids."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal, TypeGuard

import requests

from vllm_harness._configuration.model_entries import ModelEntry
from vllm_harness._errors import HarnessError, UsageError
from vllm_harness._exchange.endpoint import Endpoint
from vllm_harness._scripted.dialects import markers, render
from vllm_harness._scripted.in_server import vllm_harness_names as names
from vllm_harness._scripted.meaning import Meaning, Raw, ToolCall
from vllm_harness._scripted.quoting import Quoting, pieces, sample
from vllm_harness._scripted.standin import vocabulary
from vllm_harness._scripted.when import When

if TYPE_CHECKING:
    from openai import AsyncOpenAI, OpenAI

__all__ = [
    "BookError",
    "BookRule",
    "Expectation",
    "Plain",
    "Quoting",
    "Raw",
    "Say",
    "Script",
    "ScriptBook",
    "ScriptError",
    "When",
    "check_ids",
    "raw_text",
]

Expectation = Literal["done", "cut", "refused"]
_OWN = {names.OWN_HEADER: "1"}


class ScriptError(HarnessError):
    """A script was not followed: unused, cut, refused or overrun; the message names it and the position."""

    __module__ = "vllm_harness"


class BookError(HarnessError):
    """The server does not accept a book, or does not report on it."""


Plain = str | Meaning | Raw | Sequence[int]
"""What the model generates: a text for the user, a meaning, raw text or token ids."""
Say = Plain | Quoting
"""The same, or an answer that quotes the request."""


@dataclass(frozen=True)
class BookRule:
    """What the model generates for which request.

    Attributes:
        name: for reports.
        takes: what is generated; several where the server generates several times for a request.
        when: which requests it is for.
        case: a named group of `when`, by whose text the answer is chosen; empty for none.
        of: with `case`, the answer for each text; `takes` for any other text, or none.
        times: how many requests it serves; None for any number.
        by_choice: whether several takes are for the choices of n > 1, not for successive generations.
        constrained: whether a grammar holds the model.
        limit: how many tokens an answer has at most; None for what the request says.
        expect: the state in which it should end.
        keep_prompt: whether the prompts of its generations are kept, and their sampling parameters.
        keep_uses: whether the book's report holds its uses; without them a server's memory does not grow.
        where: file and line, where it comes from a file.
    """

    name: str
    takes: tuple[Say, ...]
    when: When = field(default_factory=When)
    case: str = ""
    of: Mapping[str, Say] = field(default_factory=dict)
    times: int | None = 1
    by_choice: bool = True
    constrained: bool = False
    limit: int | None = None
    expect: Expectation = "done"
    keep_prompt: bool = False
    keep_uses: bool = True
    where: str = ""


@dataclass(frozen=True)
class Script:
    """A script as the server stores it.

    Attributes:
        name: shown in every report.
        takes: token ids of each take; of what quotes the request, with an `x` in the place of each group.
        expect: the state in which it should end; `done` unless a test cuts it or wants it refused.
        ended_early: whether its own tokens lacked a stop token, so that one was appended.
    """

    name: str
    takes: tuple[tuple[int, ...], ...]
    expect: Expectation
    ended_early: bool


@dataclass(frozen=True)
class _Encoded:
    """A take: its token ids, or a sample of them; whether a stop was appended; what the server stores."""

    ids: tuple[int, ...]
    ended_early: bool
    wire: list[int] | dict[str, Any]


class ScriptBook:
    """Rules in order on one server; a request takes the first that matches and is not used up.

    Args:
        endpoint: the server's address.
        entry: its model entry: dialect and stop tokens.
        name: requests name it in the header `x-vllm-harness-book`; those without the header get the book
            `default`.
        clients: where its clients send their requests, if something stands before the server.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        entry: ModelEntry,
        *,
        name: str | None = None,
        clients: Endpoint | None = None,
    ) -> None:
        self._endpoint = endpoint
        self._clients = clients or endpoint
        self._entry = entry
        self.name = name or f"book-{uuid.uuid4().hex[:8]}"
        self.scripts: dict[str, Script] = {}

    def script(
        self,
        say: Say | None = None,
        *,
        reasoning: str | None = None,
        calls: Sequence[ToolCall] = (),
        turns: Sequence[Say] = (),
        choices: Sequence[Say] = (),
        when: When | None = None,
        times: int | None = 1,
        name: str | None = None,
        constrained: bool = False,
        expect: Expectation = "done",
        keep_prompt: bool = False,
    ) -> Script:
        """Adds a rule: what the model generates.

        Args:
            say: a text for the user, a Meaning, Raw text, or token ids.
            reasoning, calls: with a plain text or without text: the common shape of a meaning.
            turns: for a request in which the server generates several times: a take for each generation.
            choices: for n > 1: a take for each choice; with fewer takes, the last serves the other choices.
            when: which requests it is for; by default any.
            times: how many requests it serves; None for any number.
            name: for reports; by default `script 1`, `script 2`, ...
            constrained: whether the request puts a grammar on the model (structured output, required or named
                tools), so that the dialect leaves out blanks that a grammar forbids.
            expect: the state in which it should end: `done`, or `cut` (a limit, a stop string or the client
                ends it), or `refused`.
            keep_prompt: whether `prompts` and `sampling` are to have what its generations were given.

        Raises:
            DialectError: the dialect cannot express it.
            UsageError: nothing is said, or what no model can say, or the book has a script of this name.
        """
        takes = [_sayable(each) for each in choices or turns or [_plain(say, reasoning, calls)]]
        return self.add(
            BookRule(
                name or f"script {len(self.scripts) + 1}",
                tuple(takes),
                when=when or When(),
                times=times,
                by_choice=bool(choices) or not turns,
                constrained=constrained,
                expect=expect,
                keep_prompt=keep_prompt,
            )
        )

    def add(self, rule: BookRule) -> Script:
        """Adds a rule; raises as `script` does."""
        if rule.name in self.scripts:
            raise UsageError(
                f"book {self.name!r} has a script {rule.name!r} already", hint="give the new one another name"
            )
        script, wire = self._written(rule)
        self._call("POST", names.BOOKS_PATH + self.name, {"rules": [wire]})
        self.scripts[script.name] = script
        return script

    def replace(self, rules: Sequence[BookRule], source: str = "") -> None:
        """Puts rules in the place of those that the book has, all at once.

        Args:
            source: the file that they come from.

        Raises:
            DialectError: the dialect cannot express one; the book keeps the rules that it has.
        """
        written = [self._written(rule) for rule in rules]
        body = {"rules": [wire for _, wire in written], "source": source}
        self._call("PUT", names.BOOKS_PATH + self.name, body)
        self.scripts = {script.name: script for script, _ in written}

    def reset(self) -> None:
        """Lets each rule serve as many requests again as its `times` says."""
        self._call("POST", names.RESET_PATH + self.name)

    def answered(self, after: int = 0) -> list[dict[str, Any]]:
        """The requests that the server answered after one, by its number; those of all books."""
        found: list[dict[str, Any]] = self._call("GET", f"{names.LOG_PATH}{after}")["requests"]
        return found

    @property
    def entry(self) -> ModelEntry:
        """The model entry of its server."""
        return self._entry

    @property
    def endpoint(self) -> Endpoint:
        """Where requests are sent that this book answers."""
        return replace(self._clients, headers=(*self._clients.headers, (names.BOOK_HEADER, self.name)))

    def client(self, **options: Any) -> OpenAI:
        """A sync client whose requests are answered from this book."""
        return self.endpoint.client(**options)

    def async_client(self, **options: Any) -> AsyncOpenAI:
        """An async client whose requests are answered from this book."""
        return self.endpoint.async_client(**options)

    def report(self) -> dict[str, Any]:
        """The scripts that are left, and what became of each use: `{"left": [...], "uses": [...]}`."""
        return self._call("GET", names.BOOKS_PATH + self.name)

    def prompts(self, script: str = "") -> list[list[int]]:
        """The prompts that were kept, as the token ids that the model was given, by generation.

        Args:
            script: whose; empty: of all.
        """
        return self._kept("prompts", script)

    def sampling(self, script: str = "") -> list[dict[str, Any]]:
        """The sampling parameters that were kept with the prompts, as the engine was given them.

        Args:
            script: whose; empty: of all.
        """
        return self._kept("sampling", script)

    def _kept(self, what: str, script: str) -> list[Any]:
        uses = self.report()["uses"]
        return [kept for use in uses if script in ("", use["script"]) for kept in use[what]]

    def decode(self, ids: list[int]) -> str:
        """The text of token ids, special tokens and all."""
        return str(self._call("POST", "/detokenize", {"model": self._entry.name, "tokens": ids})["prompt"])

    def verify(self) -> None:
        """Raises ScriptError unless every script was used and ended in the state that was expected."""
        self._verify(self.report())

    def finish(self) -> None:
        """Drops the book from the server, and raises what `verify` does; in one request."""
        self._verify(self._call("DELETE", names.BOOKS_PATH + self.name))

    def close(self) -> None:
        """Drops the book from the server."""
        self._call("DELETE", names.BOOKS_PATH + self.name)

    def _verify(self, report: dict[str, Any]) -> None:
        problems = [f"script {name!r} was never used" for name in report["left"]]
        for use in report["uses"]:
            script = self.scripts.get(use["script"])
            if script is not None:
                problems += self._problems(script, use)
        if problems:
            raise ScriptError("; ".join(problems))

    def _problems(self, script: Script, use: dict[str, Any]) -> list[str]:
        if not use["generations"]:
            return [f"script {script.name!r} was taken by a request that vLLM refused (HTTP {use['status']})"]
        found = []
        for generation in use["generations"]:
            state = "cut" if generation["state"] == "running" else generation["state"]
            if state == script.expect:
                continue
            place = f"token {generation['position']} of {generation['length']}"
            text = f"script {script.name!r} was {state} at {place}"
            if state == "refused":
                allowed = ", ".join(repr(self.decode([token])) for token in generation["allowed"][:8])
                text += (
                    f": {self._decode_one(generation['token'])} is not allowed there, allowed are {allowed}"
                )
            elif state == "cut":
                text += (
                    ": a token limit, a stop token or string, or the client ended it (expect='cut' if meant)"
                )
            found.append(text)
        return found

    def _written(self, rule: BookRule) -> tuple[Script, dict[str, Any]]:
        """A rule as it is kept here, and as the server stores it."""
        takes = [self._encode(take, rule.constrained) for take in rule.takes]
        of = {value: self._encode(take, rule.constrained) for value, take in rule.of.items()}
        encoded = [*takes, *of.values()]
        script = Script(
            rule.name,
            tuple(take.ids for take in encoded),
            rule.expect,
            any(take.ended_early for take in encoded),
        )
        wire = {
            "name": rule.name,
            "where": rule.where,
            "takes": [take.wire for take in takes],
            "by_choice": rule.by_choice,
            "when": rule.when.as_json(),
            "left": rule.times,
            "limit": rule.limit,
            "keep_prompt": rule.keep_prompt,
            "keep_uses": rule.keep_uses,
        }
        if rule.case:
            wire |= {"case": rule.case, "of": {value: [take.wire] for value, take in of.items()}}
        return script, wire

    def _encode(self, say: Say, constrained: bool) -> _Encoded:
        if isinstance(say, Quoting):
            return self._encode_quoting(say, constrained)
        if _is_ids(say):
            check_ids(say, self._entry)
        tokenizer = self._endpoint, self._entry.name
        ids = list(say if _is_ids(say) else _tokenized(*tokenizer, self._raw_text(say, constrained)))
        early = not (ids and ids[-1] in self._stop_ids())
        ids += _tokenized(*tokenizer, self._stand_in().stop) if early else ()
        return _Encoded(tuple(ids), early, ids)

    def _encode_quoting(self, say: Quoting, constrained: bool) -> _Encoded:
        like = self._encode(sample(say), constrained)
        assert self._entry.dialect is not None
        found = pieces(say, lambda each: self._raw_text(each, constrained), markers(self._entry.dialect))
        end = [self._stand_in().stop] if like.ended_early else []
        return _Encoded(like.ids, like.ended_early, {"pieces": [*found, *end]})

    def _raw_text(self, say: Any, constrained: bool) -> str:
        return raw_text(self._entry, say, constrained=constrained)

    def _stop_ids(self) -> set[int]:
        eos = self._stand_in().generation_config.get("eos_token_id", [])
        return set(eos if isinstance(eos, list) else [eos])

    def _stand_in(self) -> Any:
        if self._entry.stand_in is None:
            raise UsageError(
                f"model {self._entry.name!r} has no stand_in, so it cannot be scripted",
                hint="use a model that has one; `vllm-harness models` lists the lanes of each",
            )
        return self._entry.stand_in

    def _decode_one(self, token: int | None) -> str:
        return "no take for this turn: nothing" if token is None else repr(self.decode([token]))

    def _call(self, method: str, path: str, body: Any = None) -> dict[str, Any]:
        return _called(self._endpoint, method, path, body)


@lru_cache(maxsize=256)
def _tokenized(endpoint: Endpoint, model: str, text: str) -> tuple[int, ...]:
    """A text's token ids, by the server's own tokenizer, which is asked once for each text."""
    if not text:
        return ()
    body = {"model": model, "prompt": text, "add_special_tokens": False}
    return tuple(int(token) for token in _called(endpoint, "POST", "/tokenize", body)["tokens"])


def _called(endpoint: Endpoint, method: str, path: str, body: Any) -> dict[str, Any]:
    try:
        answer = endpoint.request(method, path, json=body, headers=_OWN)
        answer.raise_for_status()
        result: dict[str, Any] = answer.json()
    except (requests.RequestException, ValueError) as error:
        raise BookError(
            f"{method} {endpoint.url_for(path)}: {error}",
            hint="is this a server of the scripted lane, and does it still run?",
        ) from error
    return result


def _plain(say: Say | None, reasoning: str | None, calls: Sequence[ToolCall]) -> Say:
    if say is None and reasoning is None and not calls:
        raise UsageError(
            "a script needs a text, reasoning, calls, a Meaning, Raw text or token ids",
            hint='say what the model answers, such as script("Hello.")',
        )
    if say is None or isinstance(say, str):
        return Meaning.of(say, reasoning=reasoning, calls=tuple(calls))
    if reasoning is not None or calls:
        raise UsageError(
            "reasoning and calls go with a plain text, not with a Meaning, Raw text or token ids",
            hint="put them into the Meaning or the raw text",
        )
    return say


def _sayable(say: Say) -> Say:
    if isinstance(say, (str, Meaning, Raw, Quoting)) or _is_ids(say):
        return say
    calls = any(isinstance(each, ToolCall) for each in (say if isinstance(say, Sequence) else [say]))
    raise UsageError(
        f"a script says a text, a Meaning, Raw text or token ids, not {say!r:.200}",
        hint="name the calls: script(calls=[ToolCall(...)])" if calls else "write what the model answers",
    )


def raw_text(entry: ModelEntry, say: str | Meaning | Raw, *, constrained: bool = False) -> str:
    """What the model of an entry generates. Raises DialectError where its dialect cannot express it."""
    if isinstance(say, Raw):
        return say.text
    assert entry.dialect is not None
    meaning = say if isinstance(say, Meaning) else Meaning.of(say)
    return render(entry.dialect, meaning, constrained=constrained)


def check_ids(ids: Sequence[int], entry: ModelEntry) -> None:
    """Raises UsageError where a token id is none of the vocabulary: the request would end the engine."""
    size = vocabulary(entry)
    if wrong := [token for token in ids if not 0 <= token < size]:
        raise UsageError(
            f"{wrong[0]} is no token id of {entry.name}, whose vocabulary ends at {size - 1}",
            hint="give the text as `raw`, or ask the server's /tokenize for its ids",
        )


def _is_ids(say: Say) -> TypeGuard[Sequence[int]]:
    if not isinstance(say, Sequence) or isinstance(say, (str, bytes)):
        return False
    return all(isinstance(token, int) for token in say)
