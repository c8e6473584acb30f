"""The plan of a load: how many conversations it has, when each starts, which streams the client leaves."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count

from vllm_harness._errors import UsageError
from vllm_harness._scenarios.format import MissingToolCall
from vllm_harness._scenarios.transports import Transport

LEFT_BY = 12
"""A client that leaves a stream does so before the event with this number."""


@dataclass(frozen=True)
class Plan:
    """The plan of a load; equal plans draw the same random numbers.

    Attributes:
        transports: the transports, which conversations use in turn; all of them are streamed.
        concurrency: the maximum number of conversations at once; if None, 1, or no limit if there is a rate.
        requests: the number of requests, rounded up to whole conversations; None for no limit.
        duration_s: the period in which conversations start, in seconds; None for no limit.
        rate: the number of conversations that start each second, at random intervals (a Poisson process); if
            None, a conversation starts as soon as another has ended.
        cancel: the fraction of the streams that the client leaves before their end.
        seed: the random seed.
        missing_tool_call: overrides the scenario's setting.

    Raises:
        UsageError: the load has no end, or a number is out of range.
    """

    transports: Sequence[Transport]
    concurrency: int | None = None
    requests: int | None = None
    duration_s: float | None = None
    rate: float | None = None
    cancel: float = 0.0
    seed: int = 0
    missing_tool_call: MissingToolCall | None = None

    def __post_init__(self) -> None:
        if self.requests is None and self.duration_s is None:
            raise UsageError(
                "the load has no end",
                hint="give --requests, --duration, or both: whichever is reached first ends it",
            )
        for name, value in (
            ("concurrency", self.concurrency),
            ("requests", self.requests),
            ("duration", self.duration_s),
            ("rate", self.rate),
        ):
            if value is not None and value <= 0:
                raise UsageError(f"{name} is {value}", hint="give a number above 0")
        if not 0 <= self.cancel <= 1:
            raise UsageError(f"cancel is {self.cancel}", hint="give a share from 0 to 1")

    @property
    def at_once(self) -> int | None:
        """The maximum number of conversations at once; None if there is no limit."""
        return self.concurrency or (None if self.rate else 1)

    def conversations(self, turns: int) -> int | None:
        """The maximum number of conversations with `turns` turns; None if there is no limit."""
        return None if self.requests is None else -(-self.requests // turns)

    def starts(self) -> Iterator[float]:
        """Yields when each conversation starts, in seconds after the load's start."""
        draw, at = random.Random(f"{self.seed}/begins"), 0.0
        while True:
            yield at
            at += draw.expovariate(self.rate) if self.rate else 0.0

    def transport(self, conversation: int) -> Transport:
        """The transport of a conversation."""
        return self.transports[conversation % len(self.transports)]

    def leaves_after(self, conversation: int, turn: str) -> int | None:
        """The number of events after which the client leaves a stream; None if it reads to the end."""
        if not self.cancel:
            return None
        draw = random.Random(f"{self.seed}/{conversation}/{turn}")
        return draw.randrange(LEFT_BY) if draw.random() < self.cancel else None


@dataclass(frozen=True)
class LoadShare:
    """The conversations that one client holds: every `of`-th conversation, starting with `number`.

    Attributes:
        number: the number of the share, from 0.
        of: the number of shares.
    """

    number: int = 0
    of: int = 1

    def at_once(self, plan: Plan) -> int | None:
        """The maximum number of conversations of this share at once; None if there is no limit."""
        if plan.at_once is None:
            return None
        each, rest = divmod(plan.at_once, self.of)
        return each + (self.number < rest)

    def starts(self, plan: Plan, turns: int) -> Iterator[tuple[int, float]]:
        """Yields the number and start of each conversation, in seconds after the load's start."""
        most = plan.conversations(turns)
        numbers = count() if most is None else range(most)
        for number, at_s in zip(numbers, plan.starts(), strict=False):
            if number % self.of == self.number:
                yield number, at_s


def shares_of(plan: Plan, turns: int, clients: int) -> list[LoadShare]:
    """Makes a share for each client, but no more shares than conversations that run at once."""
    bounds = [bound for bound in (plan.at_once, plan.conversations(turns)) if bound is not None]
    of = max(1, min([clients, *bounds]))
    return [LoadShare(number, of) for number in range(of)]
