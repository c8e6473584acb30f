"""Reproduces a defect by sending the requests of its entry to a real server."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

import jmespath

from vllm_harness._configuration.model_entries import ModelEntry, load_models
from vllm_harness._defects.entry import Defect, Frontend, Repro, ReproStep
from vllm_harness._defects.repro.verdict import Reproduction, Sign, reproduction_of
from vllm_harness._environments.spec import Environment
from vllm_harness._errors import UsageError
from vllm_harness._exchange.sending import Outgoing, http_client, send
from vllm_harness._exchange.server import VllmServer
from vllm_harness._machine.tasks import pool_of
from vllm_harness._protocol import Exchange
from vllm_harness._protocol.conversation.exchange import accumulate
from vllm_harness._protocol.core.events import Json
from vllm_harness._scripted.book import BookError, ScriptBook
from vllm_harness._scripted.book_file import take_of
from vllm_harness._scripted.families import entry_of, load_families
from vllm_harness._scripted.in_server.vllm_harness_names import BOOK_HEADER
from vllm_harness._server.progress import StartProgress
from vllm_harness._server.remote import RemoteServer

NO_SCRIPT = "the model did not follow its script, which this vLLM does not support over this API"
PAUSE_S = 0.1
OK = 200
_REFERENCE = re.compile(r"\{(steps\[.+?\][^{}]*)\}")


@dataclass(frozen=True)
class RequestedSteps:
    """Reproduces a defect with the steps of its entry."""

    defect: Defect
    plan: Repro

    @property
    def place(self) -> str:
        """The name of the server: its model, flags and environment variables."""
        plan = self.plan
        variables = [f"{name}={value}" for name, value in sorted(plan.env.items())]
        served = plan.model or f"family {plan.family}"
        return " ".join([served, *(["rust"] if plan.frontend == "rust" else []), *plan.args, *variables])

    @property
    def frontend(self) -> Frontend:
        """The HTTP front end that answers."""
        return self.plan.frontend

    @property
    def entry(self) -> ModelEntry:
        """The served model entry, or the entry of a family's stand-in."""
        plan = self.plan
        return entry_of(load_families()[plan.family]) if plan.family else load_models().get(plan.model)

    @staticmethod
    def reproduce(
        alike: Sequence[RequestedSteps], environment: Environment, progress: StartProgress
    ) -> Iterator[tuple[Defect, Reproduction]]:
        """Sends the requests of all given reproducers to one server."""
        first, plan = alike[0], alike[0].plan
        with RemoteServer(
            first.entry,
            lane="scripted",
            vllm=environment,
            frontend=plan.frontend,
            args=plan.args,
            env=plan.env,
            progress=progress,
        ) as server:
            for each in alike:
                yield each.defect, each.on_server(server)

    def on_server(self, server: VllmServer) -> Reproduction:
        """Sends the requests to a running server, which must have the flags of the entry."""
        try:
            answers = answers_to(self.plan.steps, server)
        except BookError as error:
            return Reproduction("not applicable", error.message)
        return self.verdict_of(answers)

    def verdict_of(self, answers: list[Json]) -> Reproduction:
        """Derives the verdict from the answers. Raises UsageError if both conditions of the entry hold."""
        whole = {**answers[-1], "steps": answers}
        right, wrong = (_holds(condition, whole) for condition in (self.plan.expected, self.plan.actual))
        if right and wrong:
            raise UsageError(
                f"{self.defect.id}: the answer meets both conditions of its entry: expected and actual"
            )
        is_scripted = right or not any("unscripted" in answer for answer in answers)
        broken = next((str(answer["broken"]) for answer in answers if "broken" in answer), "")
        sign = Sign(wrong, right, faults=(broken,), lacking="" if is_scripted else NO_SCRIPT)
        return reproduction_of([sign], answers)


def _holds(condition: str, answer: Json) -> bool:
    try:
        return jmespath.search(condition, answer) is True
    except jmespath.exceptions.JMESPathTypeError:
        return False


def answers_to(steps: Sequence[ReproStep], server: VllmServer) -> list[Json]:
    """Sends the requests in order, and returns their answers.

    Raises:
        ScriptError: the content of a step cannot be expressed in the format of the model's family.
    """
    answers: list[Json] = []
    waiting: dict[int, Future[Json]] = {}
    with pool_of(max(1, sum(step.meanwhile for step in steps))) as pool:
        for position, step in enumerate(steps):
            if step.meanwhile:
                waiting[position] = pool.submit(_answer, step, server, list(answers))
                answers.append({})
            else:
                answers.append(_answer(step, server, answers))
        for position, future in waiting.items():
            answers[position] = future.result()
    return answers


def _answer(step: ReproStep, server: VllmServer, answers: Sequence[Json]) -> Json:
    book = ScriptBook(server.endpoint, server.entry)
    try:
        ends = time.monotonic() + step.limit_s
        while True:
            if step.say:
                book.script(turns=[take_of(each) for each in step.say], delivery=step.delivery)
            answer = _send(step, server, book.name, answers)
            if step.say and answer["status"] == OK and book.report()["left"]:
                answer["unscripted"] = True
            if step.until is None or jmespath.search(step.until, answer) or time.monotonic() > ends:
                return answer
            time.sleep(PAUSE_S)
    finally:
        book.close()


def _send(step: ReproStep, server: VllmServer, book: str, answers: Sequence[Json]) -> Json:
    content = None if step.content is None else step.content.replace("{model}", server.model)
    body = None if step.body is None or content else {"model": server.model, **filled(step.body, answers)}
    outgoing = Outgoing(
        server.endpoint,
        str(filled(step.path, answers)),
        body,
        {BOOK_HEADER: book, **step.headers},
        content,
        step.method,
        step.limit_s,
        step.hang_up_after or None,
    )
    with http_client(server.endpoint) as client:
        return document(send(client, outgoing))


def filled(value: Any, answers: Sequence[Json]) -> Any:
    """Replaces references to earlier answers, such as `{steps[0].body.id}`, in a value."""
    match value:
        case dict():
            return {key: filled(each, answers) for key, each in value.items()}
        case list():
            return [filled(each, answers) for each in value]
        case str() if whole := _REFERENCE.fullmatch(value):
            return _part(whole[1], answers)
        case str():
            return _REFERENCE.sub(lambda match: str(_part(match[1], answers)), value)
    return value


def _part(path: str, answers: Sequence[Json]) -> Any:
    return jmespath.search(path, {"steps": list(answers)})


def document(exchange: Exchange) -> Json:
    """Converts an answer to the JSON document that the conditions of an entry refer to.

    Returns:
        `status`, `headers`, and `broken` if the answer broke off; for a stream also `events` and `stream`,
        otherwise `body` if it is JSON, or `text`.
    """
    broken = {"broken": exchange.broken} if exchange.broken else {}
    head = {"status": exchange.status, "headers": dict(exchange.headers), **broken}
    if exchange.streamed:
        events = exchange.json_events
        return {**head, "events": events, "stream": accumulate(events).body}
    try:
        return {**head, "body": json.loads(exchange.content)}
    except ValueError:
        return {**head, "text": exchange.content.decode("utf-8", "replace")}
