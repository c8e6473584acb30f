"""Script books: what the model generates for each request, given as meaning, raw text or token ids."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from vllm_harness._configuration.model_entries import ModelEntry
from vllm_harness._errors import HarnessError, UsageError
from vllm_harness._exchange.delivery import Delivery, delivery_of, not_held
from vllm_harness._exchange.endpoint import Endpoint
from vllm_harness._scripted.encoding import BookError, Content, Plain, call, checked, combined, encode
from vllm_harness._scripted.in_server import vllm_harness_names as names
from vllm_harness._scripted.meaning import Raw, ToolCall
from vllm_harness._scripted.quoting import Quoting
from vllm_harness._scripted.when import When

if TYPE_CHECKING:
    from openai import AsyncOpenAI, OpenAI

__all__ = [
    "BookError",
    "BookRule",
    "Content",
    "Expectation",
    "Plain",
    "Quoting",
    "Raw",
    "Script",
    "ScriptBook",
    "ScriptError",
    "When",
]

Expectation = Literal["done", "truncated", "refused", "cut"]
"""The state in which a script should end; `cut` is the old name of `truncated`, accepted until 0.2."""
_OLD_NAMES: dict[Expectation, Expectation] = {"cut": "truncated"}


class ScriptError(HarnessError):
    """A script was unused, truncated, refused or overrun; the message names the script and the position."""

    __module__ = "vllm_harness"


@dataclass(frozen=True)
class BookRule:
    """A rule of a script book: which requests it answers, and what the model generates for them.

    Attributes:
        name: the rule's name in reports.
        takes: what is generated: an item for each choice or generation of a request.
        when: the conditions that a request must meet.
        case: a named group in a pattern of `when`, whose text selects the answer; empty for none.
        of: with `case`, the answer for each text; for any other text, `takes` is the answer, if not empty.
        times: the number of requests that the rule answers; None for any number.
        by_choice: whether `takes` are for the choices of a request (`n`), not for successive generations.
        constrained: whether a grammar constrains the model.
        limit: the largest number of tokens in an answer; None for the request's own limit.
        delivery: the chunks of a streamed answer; None if vLLM may merge tokens that it has not sent yet.
        expect: the state in which the script should end.
        keep_prompt: whether the prompts and sampling parameters of the rule's generations are kept.
        keep_uses: whether the book's report lists the rule's uses; if not, the server's memory does not grow.
        where: the file and line of a rule that comes from a file.
    """

    name: str
    takes: tuple[Content, ...]
    when: When = field(default_factory=When)
    case: str = ""
    of: Mapping[str, Content] = field(default_factory=dict)
    times: int | None = 1
    by_choice: bool = True
    constrained: bool = False
    limit: int | None = None
    delivery: Delivery | None = None
    expect: Expectation = "done"
    keep_prompt: bool = False
    keep_uses: bool = True
    where: str = ""


@dataclass(frozen=True)
class Script:
    """A script as the server stores it.

    Attributes:
        name: the script's name in reports.
        takes: the token ids of each take; in a take that quotes the request, `x` replaces each group.
        expect: the state in which the script should end.
        ended_early: whether a take lacked a stop token at its end, so that one was appended.
    """

    name: str
    takes: tuple[tuple[int, ...], ...]
    expect: Expectation
    ended_early: bool


class ScriptBook:
    """An ordered list of rules on one server; the first matching rule that is not used up answers a request.

    Args:
        endpoint: the server's address.
        entry: the server's model entry, which determines the dialect and the stop tokens.
        name: the book's name, which requests send in the header `x-vllm-harness-book`; requests without that
            header are answered by the book `default`.
        clients: the address to which clients send their requests, if a gateway is in front of the server.
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
        self.entry = entry
        self.name = name or f"book-{uuid.uuid4().hex[:8]}"
        self.scripts: dict[str, Script] = {}

    def script(
        self,
        say: Content | None = None,
        *,
        reasoning: str | None = None,
        calls: Sequence[ToolCall] = (),
        turns: Sequence[Content] = (),
        choices: Sequence[Content] = (),
        when: When | None = None,
        times: int | None = 1,
        name: str | None = None,
        constrained: bool = False,
        delivery: Delivery | str | Sequence[int] | None = None,
        expect: Expectation = "done",
        keep_prompt: bool = False,
    ) -> Script:
        """Adds a rule that says what the model generates.

        Args:
            say: text for the user, a Meaning, Raw text, or token ids.
            reasoning, calls: the reasoning and tool calls of the turn, if `say` is a string or omitted.
            turns: what to generate in each generation, if the server generates several times for a request.
            choices: what to generate for each choice if n > 1; the last is repeated for missing choices.
            when: the conditions that a request must meet; by default any request matches.
            times: the number of requests that the rule answers; None for any number.
            name: the rule's name in reports; by default `script 1`, `script 2`, ...
            constrained: whether a grammar constrains the model (structured output, required or named tools),
                so that the dialect omits whitespace that a grammar forbids.
            delivery: the chunks of a streamed answer, such as `tokens_1`, `cut_at_3_7`, or the number of
                tokens in each chunk; by default vLLM merges tokens that it has not sent yet.
            expect: the state in which it should end: `done`, `truncated` (by a limit, a stop string or the
                client) or `refused`.
            keep_prompt: whether to keep what `prompts` and `sampling` return.

        Raises:
            DialectError: the dialect cannot express the content.
            UsageError: the content is missing or not something that a model can generate, or the book already
                has a script with this name.
        """
        takes = [checked(content) for content in choices or turns or [combined(say, reasoning, calls)]]
        return self.add(
            BookRule(
                name or f"script {len(self.scripts) + 1}",
                tuple(takes),
                when=when or When(),
                times=times,
                by_choice=bool(choices) or not turns,
                constrained=constrained,
                delivery=None if delivery is None else _delivery(delivery),
                expect=expect,
                keep_prompt=keep_prompt,
            )
        )

    def add(self, rule: BookRule) -> Script:
        """Adds a rule. Raises the same errors as `script`."""
        if rule.name in self.scripts:
            raise UsageError(
                f"book {self.name!r} already has a script {rule.name!r}", hint="give the new one another name"
            )
        script, wire = self._encoded(rule)
        self._call("POST", names.BOOKS_PATH + self.name, {"rules": [wire]})
        self.scripts[script.name] = script
        return script

    def replace(self, rules: Sequence[BookRule], source: str = "") -> None:
        """Replaces all rules of the book at once.

        Args:
            source: the file that the rules come from; empty if they come from code.

        Raises:
            DialectError: the dialect cannot express a rule; the book keeps its current rules.
        """
        encoded = [self._encoded(rule) for rule in rules]
        body = {"rules": [wire for _, wire in encoded], "source": source}
        self._call("PUT", names.BOOKS_PATH + self.name, body)
        self.scripts = {script.name: script for script, _ in encoded}

    def reset(self) -> None:
        """Makes every rule available again for as many requests as its `times` allows."""
        self._call("POST", names.RESET_PATH + self.name)

    def answered(self, after: int = 0) -> list[dict[str, Any]]:
        """The requests, of all books, that the server answered after request number `after`."""
        requests: list[dict[str, Any]] = self._call("GET", f"{names.LOG_PATH}{after}")["requests"]
        return requests

    @property
    def endpoint(self) -> Endpoint:
        """The address and the headers of requests that this book answers."""
        return replace(self._clients, headers=(*self._clients.headers, (names.BOOK_HEADER, self.name)))

    def client(self, **options: Any) -> OpenAI:
        """A sync `openai` client whose requests are answered from this book."""
        return self.endpoint.client(**options)

    def async_client(self, **options: Any) -> AsyncOpenAI:
        """An async `openai` client whose requests are answered from this book."""
        return self.endpoint.async_client(**options)

    def report(self) -> dict[str, Any]:
        """The scripts that are not used up, and each use's outcome: `{"left": [...], "uses": [...]}`."""
        return self._call("GET", names.BOOKS_PATH + self.name)

    def prompts(self, script: str = "") -> list[list[int]]:
        """The token ids of each generation's prompt, for scripts with `keep_prompt`.

        Args:
            script: the name of the only script to include; empty for all scripts.
        """
        return self._kept("prompts", script)

    def sampling(self, script: str = "") -> list[dict[str, Any]]:
        """The sampling parameters that the engine received, for scripts with `keep_prompt`.

        Args:
            script: the name of the only script to include; empty for all scripts.
        """
        return self._kept("sampling", script)

    def _kept(self, key: str, script: str) -> list[Any]:
        uses = self.report()["uses"]
        return [value for use in uses if script in ("", use["script"]) for value in use[key]]

    def decode(self, ids: list[int]) -> str:
        """Decodes token ids, special tokens included."""
        return str(self._call("POST", "/detokenize", {"model": self.entry.name, "tokens": ids})["prompt"])

    def verify(self) -> None:
        """Raises ScriptError unless every script was used up and ended in the expected state."""
        self._verify(self.report())

    def finish(self) -> None:
        """Removes the book from the server and checks it as `verify` does, in one request."""
        self._verify(self._call("DELETE", names.BOOKS_PATH + self.name))

    def close(self) -> None:
        """Removes the book from the server."""
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
            return [f"script {script.name!r} was used for a request that vLLM refused (HTTP {use['status']})"]
        problems = []
        if (delivery := use["delivery"]) and not delivery["held"]:
            problems.append(f"script {script.name!r}: {not_held(delivery)}")
        for generation in use["generations"]:
            state = "truncated" if generation["state"] == "running" else generation["state"]
            if state == script.expect:
                continue
            place = f"token {generation['position']} of {generation['length']}"
            text = f"script {script.name!r} was {state} at {place}"
            if state == "refused":
                allowed = ", ".join(repr(self.decode([token])) for token in generation["allowed"][:8])
                token = generation["token"]
                refused = "no take for this turn: nothing" if token is None else repr(self.decode([token]))
                text += f": {refused} is not allowed there; allowed instead: {allowed}"
            elif state == "truncated":
                text += ": a token limit, a stop token or string, or the client ended it"
                text += " (expect='truncated' if meant)"
            problems.append(text)
        return problems

    def _encoded(self, rule: BookRule) -> tuple[Script, dict[str, Any]]:
        """Encodes a rule: as a `Script` for this book, and as the JSON object that the server stores."""

        def encoded(content: Content) -> Any:
            return encode(content, self.entry, self._endpoint, constrained=rule.constrained)

        takes = [encoded(take) for take in rule.takes]
        of = {value: encoded(take) for value, take in rule.of.items()}
        all_takes = [*takes, *of.values()]
        script = Script(
            rule.name,
            tuple(take.ids for take in all_takes),
            _OLD_NAMES.get(rule.expect, rule.expect),
            any(take.ended_early for take in all_takes),
        )
        wire = {
            "name": rule.name,
            "where": rule.where,
            "takes": [take.wire for take in takes],
            "by_choice": rule.by_choice,
            "when": rule.when.as_json(),
            "left": rule.times,
            "limit": rule.limit,
            "delivery": rule.delivery and rule.delivery.chunks,
            "keep_prompt": rule.keep_prompt,
            "keep_uses": rule.keep_uses,
        }
        if rule.case:
            wire |= {"case": rule.case, "of": {value: [take.wire] for value, take in of.items()}}
        return script, wire

    def _call(self, method: str, path: str, body: Any = None) -> dict[str, Any]:
        return call(self._endpoint, method, path, body)


def _delivery(value: Delivery | str | Sequence[int]) -> Delivery:
    try:
        delivery = delivery_of(value)
    except ValueError as error:
        raise UsageError(str(error)) from error
    if not delivery.is_held_by_server:
        raise UsageError(
            f"a server cannot deliver an answer as {delivery.chunks!r}",
            hint="name chunks, such as tokens_1, all, cut_at_3_7, cut_after_12, or [1, 4, 2]",
        )
    return delivery
