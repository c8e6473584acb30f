"""What a load does: how many conversations, when each begins, which streams a client leaves; its parts."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count

from vllm_harness._errors import UsageError
from vllm_harness._scenarios.format import MissingToolCall
from vllm_harness._scenarios.transports import Transport

LEFT_BY = 12
"""A client that goes away has seen fewer events than this."""


@dataclass(frozen=True)
class Plan:
    """What a load does; of equal plans every draw is the same.

    Attributes:
        transports: dealt to the conversations in turn; all streamed.
        concurrency: conversations at once; None: as many as the rate brings.
        requests: how many; whole conversations, so that it may be a few more. None: no limit.
        duration_s: seconds in which conversations begin; None: no limit.
        rate: conversations that begin a second, at drawn intervals (a Poisson process); None: each begins as
            soon as one has ended.
        cancel: share of the streams that the client leaves before their end.
        seed: of all that is drawn.
        missing_tool_call: in place of the scenario's.

    Raises:
        UsageError: there is no end to it, or a figure is out of bounds.
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
                hint="give a number of requests, a duration in seconds, or both: the first counts",
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
        """The most conversations at once; None: no limit."""
        return self.concurrency or (None if self.rate else 1)

    def conversations(self, turns: int) -> int | None:
        """How many conversations of so many turns there are at most; None: no limit."""
        return None if self.requests is None else -(-self.requests // turns)

    def begins(self) -> Iterator[float]:
        """When each conversation is to begin, in seconds after the start."""
        draw, at = random.Random(f"{self.seed}/begins"), 0.0
        while True:
            yield at
            at += draw.expovariate(self.rate) if self.rate else 0.0

    def transport(self, conversation: int) -> Transport:
        """Over which a conversation is held."""
        return self.transports[conversation % len(self.transports)]

    def leaves_after(self, conversation: int, turn: str) -> int | None:
        """After how many events the client leaves a stream; None: it stays to the end."""
        if not self.cancel:
            return None
        draw = random.Random(f"{self.seed}/{conversation}/{turn}")
        return draw.randrange(LEFT_BY) if draw.random() < self.cancel else None


@dataclass(frozen=True)
class LoadShare:
    """The conversations that one client holds: every so many-th, so that the parts begin side by side.

    Attributes:
        number: of the part, from 0 on.
        of: how many parts the load has.
    """

    number: int = 0
    of: int = 1

    def at_once(self, plan: Plan) -> int | None:
        """The most conversations of this part at once; None: no limit."""
        if plan.at_once is None:
            return None
        each, rest = divmod(plan.at_once, self.of)
        return each + (self.number < rest)

    def begins(self, plan: Plan, turns: int) -> Iterator[tuple[int, float]]:
        """The conversations of so many turns, and when each is to begin, in seconds after the start."""
        most = plan.conversations(turns)
        numbers = count() if most is None else range(most)
        for number, at_s in zip(numbers, plan.begins(), strict=False):
            if number % self.of == self.number:
                yield number, at_s


def parts_of(plan: Plan, turns: int, clients: int) -> list[LoadShare]:
    """A part for each client, so far as there is a conversation for it at a time."""
    bounds = [each for each in (plan.at_once, plan.conversations(turns)) if each is not None]
    of = max(1, min([clients, *bounds]))
    return [LoadShare(number, of) for number in range(of)]
