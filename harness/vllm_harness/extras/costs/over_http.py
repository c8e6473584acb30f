"""Measures the cost of growing answers over HTTP, and how long another client waits meanwhile."""

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
from vllm_harness._exchange.delivery import Api, Delivery
from vllm_harness._machine.tasks import raise_if_interrupted
from vllm_harness._regression.cases.case import CaseInput, Grown
from vllm_harness._regression.engines.answer import AnswerError, CaseAnswer, CostPoint, Curve
from vllm_harness._regression.engines.over_http import CaseClient, count_tokens, served_by
from vllm_harness._scripted.families import LAYERS, Family, entry_of
from vllm_harness._scripted.in_server.vllm_harness_names import STEPS_HEADER, STEPS_PATH
from vllm_harness._server.remote import RemoteServer
from vllm_harness.extras.costs.growing import BLOCKED_S
from vllm_harness.extras.costs.growing import LONGEST as LONGEST_TEXT

ORDINARY, LONGEST = 17_000, 66_000
"""The approximate tokens in the longest answer, for a case that sets no CPU time and for one that does.

A stand-in generates about 1,000 tokens a second for a single answer, and a few thousand for several at once.
"""
CONTEXT = 81_920
"""The context length, for prompts with many tools and for long answers."""
ARGS = ("--max-model-len", str(CONTEXT), "--num-gpu-blocks-override", "2048")
LONG_ENV = {"VLLM_ALLOW_LONG_MAX_MODEL_LEN": "1"}
"""Environment variables for servers whose tokenizer has a smaller limit."""
OVERRIDES = json.dumps(
    {
        "max_position_embeddings": CONTEXT,
        # scripted tokens do not depend on earlier tokens, and full attention would take most of the time
        "sliding_window": 128,
        "layer_types": ["sliding_attention"] * LAYERS,
    }
)
FEWEST = 4
"""The number of lengths that are measured even if the CPU time is already spent."""
LEAST_PROCESS_S = 0.1
"""A process's CPU time below this (fewer than ten clock ticks) is too imprecise, and counts as 0."""
TRIES = 3
"""The most times that an ordinary answer is requested if only the other client's wait is too long.

Other work on the machine can make a wait longer, but not shorter.
"""
PAUSE_S = 0.01
"""The pause between two requests of the other client."""
AT_ONCE = 16
"""The number of answers that are measured at once; with more, a server falls far behind its engine."""
REQUEST_S = 600.0
"""The timeout of a measured answer: one of 64k tokens can take minutes."""


def long_args(family: Family) -> tuple[str, ...]:
    """The flags for a server that generates long answers."""
    return ARGS if family.form is None else (*ARGS, "--hf-overrides", OVERRIDES)


def limit_of(tokens: int) -> int:
    """A `max_tokens` that does not truncate an answer of `tokens` tokens; the Messages API requires it."""
    return tokens + tokens // 10 + 64


class WaitingClient:
    """Another client of a server: requests the version repeatedly, and measures the longest wait.

    A wait counts as no longer than the CPU time that the server's process used meanwhile, so that other work
    on the machine does not count against the server.

    Args:
        url: the URL that returns the server's version.
        process: the server's process, in which its event loop runs.

    Attributes:
        longest_s: the longest wait, in seconds.
    """

    def __init__(self, url: str, process: psutil.Process) -> None:
        self.longest_s = 0.0
        self._url = url
        self._process = process

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Sends requests while the `with` block runs, and sets `longest_s`."""
        self.longest_s, done = 0.0, Event()
        thread = Thread(target=self._request_until, args=(done,), daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join(REQUEST_S)

    def _request_until(self, done: Event) -> None:
        """Sends requests until the event is set, or the server ends, which makes the measured answer fail."""
        with suppress(requests.ConnectionError, psutil.Error), requests.Session() as session:
            while not done.wait(PAUSE_S):
                started, computed = time.monotonic(), cpu_s(self._process)
                with suppress(requests.Timeout):  # the wait was at least as long as the timeout
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
    mismatches: Callable[[CaseAnswer], bool],
    *,
    frontend: Frontend = "python",
) -> Iterator[CaseAnswer]:
    """Requests a family's growing answers over HTTP, and yields the curve of each when it is complete.

    The cost is the CPU time of the steps that a request's tasks take on the event loop. Many answers are
    measured at once, which makes some figures larger; an answer with a mismatch is measured again, alone and
    while another client waits, and only that curve counts.

    Args:
        environment: the environment whose vLLM serves.
        family: the family to serve.
        inputs: the inputs of growing cases, with deliveries over an API.
        mismatches: returns whether an answer has an unknown mismatch and must be measured again.
        frontend: vLLM's HTTP front end. The Rust one has neither Responses nor such tasks: its answers are
            measured one at a time, by the CPU time of its process.

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
            answer
            for input_ in inputs
            for answer in _growing(server, family, input_)
            if frontend == "python" or answer.delivery.api is not Api.RESPONSES
        ]
        measurer = _Measurer(server, frontend)
        alone = growing if frontend == "rust" else []
        if frontend == "python":
            for each, answer in measurer.together(growing):
                raise_if_interrupted()  # the server may have been stopped, and the answer be meaningless
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
        tokens: the number of tokens in the answer, as the server's tokenizer counts them.
        size: the size in the curve: the number of tokens, or of tools.
        input_: the case's input at this length.
    """

    tokens: int
    size: int
    input_: CaseInput


@dataclass(frozen=True)
class _Growing:
    """A growing answer in one delivery, on a server that has the scripts for all its lengths."""

    case: str
    family: str
    delivery: Delivery
    lengths: tuple[_Length, ...]
    client: CaseClient

    def measured(self, measure: Measure) -> CaseAnswer:
        """Measures the answer's curve within its CPU time; returns an error if a request fails."""
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
"""Requests one length, and returns its cost."""


