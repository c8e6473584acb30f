"""Measures over HTTP what a server takes over answers that grow, and how long another client waits."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from threading import Event, Thread

import psutil
import requests

from vllm_harness.configuration.model_entries import Frontend
from vllm_harness.environments.spec import Environment
from vllm_harness.regression.cases.case import CaseInput, Grown
from vllm_harness.regression.cases.cost import BLOCKED_S
from vllm_harness.regression.cases.cost import LONGEST as LONGEST_TEXT
from vllm_harness.regression.cases.delivery import Api, Delivery
from vllm_harness.regression.engines.answer import Answer, AnswerError, CostPoint, Curve
from vllm_harness.regression.engines.over_http import Client, served_by
from vllm_harness.scripted.families import Family, entry_of
from vllm_harness.server.leases.ending import go_on

ORDINARY, LONGEST = 17_000, 66_000
"""Tokens of the longest answer, about: where no CPU time is given for it, and where some is given.

A stand-in generates some hundred tokens a second.
"""
CONTEXT = 81_920
"""Tokens of a prompt with many tools, or of an answer."""
ARGS = ("--max-model-len", str(CONTEXT), "--num-gpu-blocks-override", "2048")
OVERRIDES = json.dumps({"max_position_embeddings": CONTEXT})
FEWEST = 4
"""Lengths that are measured whatever they take."""
TOLD_S = 0.1
"""CPU time, ten ticks of its clock, below which the figure of a process tells nothing: it counts as 0."""
TRIES = 3
"""How often an answer of an ordinary length is requested, at most, beside which the other client waits too
long: what else the machine does may add to a wait, and takes nothing from it.
"""
PAUSE_S = 0.01
"""Between two requests of the other client."""
REQUEST_S = 600.0
"""Until an answer that is measured must have come: a body of 64k tokens takes minutes."""


class WaitingClient:
    """Another client of a server: asks for its version again and again, and notes how long it waited.

    Only as much of a wait counts as the server's process has computed meanwhile: what keeps it from a
    processor, on a machine with other work, is no fault of the server's.

    Args:
        url: of the version.
        process: of the server, in which its event loop runs.
    """

    def __init__(self, url: str, process: psutil.Process) -> None:
        self.longest_s = 0.0
        self._url = url
        self._process = process

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Asks while the block runs; `longest_s` is then of this time."""
        self.longest_s, done = 0.0, Event()
        thread = Thread(target=self._ask_until, args=(done,), daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join(REQUEST_S)

    def _ask_until(self, done: Event) -> None:
        """Until then, or until the server ends, which the answer that is measured tells."""
        with suppress(requests.ConnectionError, psutil.Error), requests.Session() as session:
            while not done.wait(PAUSE_S):
                started, computed = time.monotonic(), cpu_s(self._process)
                with suppress(requests.Timeout):  # which is how long it waited, at least
                    session.get(self._url, timeout=REQUEST_S)
                waited = min(time.monotonic() - started, cpu_s(self._process) - computed)
                self.longest_s = max(self.longest_s, waited)


def cpu_s(process: psutil.Process) -> float:
    """The CPU time of a process, without its children."""
    times = process.cpu_times()
    return float(times.user + times.system)


def measure_served(
    environment: Environment,
    family: Family,
    inputs: Sequence[CaseInput],
    *,
    frontend: Frontend = "python",
) -> Iterator[Answer]:
    """Requests a family's growing answers over HTTP, one at a time, and gives the curve of each.

    Args:
        environment: whose vLLM serves.
        family: whose model is served.
        inputs: of cases that grow, their deliveries those of an API.
        frontend: which of vLLM's HTTP front ends answers; that in Rust has no Responses.

    Raises:
        StartupError: the server does not start.
    """
    entry = entry_of(family)
    args = ARGS if family.form is None else (*ARGS, "--hf-overrides", OVERRIDES)
    env = {"VLLM_ALLOW_LONG_MAX_MODEL_LEN": "1"}  # its tokenizer says less
    with served_by(entry, lane="scripted", vllm=environment, args=args, env=env, frontend=frontend) as server:
        process = psutil.Process(server.pid)
        other = WaitingClient(server.url_for("/version"), process)
        for input_ in inputs:
            lengths = list(_lengths(input_, Client(server, family, ())))
            client = Client(server, family, [each.input_ for each in lengths], request_s=REQUEST_S)
            for delivery in input_.deliveries:
                if frontend == "python" or delivery.api is not Api.RESPONSES:
                    measured = _measured(client, other, process, lengths, delivery)
                    go_on()  # or its server has been ended, and the curve says nothing
                    place = {"family": family.name, "case": input_.name, "delivery": delivery}
                    yield Answer.model_validate({**place, **measured})


@dataclass(frozen=True)
class _Length:
    """One length of a growing answer.

    Attributes:
        tokens: of the answer, as the tokenizer of the server counts them.
        size: what its curve is drawn over: the tokens, or how many tools there are.
        input_: an input of its own.
    """

    tokens: int
    size: int
    input_: CaseInput


def _lengths(input_: CaseInput, client: Client) -> Iterator[_Length]:
    """The lengths of a growing answer that a server generates in time."""
    most = LONGEST if input_.cpu_s else ORDINARY
    for number, grown in enumerate((*input_.grown, *_longer(input_.grown[-1]))):
        tokens = client.count(grown.text) or len(grown.text)
        if tokens > most:
            return
        name, tools = f"{input_.name}, length {number}", input_.tools[: grown.tools]
        limit = tokens + tokens // 10 + 64  # Messages must have one
        own = {"name": name, "text": grown.text, "tools": tools, "max_tokens": limit, "grown": ()}
        yield _Length(tokens, grown.tools or tokens, input_.model_copy(update=own))


def _longer(grown: Grown) -> Iterator[Grown]:
    """An answer of 64k bytes twice and four times as long: most tokenizers make one token of four bytes."""
    if len(grown.text) >= LONGEST_TEXT and len(grown.runs) > 1:
        longest = max(count for _, count in grown.runs)
        for factor in (2, 4):
            runs = [(text, count * factor if count == longest else count) for text, count in grown.runs]
            yield grown.model_copy(update={"runs": tuple(runs)})


def _measured(
    client: Client,
    other: WaitingClient,
    process: psutil.Process,
    lengths: Sequence[_Length],
    delivery: Delivery,
) -> dict[str, Curve | AnswerError]:
    """The curve of one answer in one delivery, while there is time, or the error that ended it."""
    most_s = lengths[0].input_.cpu_s if lengths else None
    points: list[CostPoint] = []
    spent = 0.0
    for length in lengths:
        if most_s and spent >= most_s and len(points) >= FEWEST:
            break
        tries: list[CostPoint] = []
        for _ in range(TRIES if length.tokens <= ORDINARY else 1):
            tried = _tried(client, other, process, length, delivery)
            if isinstance(tried, AnswerError):
                return {"error": tried}
            tries.append(tried)
            if tried.longest_s <= BLOCKED_S:
                break
        points.append(min(tries, key=lambda each: each.longest_s))
        spent += sum(each.cpu_s for each in tries)
    return {"curve": Curve(points=tuple(points))}


def _tried(
    client: Client, other: WaitingClient, process: psutil.Process, length: _Length, delivery: Delivery
) -> CostPoint | AnswerError:
    """What one answer takes, and how long the other client waits meanwhile."""
    computed = cpu_s(process)
    with other.waiting():
        answer = client.answer(length.input_, delivery)
    if answer.error is not None:
        return answer.error
    taken = cpu_s(process) - computed
    counted = taken if taken >= TOLD_S else 0.0
    return CostPoint(size=length.size, cpu_s=counted, longest_s=other.longest_s)
