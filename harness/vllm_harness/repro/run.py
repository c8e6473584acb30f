"""The steps of a defect's reproduction on a real server, and the verdict."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import groupby
from typing import Literal

import jmespath

from vllm_harness.defects.entry import Defect, Frontend, Repro
from vllm_harness.environments.spec import Environment
from vllm_harness.errors import UsageError
from vllm_harness.protocol.core.events import Json
from vllm_harness.repro.send import answers_to
from vllm_harness.server.errors import UnknownFlag, UnknownParser, UnsupportedArchitecture
from vllm_harness.server.progress import StartProgress
from vllm_harness.server.remote import RemoteServer

Verdict = Literal["reproduced", "fixed", "not applicable", "other failure"]


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
            plan.model,
            lane="scripted",
            vllm=environment,
            frontend=plan.frontend,
            args=plan.args,
            env=plan.env,
            progress=progress,
        )
        try:
            with server:
                for defect in group:
                    yield defect, on_server(defect, server)
        except (UnknownFlag, UnknownParser, UnsupportedArchitecture) as error:
            for defect in group:
                yield defect, Reproduction("not applicable", error.message)


def _server_of(plan: Repro) -> tuple[str, Frontend, tuple[str, ...], tuple[tuple[str, str], ...]]:
    return plan.model, plan.frontend, plan.args, tuple(sorted(plan.env.items()))


def on_server(defect: Defect, server: RemoteServer) -> Reproduction:
    """Sends a defect's requests to a running server, which has to have the entry's flags."""
    plan = plan_of(defect)
    answers = answers_to(plan.steps, server.endpoint, server.entry, server.model)
    verdict = verdict_of(defect, answers)
    broken = next((str(answer["broken"]) for answer in answers if "broken" in answer), "")
    return Reproduction(verdict, broken if verdict == "other failure" else "", answers)


def plan_of(defect: Defect) -> Repro:
    """How to reproduce a defect. Raises UsageError where its entry does not say."""
    if defect.repro is None:
        raise UsageError(
            f"the entry of {defect.id} does not say how to reproduce it",
            hint=f"run the tests that show it: pytest tests -k ..., found by grep -r {defect.id} tests",
        )
    return defect.repro


def verdict_of(defect: Defect, answers: list[Json]) -> Verdict:
    """What the answers say. Raises UsageError where both conditions of the entry hold."""
    plan = plan_of(defect)
    whole = {**answers[-1], "steps": answers}
    right, wrong = (jmespath.search(condition, whole) is True for condition in (plan.expected, plan.actual))
    if right and wrong:
        raise UsageError(f"{defect.id}: the answer meets both conditions of its entry, expected and actual")
    return "fixed" if right else "reproduced" if wrong else "other failure"
