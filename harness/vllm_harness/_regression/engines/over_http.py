"""The authoritative engine: requests the cases of each family from a real, scripted server over HTTP.

All cases are requested concurrently. If an answer mismatches, its case is requested again alone, and only the
second answer counts. A busy server may send several tokens in one chunk, so a case
that needs a stream of single tokens is requested alone several times.
"""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import Any

from vllm_harness._configuration.model_entries import Frontend, ModelEntry
from vllm_harness._environments.spec import Environment
from vllm_harness._exchange.sending import Outgoing, http_client, send
from vllm_harness._machine.tasks import interrupted_by
from vllm_harness._regression.cases.case import CaseInput
from vllm_harness._regression.cases.delivery import Api, Chunking, Concurrency, Delivery
from vllm_harness._regression.engines.answer import CaseAnswer
from vllm_harness._regression.engines.exchanges import body_of, fields_of, path_of
from vllm_harness._scripted.book import BookRule, Raw, When
from vllm_harness._scripted.families import Family, entry_of
from vllm_harness._server.remote import RemoteServer

CONCURRENCY = 32
WHOLE_ANSWER = 1000
"""The `--stream-interval` of a server whose chunks hold all tokens of an answer."""
REQUEST_S = 120.0
TRIES = 5
"""The maximum number of times to request a stream of single tokens alone."""
_NO_MARKER = str.maketrans("<>[]|｜", "()()!!")
"""Replaces characters used in markers: a case's name is the user message, and so part of the prompt."""
Mismatches = Callable[[CaseAnswer], bool]


def request_all(
    environment: Environment,
    family: Family,
    inputs: Sequence[CaseInput],
    mismatches: Mismatches,
    *,
    frontend: Frontend = "python",
) -> list[CaseAnswer]:
    """Requests a family's cases over HTTP, each in all of its deliveries.

    Args:
        inputs: the inputs of the cases, with deliveries over HTTP.
        mismatches: returns whether an answer has a mismatch, so that its case must be requested again.
        frontend: the vLLM HTTP front end that answers; the Rust front end does not offer Responses.

    Raises:
        StartupError: a server does not start.
    """
    answers: list[CaseAnswer] = []
    entry = entry_of(family)
    for args, served in _servers(inputs, frontend):
        with served_by(entry, lane="scripted", vllm=environment, args=args, frontend=frontend) as server:
            pairs = [
                (input_, delivery)
                for input_ in inputs
                for delivery in input_.deliveries
                if delivery in served
            ]
            client = CaseClient(server, family, [input_ for input_, _ in pairs])
            with ThreadPoolExecutor(CONCURRENCY) as pool:
                concurrent = list(pool.map(client.answer, *zip(*pairs, strict=True)))
            for (input_, delivery), answer in zip(pairs, concurrent, strict=True):
                request = partial(client.answer, input_, delivery)
                if mismatches(answer):
                    answer = _retry_alone(request, input_, delivery, mismatches)
                answers.append(answer)
    return answers


def _retry_alone(
    request: Callable[[], CaseAnswer], input_: CaseInput, delivery: Delivery, mismatches: Mismatches
) -> CaseAnswer:
    """Requests a case again; returns the first answer without a mismatch, or else the most frequent one."""
    tries = TRIES if delivery.of_single_tokens else 1
    answers, compared = list[CaseAnswer](), list[CaseAnswer]()
    for _ in range(tries):
        answer = request()
        if not mismatches(answer):
            return answer
        answers.append(answer)
        compared.append(_without_generated_ids(answer, input_))
        if compared.count(compared[-1]) > tries // 2:
            break
    return answers[compared.index(max(compared, key=compared.count))]


@contextmanager
def served_by(entry: ModelEntry, **options: Any) -> Iterator[RemoteServer]:
    """Starts a server with the options of `RemoteServer`; kills the server if the current task is stopped."""
    with RemoteServer(entry, **options) as server, interrupted_by(partial(_kill, server.pid)):
        yield server


