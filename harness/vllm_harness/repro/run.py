"""The steps of a defect's reproduction on a real server, and the verdict."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, Literal

import httpx
import jmespath

from vllm_harness.defects.entry import Defect, Repro, Step
from vllm_harness.endpoint import Endpoint, tls
from vllm_harness.environments.spec import Environment
from vllm_harness.errors import UsageError
from vllm_harness.protocol.core.events import Json
from vllm_harness.repro.answer import document
from vllm_harness.scripted.book import ScriptBook
from vllm_harness.scripted.book_file import take_of
from vllm_harness.scripted.in_server.vllm_harness_names import BOOK_HEADER
from vllm_harness.server.errors import UnknownFlag, UnknownParser, UnsupportedArchitecture
from vllm_harness.server.progress import StartProgress
from vllm_harness.server.remote import RemoteServer

Verdict = Literal["reproduced", "fixed", "not applicable", "other failure"]
REFERENCE = re.compile(r"\{(steps\[.+?\][^{}]*)\}")


@dataclass(frozen=True)
class Reproduction:
    """What a defect's steps came to.

    Attributes:
        verdict: `reproduced`: the entry's condition `actual` holds; `fixed`: `expected` does;
            `other failure`: neither does; `not applicable`: this vLLM knows no such flag, parser or model.
        why: a sentence, where there is no answer.
        answers: to the steps, as `repro.answer.document` has them.
    """

    verdict: Verdict
    why: str = ""
    answers: list[Json] = field(default_factory=list)


def reproduce_all(
    defects: Iterable[Defect], environment: Environment, *, progress: StartProgress
) -> Iterator[tuple[Defect, Reproduction]]:
    """Reproduces defects on servers of one environment; those of the same model and flags share a server.

    Raises:
        UsageError: an entry says not how to reproduce it, or its two conditions hold at once.
        StartupError: a server does not start, and the cause is not that this vLLM lacks something.
    """
    ordered = sorted(defects, key=lambda defect: (_server_of(plan_of(defect)), defect.id))
    for _, alike in groupby(ordered, key=lambda defect: _server_of(plan_of(defect))):
        group = list(alike)
        plan = plan_of(group[0])
        server = RemoteServer(
            plan.model, lane="scripted", vllm=environment, args=plan.args, env=plan.env, progress=progress
        )
        try:
            with server:
                for defect in group:
                    yield defect, on_server(defect, server)
        except (UnknownFlag, UnknownParser, UnsupportedArchitecture) as error:
            for defect in group:
                yield defect, Reproduction("not applicable", error.message)


def _server_of(plan: Repro) -> tuple[str, tuple[str, ...], tuple[tuple[str, str], ...]]:
    return plan.model, plan.args, tuple(sorted(plan.env.items()))


def on_server(defect: Defect, server: RemoteServer) -> Reproduction:
    """Sends a defect's requests to a running server, which has to have the entry's flags."""
    plan = plan_of(defect)
    answers: list[Json] = []
    for step in plan.steps:
        book = ScriptBook(server.endpoint, server.entry)
        if step.say:
            book.script(turns=[take_of(each) for each in step.say])
        try:
            answers.append(send(step, server.endpoint, server.model, book.name, answers))
        except httpx.HTTPError as error:
            return Reproduction("other failure", f"{type(error).__name__}: {error}", answers)
        finally:
            book.close()
    return Reproduction(verdict_of(defect, answers), answers=answers)


def plan_of(defect: Defect) -> Repro:
    """How to reproduce a defect. Raises UsageError where its entry does not say."""
    if defect.repro is None:
        raise UsageError(
            f"the entry of {defect.id} does not say how to reproduce it",
            hint=f"run the tests that show it: pytest tests -k ..., found by grep -r {defect.id} tests",
        )
    return defect.repro


def send(step: Step, endpoint: Endpoint, model: str, book: str, answers: list[Json]) -> Json:
    """Sends one request; returns its answer as a document."""
    body = None if step.body is None else {"model": model, **filled(step.body, answers)}
    url = endpoint.url_for(str(filled(step.path, answers)))
    with (
        httpx.Client(timeout=endpoint.request_s, verify=tls()) as client,
        client.stream(step.method, url, json=body, headers={BOOK_HEADER: book}) as answer,
    ):
        return document(answer.status_code, answer.headers.get("content-type", ""), answer.iter_raw())


def verdict_of(defect: Defect, answers: list[Json]) -> Verdict:
    """What the answers say. Raises UsageError where both conditions of the entry hold."""
    plan = plan_of(defect)
    whole = {**answers[-1], "steps": answers}
    right, wrong = (jmespath.search(condition, whole) is True for condition in (plan.expected, plan.actual))
    if right and wrong:
        raise UsageError(f"{defect.id}: the answer meets both conditions of its entry, expected and actual")
    return "fixed" if right else "reproduced" if wrong else "other failure"


def filled(value: Any, answers: list[Json]) -> Any:
    """A JSON value whose texts name parts of earlier answers, with these in their place."""
    if isinstance(value, Mapping):
        return {key: filled(each, answers) for key, each in value.items()}
    if isinstance(value, list):
        return [filled(each, answers) for each in value]
    if not isinstance(value, str):
        return value
    if whole := REFERENCE.fullmatch(value):
        return jmespath.search(whole[1], {"steps": answers})
    return REFERENCE.sub(lambda match: str(jmespath.search(match[1], {"steps": answers})), value)
