"""Makes the report and the script of a reproduced defect, according to the kind of its reproducer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from vllm_harness._defects.repro.parser_cases import ServedCase
from vllm_harness._defects.repro.reproducer import Reproducer
from vllm_harness._defects.repro.steps import RequestedSteps
from vllm_harness._defects.repro.verdict import Reproduction
from vllm_harness._exchange.delivery import Chunking, Delivery
from vllm_harness._regression.engines.answer import CaseAnswer
from vllm_harness._regression.engines.exchanges import body_of, path_of
from vllm_harness._scripted.book_file import take_of
from vllm_harness.extras.costs.repro import CostCase
from vllm_harness.extras.costs.script import cost_files
from vllm_harness.extras.triage.report import ReportFiles, files_of_server
from vllm_harness.extras.triage.script import (
    Pieces,
    ScriptVerdict,
    ServerScript,
    script_pieces,
    server_script,
    with_stop,
)
from vllm_harness.extras.triage.standalone import reproduce

WHOLE_ANSWER = 1000
"""The `--stream-interval` with which a server sends the first token of an answer, and then all others."""


ROUNDS = 20
"""How often a script sends a streamed request: a server without the harness divides it by chance."""


def files_of(reproducer: Reproducer, shown: Reproduction, environment: str) -> ReportFiles:
    """Makes a report, and a script that needs only vLLM.

    Args:
        reproducer: the reproducer of the defect.
        shown: the reproduction, with the test case and the delivery that showed the defect.
        environment: a description of the vLLM that showed it.
    """
    if isinstance(reproducer, CostCase):
        return cost_files(reproducer, shown, environment)
    if isinstance(reproducer, ServedCase):
        return files_of_server(reproducer.defect, _of_case(reproducer, shown), shown, environment)
    assert isinstance(reproducer, RequestedSteps)
    return files_of_server(reproducer.defect, _of_steps(reproducer), shown, environment)


def _of_case(served: ServedCase, shown: Reproduction) -> ServerScript:
    """The script with the request that showed a parser's defect."""
    delivery = Delivery.parse(shown.delivery)
    steps = list(_requests(served, shown, delivery))
    script = server_script(served.entry, served.frontend, _public_flags(delivery), {}, steps)
    return replace(script, verdict=_means(served, shown), rounds=ROUNDS if delivery.is_streamed else 1)


def _means(served: ServedCase, shown: Reproduction) -> ScriptVerdict:
    """What a right answer means; nothing if the wrong answer means the same and only its form is wrong."""
    case = next(case for case in served.cases if case.name == shown.case)
    answers = {str(answer.delivery): answer for answer in map(CaseAnswer.model_validate, shown.answers)}
    wrong, first = answers.get(shown.delivery), answers.get(case.input.deliveries[0].code)
    if wrong is None or first is None or case.expected.refused:
        return ScriptVerdict()
    if meaning := case.expected.meaning:
        calls = [(call.name, call.arguments) for call in meaning.calls]
        right = _meaning(meaning.reasoning, meaning.text, calls)
    else:
        right = _meaning_of(first)
    if wrong.error is None and _meaning_of(wrong) == right:
        return ScriptVerdict()
    return ScriptVerdict(means=right if case.expected.meaning else "the same")


def _meaning_of(answer: CaseAnswer) -> dict[str, Any]:
    calls = [(call.name, reproduce.value_of(call.arguments)) for call in answer.calls]  # type: ignore[no-untyped-call]
    return _meaning(answer.reasoning, answer.content, calls)


def _meaning(reasoning: str | None, text: str | None, calls: Sequence[tuple[Any, Any]]) -> dict[str, Any]:
    return {
        "reasoning": (reasoning or "").strip(),
        "text": (text or "").strip(),
        "calls": [list(call) for call in calls],
    }


def _public_flags(delivery: Delivery) -> tuple[str, ...]:
    """The `vllm serve` flags whose chunks are nearest to a delivery, on a server without the harness.

    They are not exactly those of the delivery: a stream begins with a chunk of one token, and a busy server
    merges chunks. So the script says in how many rounds the defect shows.
    """
    tokens = WHOLE_ANSWER if delivery.shape is Chunking.ALL else delivery.tokens
    return ("--stream-interval", str(tokens)) if tokens > 1 else ()


def _requests(served: ServedCase, shown: Reproduction, delivery: Delivery) -> Iterator[dict[str, Any]]:
    case = next(case for case in served.cases if case.name == shown.case)
    accepted = {str(answer["delivery"]): answer.get("alternative") for answer in shown.answers}
    first = case.input.deliveries[0]
    for each in dict.fromkeys((first, delivery) if case.expected.meaning is None else (delivery,)):
        body = {**body_of(case.input, each, "Go on."), **served.family.request}
        text = accepted.get(each.code) or case.input.text
        pieces: Pieces = list(case.input.pieces) if case.input.spelled_spans else [text]
        say = [with_stop(pieces, served.entry)]
        yield {"method": "POST", "path": path_of(each), "body": body, "say": say}


def _of_steps(requested: RequestedSteps) -> ServerScript:
    """The script with the requests of an entry."""
    plan, entry = requested.plan, requested.entry
    steps = [
        {
            "method": step.method,
            **step.model_dump(exclude_defaults=True, exclude={"say", "delivery"}),
            "say": [script_pieces(take_of(each), entry) for each in step.say],
        }
        for step in plan.steps
    ]
    script = server_script(entry, plan.frontend, plan.args, plan.env, steps)
    streamed = any(step.body and step.body.get("stream") for step in plan.steps)
    stateful = any(step.until or step.meanwhile or step.hang_up_after for step in plan.steps)
    verdict = ScriptVerdict(right=plan.expected, wrong=plan.actual)
    return replace(script, verdict=verdict, rounds=ROUNDS if streamed and not stateful else 1)