def _kill(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def _without_generated_ids(answer: CaseAnswer, input_: CaseInput) -> CaseAnswer:
    if input_.call_ids:
        return answer
    calls = tuple(call.model_copy(update={"id": None}) for call in answer.calls)
    return answer.model_copy(update={"calls": calls})


def request_under_load(
    environment: Environment, family: Family, inputs: Sequence[CaseInput], *, frontend: Frontend = "python"
) -> Iterator[CaseAnswer]:
    """Requests each case alone, then all at the same time; yields both answers to each case in turn."""
    entry = entry_of(family)
    with served_by(entry, lane="scripted", vllm=environment, frontend=frontend) as server:
        client = CaseClient(server, family, inputs)
        for delivery in dict.fromkeys(delivery for input_ in inputs for delivery in input_.deliveries):
            alone = [client.answer(input_, delivery) for input_ in inputs]
            with ThreadPoolExecutor(len(inputs)) as pool:
                together = list(pool.map(client.answer, inputs, [delivery] * len(inputs)))
            for pair in zip(alone, together, strict=True):
                for answer, load in zip(pair, (Concurrency.ALONE, Concurrency.TOGETHER), strict=True):
                    yield answer.model_copy(update={"delivery": replace(delivery, load=load)})


def _servers(
    inputs: Sequence[CaseInput], frontend: Frontend
) -> Iterator[tuple[tuple[str, ...], tuple[Delivery, ...]]]:
    """Yields the flags of each server that the cases need, with the deliveries that the server serves."""
    every = dict.fromkeys(delivery for input_ in inputs for delivery in input_.deliveries)
    by_args: dict[tuple[str, ...], list[Delivery]] = {(): []}
    for delivery in every:
        if frontend == "python" or delivery.api is not Api.RESPONSES:
            by_args.setdefault(server_args(delivery), []).append(delivery)
    for args, served in by_args.items():
        if served:
            yield args, tuple(served)


def server_args(delivery: Delivery) -> tuple[str, ...]:
    """Returns the flags that a server needs for a delivery; without flags, vLLM sends one token per chunk."""
    if delivery.shape is Chunking.ALL:
        return "--stream-interval", str(WHOLE_ANSWER)
    return ("--stream-interval", str(delivery.tokens)) if delivery.tokens > 1 else ()


class CaseClient:
    """Requests the cases of one family from one server; the name of a case selects its script.

    Args:
        server, family: the server, and the family of the model that it serves.
        inputs: the inputs of the cases.
        request_s: the timeout in seconds for a request, and for each read of the answer.
    """

    def __init__(
        self,
        server: RemoteServer,
        family: Family,
        inputs: Sequence[CaseInput],
        *,
        request_s: float = REQUEST_S,
    ) -> None:
        self._server, self._client = server, http_client(server.endpoint)
        self._request_s = request_s
        self._family = family
        self._accepted: dict[tuple[Delivery, bool], int] = {}
        book = server.book()
        scripts = {
            name: [number for piece in input_.pieces for number in _encoded(server, piece) or ()]
            if input_.spelled_spans
            else Raw(text)
            for input_ in inputs
            for name, text in _texts(input_).items()
        }
        for name, script in scripts.items():
            book.add(BookRule(name, (script,), When(user=rf"^{re.escape(name)}(\n|$)"), times=None))

    def answer(
        self, input_: CaseInput, delivery: Delivery, headers: Mapping[str, str] | None = None
    ) -> CaseAnswer:
        """Requests a case; a refusal, a broken stream or a server error becomes the `error` of the answer.

        If a grammar refuses the text, the case's alternatives are tried in turn.
        """
        refusals = []
        for name, text, position in self._candidates(input_, delivery):
            answer = self._request(input_, delivery, name, headers)
            if not answer.is_refused:
                if answer.error is None:
                    self._accepted[delivery, input_.tool_choice == "required"] = position
                return answer if text == input_.text else answer.model_copy(update={"alternative": text})
            refusals.append(answer)
        return refusals[0]

    def _candidates(self, input_: CaseInput, delivery: Delivery) -> list[tuple[str, str, int]]:
        """Returns texts to try, as (script name, text, position), first the last accepted position."""
        likely = self._accepted.get((delivery, input_.tool_choice == "required"), 0)
        texts = _texts(input_)
        first = {text: name for name, text in reversed(texts.items())}
        distinct = [
            (name, text, position)
            for position, (name, text) in enumerate(texts.items())
            if first[text] == name
        ]
        return sorted(distinct, key=lambda text: text[2] != likely)

    def _request(
        self, input_: CaseInput, delivery: Delivery, name: str, headers: Mapping[str, str] | None
    ) -> CaseAnswer:
        place: dict[str, Any] = {"family": self._family.name, "case": input_.name, "delivery": delivery}
        body = {**body_of(input_, delivery, name, self._server.model), **self._family.request}
        outgoing = Outgoing(
            self._server.endpoint, path_of(delivery), body, headers or {}, limit_s=self._request_s
        )
        answer = CaseAnswer(**place, **fields_of(send(self._client, outgoing)))
        if answer.counted_reasoning is None:
            return answer
        tokens = count_tokens(self._server, answer.reasoning)
        return answer.model_copy(update={"reasoning_tokens": tokens})


def count_tokens(server: RemoteServer, text: str | None) -> int | None:
    """Returns the number of tokens in a text; None if the server cannot tokenize it."""
    ids = _encoded(server, text or "")
    return None if ids is None else len(ids)


def _encoded(server: RemoteServer, text: str) -> list[int] | None:
    if not text:
        return []
    body = {"model": server.model, "prompt": text, "add_special_tokens": False}
    response = server.endpoint.post("/tokenize", json=body, timeout=REQUEST_S)
    return [int(number) for number in response.json()["tokens"]] if response.ok else None


def _texts(input_: CaseInput) -> dict[str, str]:
    """Maps the name of a script to its text, for a case's text and its alternatives."""
    name = input_.name.translate(_NO_MARKER)
    alternatives = {f"{name} ({number})": text for number, text in enumerate(input_.alternatives, start=2)}
    return {name: input_.text, **alternatives}
