"""Measures over HTTP what a server takes over answers that grow, and how long another client waits."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from itertools import count
from threading import Event, Thread

import psutil
import requests

from vllm_harness._configuration.model_entries import Frontend
from vllm_harness._environments.spec import Environment
from vllm_harness._machine.tasks import raise_if_interrupted
from vllm_harness._regression.cases.case import CaseInput, Grown
from vllm_harness._regression.cases.delivery import Api, Delivery
from vllm_harness._regression.engines.answer import AnswerError, CaseAnswer, CostPoint, Curve
from vllm_harness._regression.engines.over_http import CaseClient, Mismatches, count_tokens, served_by
from vllm_harness._scripted.families import LAYERS, Family, entry_of
from vllm_harness._scripted.in_server.vllm_harness_names import STEPS_HEADER, STEPS_PATH
from vllm_harness._server.remote import RemoteServer
from vllm_harness.extras.costs.growing import BLOCKED_S
from vllm_harness.extras.costs.growing import LONGEST as LONGEST_TEXT

ORDINARY, LONGEST = 17_000, 66_000
"""Tokens of the longest answer, about: where no CPU time is given for it, and where some is given.

A stand-in generates about a thousand tokens a second of one answer, and some thousand of several.
"""
CONTEXT = 81_920
"""Tokens of a prompt with many tools, or of an answer."""
ARGS = ("--max-model-len", str(CONTEXT), "--num-gpu-blocks-override", "2048")
LONG_ENV = {"VLLM_ALLOW_LONG_MAX_MODEL_LEN": "1"}
"""Of a server whose tokenizer says less."""
OVERRIDES = json.dumps(
    {
        "max_position_embeddings": CONTEXT,
        # no token of a script depends on what stands far before it; attention to all would take longest
        "sliding_window": 128,
        "layer_types": ["sliding_attention"] * LAYERS,
    }
)
FEWEST = 4
"""Lengths that are measured whatever they take."""
TOLD_S = 0.1
"""CPU time, ten ticks of its clock, below which the figure of a process tells nothing: it counts as 0."""
TRIES = 3
"""How often an answer of an ordinary length is requested, at most, beside which the other client waits longer
than any of its steps takes: what else the machine does may add to a wait, and takes nothing from it.
"""
PAUSE_S = 0.01
"""Between two requests of the other client."""
AT_ONCE = 16
"""Answers that grow at the same time; with more, a server falls far behind its engine."""
REQUEST_S = 600.0
"""Until an answer that is measured must have come: one of 64k tokens can take minutes."""


def long_args(family: Family) -> tuple[str, ...]:
    """The flags of a server whose answers are long."""
    return ARGS if family.form is None else (*ARGS, "--hf-overrides", OVERRIDES)


def limit_of(tokens: int) -> int:
    """The `max_tokens` of an answer of so many, which comes to its end; Messages must have one."""
    return tokens + tokens // 10 + 64


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
    mismatches: Mismatches,
    *,
    frontend: Frontend = "python",
) -> Iterator[CaseAnswer]:
    """Requests a family's growing answers over HTTP, and gives the curve of each as it comes.

    What counts is the CPU time of the steps that the tasks of a request take on the event loop. Many grow at
    the same time, which makes some figures larger; one that mismatches is measured again alone, with another
    client that waits, and only that curve counts.

    Args:
        environment: whose vLLM serves.
        family: whose model is served.
        inputs: of cases that grow, their deliveries those of an API.
        mismatches: tells which are measured again: those with something wrong that is not known.
        frontend: which of vLLM's HTTP front ends answers; that in Rust has no Responses, and no such tasks:
            there, the CPU time of its process counts, of one answer at a time.

    Raises:
        StartupError: the server does not start.
    """
    with served_by(
        entry_of(family),
        lane="scripted",
        vllm=environment,
        args=long_args(family),
        env=LONG_ENV,
        frontend=frontend,
    ) as server:
        growing = [
            each
            for input_ in inputs
            for each in _growing(server, family, input_)
            if frontend == "python" or each.delivery.api is not Api.RESPONSES
        ]
        measurer = _Measurer(server, frontend)
        alone = growing if frontend == "rust" else []
        if frontend == "python":
            for each, answer in measurer.together(growing):
                raise_if_interrupted()  # or its server has been ended, and the answer says nothing
                if mismatches(answer):
                    alone.append(each)
                else:
                    yield answer
        for answer in measurer.alone(alone):
            raise_if_interrupted()
            yield answer


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


@dataclass(frozen=True)
class _Growing:
    """A growing answer in one delivery, on a server that knows its lengths."""

    case: str
    family: str
    delivery: Delivery
    lengths: tuple[_Length, ...]
    client: CaseClient

    def measured(self, measure: Measure) -> CaseAnswer:
        """Its curve, while there is time, or the error that ended it."""
        answer = partial(CaseAnswer, family=self.family, case=self.case, delivery=self.delivery)
        points: list[CostPoint] = []
        spent = 0.0
        for length in self.lengths:
            most_s = length.input_.cpu_s
            if most_s and spent >= most_s and len(points) >= FEWEST:
                break
            point = measure(self, length)
            if isinstance(point, AnswerError):
                return answer(error=point)
            points.append(point)
            spent += point.cpu_s
        return answer(curve=Curve(points=tuple(points)))


Measure = Callable[[_Growing, _Length], CostPoint | AnswerError]
"""Requests one length, and tells what it takes."""


def _growing(server: RemoteServer, family: Family, input_: CaseInput) -> Iterator[_Growing]:
    lengths = tuple(_lengths(server, input_))
    client = CaseClient(server, family, [each.input_ for each in lengths], request_s=REQUEST_S)
    for delivery in input_.deliveries:
        yield _Growing(input_.name, family.name, delivery, lengths, client)


class _Measurer:
    """Requests answers of a server, and tells what each takes."""

    def __init__(self, server: RemoteServer, frontend: Frontend) -> None:
        self._server = server
        self._tells_steps = frontend == "python"
        self._process = psutil.Process(server.pid)
        self._other = WaitingClient(server.url_for("/version"), self._process)
        self._numbers = count()

    def together(self, growing: Sequence[_Growing]) -> Iterator[tuple[_Growing, CaseAnswer]]:
        """Several at a time, each as it is done."""
        for each in {each.delivery: each for each in growing if each.lengths}.values():
            # what a server starts with its first answer is of no request
            each.client.answer(each.lengths[0].input_, each.delivery)
        with ThreadPoolExecutor(AT_ONCE) as pool:
            asked = {pool.submit(each.measured, self._by_steps): each for each in growing}
            try:
                for done in as_completed(asked):
                    yield asked[done], done.result()
            finally:
                pool.shutdown(wait=False, cancel_futures=True)

    def alone(self, growing: Sequence[_Growing]) -> Iterator[CaseAnswer]:
        """One at a time, while another client waits."""
        measure = self._by_steps if self._tells_steps else self._by_process
        for each in growing:
            yield each.measured(partial(self._while_another_waits, measure))

    def _by_steps(self, growing: _Growing, length: _Length) -> CostPoint | AnswerError:
        """What the tasks of one request take, and the longest of their steps.

        A server that is behind its engine joins tokens, and takes fewer steps than there are tokens: its time
        counts as if it had taken one for each, or the cost of a step would limit that of the stream.
        """
        name = str(next(self._numbers))
        answer = growing.client.answer(length.input_, growing.delivery, {STEPS_HEADER: name})
        if answer.error is not None:
            return answer.error
        try:
            taken = self._server.endpoint.get(STEPS_PATH + name, timeout=REQUEST_S).json()
        except requests.RequestException as error:
            return AnswerError(code=type(error).__name__, message=str(error))
        joined = length.tokens / taken["count"] if growing.delivery.of_single_tokens else 1.0
        return CostPoint(
            size=length.size, cpu_s=taken["cpu_s"] * max(1.0, joined), longest_s=taken["longest_s"]
        )

    def _by_process(self, growing: _Growing, length: _Length) -> CostPoint | AnswerError:
        """What the whole process of the server takes meanwhile."""
        computed = cpu_s(self._process)
        answer = growing.client.answer(length.input_, growing.delivery)
        if answer.error is not None:
            return answer.error
        taken = cpu_s(self._process) - computed
        return CostPoint(size=length.size, cpu_s=taken if taken >= TOLD_S else 0.0, longest_s=0.0)

    def _while_another_waits(
        self, measure: Measure, growing: _Growing, length: _Length
    ) -> CostPoint | AnswerError:
        """What that tells, but the longest is how long the other client waited."""
        tries: list[CostPoint] = []
        for _ in range(TRIES if length.tokens <= ORDINARY else 1):
            with self._other.waiting():
                measured = measure(growing, length)
            if isinstance(measured, AnswerError):
                return measured
            tries.append(measured.model_copy(update={"longest_s": self._other.longest_s}))
            if self._other.longest_s <= BLOCKED_S or measured.longest_s > BLOCKED_S:
                break
        return min(tries, key=lambda each: each.longest_s)


def _lengths(server: RemoteServer, input_: CaseInput) -> Iterator[_Length]:
    """The lengths of a growing answer that a server generates in time."""
    most = LONGEST if input_.cpu_s else ORDINARY
    for number, grown in enumerate((*input_.grown, *_longer(input_.grown[-1]))):
        tokens = count_tokens(server, grown.text) or len(grown.text)
        if tokens > most:
            return
        name, tools = f"{input_.name}, length {number}", input_.tools[: grown.tools]
        own = {"name": name, "text": grown.text, "tools": tools, "max_tokens": limit_of(tokens), "grown": ()}
        yield _Length(tokens, grown.tools or tokens, input_.model_copy(update=own))


def _longer(grown: Grown) -> Iterator[Grown]:
    """An answer of 64k bytes twice and four times as long: most tokenizers make one token of four bytes."""
    if len(grown.text) >= LONGEST_TEXT and len(grown.runs) > 1:
        longest = max(count for _, count in grown.runs)
        for factor in (2, 4):
            runs = [(text, count * factor if count == longest else count) for text, count in grown.runs]
            yield grown.model_copy(update={"runs": tuple(runs)})
