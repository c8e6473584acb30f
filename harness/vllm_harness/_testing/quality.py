"""The quality of tool calls on the live lane: how many fit their schema, and when the model makes calls.

The decisions to make a call are compared with those of a stored reference run, often of the same model at its
own provider. Source: MoonshotAI's K2-Vendor-Verifier measures providers in this way (schema accuracy;
precision, recall and F1 of the decisions).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from vllm_harness._errors import UsageError
from vllm_harness._exchange.answer import answers_of
from vllm_harness._protocol import parse_sse
from vllm_harness._protocol.conversation.exchange import accumulate, json_object
from vllm_harness._protocol.core.events import as_json
from vllm_harness._testing.repeats import wilson

Json = dict[str, Any]
Decisions = dict[str, list[bool]]


@dataclass
class QualityTally:
    """Counts of the tool calls in a run.

    Attributes:
        calls: the number of function calls.
        valid: the number of calls whose function was offered and whose arguments fit its schema.
        decisions: for each test and each of its attempts, whether the model made a call, request by request;
            only for requests that left the choice to the model.
    """

    calls: int = 0
    valid: int = 0
    decisions: dict[str, list[list[bool]]] = field(default_factory=dict)

    def add(self, case: str, observed: Iterable[ObservedRequest]) -> None:
        """Adds the requests of one attempt at a test."""
        requests = list(observed)
        self.calls += sum(request.calls for request in requests)
        self.valid += sum(request.valid for request in requests)
        if decisions := [request.calls > 0 for request in requests if request.free]:
            self.decisions.setdefault(case, []).append(decisions)


@dataclass(frozen=True)
class ObservedRequest:
    """One request that offered functions.

    Attributes:
        free: whether the model could choose whether to make a call.
        calls: the number of calls.
        valid: the number of calls that fit their schema.
    """

    free: bool
    calls: int
    valid: int


@dataclass(frozen=True)
class Agreement:
    """How well the decisions to make a call agree with those of the reference run.

    Attributes:
        decisions: the number of decisions that were compared.
        precision: the share of this run's calls that the reference made too; None if this run made none.
        recall: the share of the reference's calls that this run made too; None if the reference made none.
        f1: the harmonic mean of precision and recall; None if either is None or both are 0.
        unmatched: the number of decisions without a counterpart in the other run.
    """

    decisions: int
    precision: float | None
    recall: float | None
    f1: float | None
    unmatched: int


def observe(request: Mapping[str, Any], status: int, answer: bytes) -> ObservedRequest | None:
    """Counts the calls in an answer; returns None if the request offered no function or was refused (4xx).

    A failed answer (5xx, or not JSON) counts as an answer without a call.
    """
    offered = _offered(request)
    if not offered or 400 <= status < 500:
        return None
    calls = _calls(answer)
    valid = sum(fits(name, arguments, offered) for name, arguments in calls)
    return ObservedRequest(request.get("tool_choice") in (None, "auto"), len(calls), valid)


def fits(name: object, arguments: object, offered: Mapping[str, Any]) -> bool:
    """Whether a call's function was offered, and its arguments are JSON that fits the function's schema."""
    if name not in offered:
        return False
    import jsonschema  # imported here, as this takes a tenth of a second

    try:
        jsonschema.validate(json.loads(str(arguments)), offered[str(name)] or {})
    except (ValueError, jsonschema.ValidationError, jsonschema.SchemaError):
        return False
    return True


def agreement(decisions: Mapping[str, list[list[bool]]], reference: Mapping[str, list[bool]]) -> Agreement:
    """Compares each attempt at each test with the reference's decisions, request by request."""
    pairs: list[tuple[bool, bool]] = []
    unmatched = sum(len(expected) for case, expected in reference.items() if case not in decisions)
    for case, attempts in decisions.items():
        expected = reference.get(case, [])
        for attempt in attempts:
            pairs += zip(attempt, expected, strict=False)
            unmatched += abs(len(attempt) - len(expected))
    both = sum(called and should for called, should in pairs)
    called, should = sum(c for c, _ in pairs), sum(s for _, s in pairs)
    f1 = 2 * both / (called + should) if called and should and both else None
    return Agreement(
        len(pairs), both / called if called else None, both / should if should else None, f1, unmatched
    )


def read_reference(path: Path) -> Decisions:
    """Reads the decisions of a stored run. Raises UsageError if the file contains none."""
    try:
        decisions = json.loads(path.read_text())["decisions"]
        return {str(case): [bool(called) for called in calls] for case, calls in decisions.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UsageError(
            f"{path} is not a file of tool-call decisions: {error}",
            hint="write one with --vllm-write-quality-reference FILE",
        ) from error


def write_reference(path: Path, of: Mapping[str, Any], tally: QualityTally) -> None:
    """Writes the decisions of each test's last attempt, with a description of the run."""
    decisions = {case: attempts[-1] for case, attempts in sorted(tally.decisions.items())}
    path.write_text(json.dumps({"of": dict(of), "decisions": decisions}, indent=2) + "\n")


def summary(tally: QualityTally, reference: Mapping[str, list[bool]] | None) -> Json:
    """The value of `quality` in results.json; empty if there was no call and no decision."""
    if not tally.calls and not tally.decisions:
        return {}
    valid = {"valid_share": asdict(wilson(tally.valid, tally.calls))} if tally.calls else {}
    compared = {} if reference is None else {"agreement": asdict(agreement(tally.decisions, reference))}
    return {"calls": tally.calls, "valid": tally.valid, **valid, **compared}


def line(summed: Mapping[str, Any]) -> str:
    """A summary as one line for the terminal."""
    text = f"tool calls that fit their schema: {summed['valid']} of {summed['calls']}"
    if not (compared := summed.get("agreement")):
        return text
    shares = ", ".join(f"{key} {_share(compared[key])}" for key in ("precision", "recall", "f1"))
    aside = f", {compared['unmatched']} without a counterpart" if compared["unmatched"] else ""
    return (
        f"{text}; decision to call against the reference: {shares} ({compared['decisions']} decisions{aside})"
    )


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _offered(request: Mapping[str, Any]) -> dict[str, Any]:
    tools = [tool for tool in request.get("tools") or () if isinstance(tool, dict)]
    functions = [tool.get("function", tool) for tool in tools if tool.get("type") == "function"]
    return {function["name"]: function.get("parameters") for function in functions if "name" in function}


def _calls(answer: bytes) -> list[tuple[str, str]]:
    """The name and the arguments of each call in a body or a stream."""
    body = json_object(answer)
    if body is None:
        events = (value for event in parse_sse([answer]) if (value := as_json(event)) is not None)
        body = accumulate(events).body
    answers = answers_of("chat" if "choices" in body else "responses", body)
    return [(call.name, call.arguments) for answer in answers for call in answer.open_calls]
