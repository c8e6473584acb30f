"""The authoritative engine: requests the cases of each family from a real, scripted server over HTTP.

All cases are requested at the same time, and the server delivers each answer in exactly the chunks of its
delivery. If vLLM's Rust front end merged chunks, which is by luck, the answer is requested again, and is not
judged if it was merged each time.
"""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import Any, Self

from vllm_harness._configuration.model_entries import Frontend, ModelEntry
from vllm_harness._exchange.delivery import Api, Concurrency, Delivery, not_held
from vllm_harness._exchange.sending import Outgoing, http_client, send
from vllm_harness._machine.tasks import interrupted_by
from vllm_harness._regression.cases.case import CaseInput
from vllm_harness._regression.engines.answer import AnswerError, CaseAnswer, ErrorCode
from vllm_harness._regression.engines.exchanges import body_of, fields_of, path_of
from vllm_harness._scripted.book import BookRule, Raw, ScriptBook, When
from vllm_harness._scripted.families import Family
from vllm_harness._scripted.in_server.vllm_harness_names import DELIVERY_HEADER
from vllm_harness._server.remote import RemoteServer

CONCURRENCY = 32
REQUEST_S = 120.0
MOST_TRIES: dict[Frontend, int] = {"python": 1, "rust": 5}
"""How often an answer is requested until its delivery is held; the Rust front end merges tokens by itself."""
Pair = tuple[CaseInput, Delivery]
Use = tuple[str, str, str]
"""A script's name, the path of a request that it answered, and the code of its chunks."""
_NO_MARKER = str.maketrans("<>[]|｜", "()()!!")
"""Replaces characters used in markers: a case's name is the user message, and so part of the prompt."""


def request_all(server: RemoteServer, family: Family, inputs: Sequence[CaseInput]) -> list[CaseAnswer]:
    """Requests a family's cases from its server, each in all of its deliveries.

    Args:
        server: the server, as `served_by` starts it; the Rust front end offers Chat Completions only.
        inputs: the inputs of the cases, with deliveries over HTTP.
    """
    offered = (Api.CHAT,) if server.launch.frontend == "rust" else tuple(Api)
    pairs = [
        (input_, delivery) for input_ in inputs for delivery in input_.deliveries if delivery.api in offered
    ]
    with CaseClient(server, family, [input_ for input_, _ in pairs]) as client:
        return client.answers(pairs)


def request_under_load(
    server: RemoteServer, family: Family, inputs: Sequence[CaseInput]
) -> Iterator[CaseAnswer]:
    """Requests each case alone, then all at the same time; yields both answers to each case in turn."""
    with CaseClient(server, family, inputs) as client:
        for delivery in dict.fromkeys(delivery for input_ in inputs for delivery in input_.deliveries):
            pairs = [(input_, delivery) for input_ in inputs]
            alone = client.answers(pairs, concurrency=1)
            together = client.answers(pairs, concurrency=len(inputs))
            for pair in zip(alone, together, strict=True):
                for answer, load in zip(pair, (Concurrency.ALONE, Concurrency.TOGETHER), strict=True):
                    yield answer.model_copy(update={"delivery": replace(delivery, load=load)})


@contextmanager
def served_by(entry: ModelEntry, **options: Any) -> Iterator[RemoteServer]:
    """Starts a server with the options of `RemoteServer`; kills the server if the current task is stopped."""
    with RemoteServer(entry, **options) as server, interrupted_by(partial(_kill, server.pid)):
        yield server


def _kill(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


class CaseClient:
    """Requests cases of one family from one server, with a book whose scripts the names of the cases select.

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
        self._scripts: dict[tuple[str, Delivery], str] = {}
        assert server.books is not None
        self._book = book = ScriptBook(server.books, server.entry)
        scripts = {
            name: [number for piece in input_.pieces for number in _encoded(server, piece) or ()]
            if input_.spelled_spans
            else Raw(text)
            for input_ in inputs
            for name, text in _texts(input_).items()
        }
        for name, script in scripts.items():
            book.add(BookRule(name, (script,), When(user=rf"^{re.escape(name)}(\n|$)"), times=None))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._book.close()

    def answers(self, pairs: Sequence[Pair], *, concurrency: int = CONCURRENCY) -> list[CaseAnswer]:
        """Requests cases in deliveries; an answer whose delivery was never held has the error `NOT_HELD`."""
        answers, missed = dict[int, CaseAnswer](), dict[Use, str]()
        left = dict(enumerate(pairs))
        for _ in range(MOST_TRIES[self._server.launch.frontend] if pairs else 0):
            with ThreadPoolExecutor(concurrency) as pool:
                answers.update(
                    zip(left, pool.map(self.answer, *zip(*left.values(), strict=True)), strict=True)
                )
            missed = self._missed()
            left = {
                number: pair
                for number, pair in left.items()
                if answers[number].error is None and self._use(*pair) in missed
            }
            if not left:
                break
        for number, pair in left.items():
            error = AnswerError(code=ErrorCode.NOT_HELD, message=missed[self._use(*pair)])
            answers[number] = answers[number].model_copy(update={"error": error})
        return [answers[number] for number in range(len(pairs))]

    def _use(self, input_: CaseInput, delivery: Delivery) -> Use:
        return self._scripts[input_.name, delivery], path_of(delivery), delivery.chunks

    def _missed(self) -> dict[Use, str]:
        """The latest uses of the scripts whose delivery was not held, each with what the server delivered."""
        latest = {
            (use["script"], use["path"], use["delivery"]["code"]): use["delivery"]
            for use in self._book.report()["uses"]
            if use["delivery"]
        }
        return {use: not_held(delivery) for use, delivery in latest.items() if not delivery["held"]}

    def answer(
        self, input_: CaseInput, delivery: Delivery, headers: Mapping[str, str] | None = None
    ) -> CaseAnswer:
        """Requests a case; a refusal, a broken stream or a server error becomes the `error` of the answer.

        If a grammar refuses the text, the case's alternatives are tried in turn.
        """
        refusals = []
        names: dict[str, str] = {}
        for name, text in _texts(input_).items():
            names.setdefault(text, name)
        for text, name in names.items():
            self._scripts[input_.name, delivery] = name
            answer = self._request(input_, delivery, name, headers)
            if not answer.is_refused:
                return answer if text == input_.text else answer.model_copy(update={"alternative": text})
            refusals.append(answer)
        return refusals[0]

    def _request(
        self, input_: CaseInput, delivery: Delivery, name: str, headers: Mapping[str, str] | None
    ) -> CaseAnswer:
        place: dict[str, Any] = {"family": self._family.name, "case": input_.name, "delivery": delivery}
        body = {**body_of(input_, delivery, name, self._server.model), **self._family.request}
        chunks = {DELIVERY_HEADER: delivery.chunks} if delivery.is_streamed else {}
        sent = {**chunks, **(headers or {})}
        outgoing = Outgoing(self._book.endpoint, path_of(delivery), body, sent, limit_s=self._request_s)
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
