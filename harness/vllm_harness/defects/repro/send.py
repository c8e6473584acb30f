"""The requests of a reproduction, each with what the model says to it."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import httpx
import jmespath

from vllm_harness.configuration.model_entries import ModelEntry
from vllm_harness.defects.entry import Step
from vllm_harness.defects.repro.answer import document
from vllm_harness.defects.repro.references import filled
from vllm_harness.endpoint import Endpoint, tls
from vllm_harness.protocol.core.events import Json
from vllm_harness.protocol.core.sse import SSEParser
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
    url = endpoint.url_for(str(filled(step.path, answers)))
    request: dict[str, Any] = {"headers": {BOOK_HEADER: book, **step.headers}}
    if step.content is not None:
        request["content"] = step.content.replace("{model}", model)
    elif step.body is not None:
        request["json"] = {"model": model, **filled(step.body, answers)}
    status, headers, chunks, broken = 0, httpx.Headers(), list[bytes](), ""
    try:
        with (
            httpx.Client(timeout=step.limit_s, verify=tls()) as client,
            client.stream(step.method, url, **request) as answer,
        ):
            status, headers = answer.status_code, answer.headers
            for chunk in _read(answer, step):
                chunks.append(chunk)
    except httpx.HTTPError as error:
        broken = f"{type(error).__name__}: {error}"
    return document(status, headers, chunks, broken)


def _read(answer: httpx.Response, step: Step) -> Iterator[bytes]:
    """The bytes until the end, or until the client leaves, or the time is over."""
    ends = time.monotonic() + step.limit_s
    parser, events = SSEParser(), 0
    for chunk in answer.iter_raw():
        yield chunk
        events += len(list(parser.feed(chunk)))
        if step.hang_up_after and events >= step.hang_up_after:
            return
        if time.monotonic() > ends:
            raise httpx.ReadTimeout(f"no end after {step.limit_s:g} s")