def _growing(server: RemoteServer, family: Family, input_: CaseInput) -> Iterator[_Growing]:
    lengths = tuple(_lengths(server, input_))
    client = CaseClient(server, family, [length.input_ for length in lengths], request_s=REQUEST_S)
    for delivery in input_.deliveries:
        yield _Growing(input_.name, family.name, delivery, lengths, client)


class _Measurer:
    """Requests growing answers from a server, and measures their cost."""

    def __init__(self, server: RemoteServer, frontend: Frontend) -> None:
        self._server = server
        self._has_steps = frontend == "python"
        self._process = psutil.Process(server.pid)
        self._other = WaitingClient(server.url_for("/version"), self._process)
        self._numbers = count()

    def together(self, growing: Sequence[_Growing]) -> Iterator[tuple[_Growing, CaseAnswer]]:
        """Measures several answers at a time, and yields each when it is complete."""
        for answer in {each.delivery: each for each in growing if each.lengths}.values():
            # a server initializes some parts only for its first answer, which is therefore not measured
            answer.client.answer(answer.lengths[0].input_, answer.delivery)
        with ThreadPoolExecutor(AT_ONCE) as pool:
            futures = {pool.submit(answer.measured, self._by_steps): answer for answer in growing}
            try:
                for future in as_completed(futures):
                    yield futures[future], future.result()
            finally:
                pool.shutdown(wait=False, cancel_futures=True)

    def alone(self, growing: Sequence[_Growing]) -> Iterator[CaseAnswer]:
        """Measures one answer at a time, while another client waits."""
        measure = self._by_steps if self._has_steps else self._by_process
        for answer in growing:
            yield answer.measured(partial(self._while_another_waits, measure))

    def _by_steps(self, growing: _Growing, length: _Length) -> CostPoint | AnswerError:
        """Measures the steps of one request's tasks; the chunks are those of the delivery under any load."""
        name = str(next(self._numbers))
        answer = growing.client.answer(length.input_, growing.delivery, {STEPS_HEADER: name})
        if answer.error is not None:
            return answer.error
        try:
            steps = self._server.endpoint.get(STEPS_PATH + name, timeout=REQUEST_S).json()
        except requests.RequestException as error:
            return AnswerError(code=type(error).__name__, message=str(error))
        return CostPoint(size=length.size, cpu_s=steps["cpu_s"], longest_s=steps["longest_s"])

    def _by_process(self, growing: _Growing, length: _Length) -> CostPoint | AnswerError:
        """Measures the whole process of the server during one request."""
        before = cpu_s(self._process)
        answer = growing.client.answer(length.input_, growing.delivery)
        if answer.error is not None:
            return answer.error
        seconds = cpu_s(self._process) - before
        return CostPoint(
            size=length.size, cpu_s=seconds if seconds >= LEAST_PROCESS_S else 0.0, longest_s=0.0
        )

    def _while_another_waits(
        self, measure: Measure, growing: _Growing, length: _Length
    ) -> CostPoint | AnswerError:
        """Measures with `measure`, and reports the longest wait of the other client as the longest step."""
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
    """The lengths of a growing answer, up to the longest that a server can generate in time."""
    most = LONGEST if input_.cpu_s else ORDINARY
    for number, grown in enumerate((*input_.grown, *_longer(input_.grown[-1]))):
        tokens = count_tokens(server, grown.text) or len(grown.text)
        if tokens > most:
            return
        name, tools = f"{input_.name}, length {number}", input_.tools[: grown.tools]
        own = {"name": name, "text": grown.text, "tools": tools, "max_tokens": limit_of(tokens), "grown": ()}
        yield _Length(tokens, grown.tools or tokens, input_.model_copy(update=own))


def _longer(grown: Grown) -> Iterator[Grown]:
    """Extends an answer of 64k bytes to two and four times its length: most tokens have about four bytes."""
    if len(grown.text) >= LONGEST_TEXT and len(grown.runs) > 1:
        longest = max(count for _, count in grown.runs)
        for factor in (2, 4):
            runs = [(text, count * factor if count == longest else count) for text, count in grown.runs]
            yield grown.model_copy(update={"runs": tuple(runs)})
