"""The requests of a reproduction, each with what the model says to it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import jmespath

from vllm_harness.configuration.model_entries import ModelEntry
from vllm_harness.defects.entry import Step
from vllm_harness.defects.repro.answer import document
from vllm_harness.defects.repro.references import filled
from vllm_harness.exchange.endpoint import Endpoint
from vllm_harness.exchange.sending import Outgoing, http_client, send
from vllm_harness.protocol.core.events import Json
from vllm_harness.scripted.book import ScriptBook
from vllm_harness.scripted.book_file import take_of
from vllm_harness.scripted.in_server.vllm_harness_names import BOOK_HEADER

PAUSE_S = 0.1
OK = 200


def answers_to(steps: Sequence[Step], endpoint: Endpoint, entry: ModelEntry, model: str) -> list[Json]:
    """Sends the requests in order; returns their answers.

    Args:
        steps: the requests.
        endpoint: of a server whose model can be told what to say, where a step says it.
        entry: the model entry, by whose dialect a meaning is written.
        model: the name that the server goes by.

    Raises:
        ScriptError: the family cannot say that.
    """
    answers: list[Json] = []
    waiting: dict[int, Future[Json]] = {}
    with ThreadPoolExecutor(max(1, sum(step.meanwhile for step in steps))) as pool:
        for position, step in enumerate(steps):
            if step.meanwhile:
                waiting[position] = pool.submit(_answer, step, endpoint, entry, model, list(answers))
                answers.append({})
            else:
                answers.append(_answer(step, endpoint, entry, model, answers))
        for position, future in waiting.items():
            answers[position] = future.result()
    return answers


def _answer(step: Step, endpoint: Endpoint, entry: ModelEntry, model: str, answers: Sequence[Json]) -> Json:
    book = ScriptBook(endpoint, entry)
    try:
        ends = time.monotonic() + step.limit_s
        while True:
            if step.say:
                book.script(turns=[take_of(each) for each in step.say])
            answer = _send(step, endpoint, model, book.name, answers)
            if step.say and answer["status"] == OK and book.report()["left"]:
                answer["unscripted"] = True
            if step.until is None or jmespath.search(step.until, answer) or time.monotonic() > ends:
                return answer
            time.sleep(PAUSE_S)
    finally:
        book.close()


def _send(step: Step, endpoint: Endpoint, model: str, book: str, answers: Sequence[Json]) -> Json:
    content = None if step.content is None else step.content.replace("{model}", model)
    body = None if step.body is None or content else {"model": model, **filled(step.body, answers)}
    outgoing = Outgoing(
        endpoint,
        str(filled(step.path, answers)),
        body,
        {BOOK_HEADER: book, **step.headers},
        content,
        step.method,
        step.limit_s,
        step.hang_up_after or None,
    )
    with http_client() as client:
        return document(send(client, outgoing))
