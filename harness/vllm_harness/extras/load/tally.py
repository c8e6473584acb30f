"""The figures of a load, as they come: counts, and distributions of bounded memory."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from hdrh.histogram import HdrHistogram

from vllm_harness._protocol import Finding
from vllm_harness._protocol.core.events import Json
from vllm_harness._scenarios.course import lacks_calls
from vllm_harness._scenarios.judging import STATUS
from vllm_harness._scenarios.results import TurnResult
from vllm_harness.extras.load.conversations import LEFT, OF_OUTPUTS, LoadTurn
from vllm_harness.extras.load.streams import StreamResult

PERCENTILES = (50.0, 90.0, 99.0, 99.9)
_LONGEST_US = 3600 * 10**6
_DIGITS = 3
_INDEX = re.compile(r"\[\d+\]")


class Distribution:
    """Durations from a microsecond to an hour, to three digits."""

    def __init__(self) -> None:
        self._histogram = HdrHistogram(1, _LONGEST_US, _DIGITS)

    def add(self, seconds: float) -> None:
        """Counts a duration."""
        self._histogram.record_value(min(max(round(seconds * 1e6), 1), _LONGEST_US))

    def add_all(self, other: Distribution) -> None:
        """Counts all of another."""
        self._histogram.add(other._histogram)

    @property
    def count(self) -> int:
        """How many were counted."""
        return int(self._histogram.get_total_count())

    def at(self, percentile: float) -> float | None:
        """Seconds within which this percentage of them lie; None where there are none."""
        if not self.count:
            return None
        return float(self._histogram.get_value_at_percentile(percentile)) / 1e6

    def as_json(self) -> Json:
        """Percentiles and the mean, in milliseconds."""
        if not self.count:
            return {"count": 0}
        percentiles = {f"p{percentile:g}": self._ms(self.at(percentile)) for percentile in PERCENTILES}
        mean = self._ms(self._histogram.get_mean_value() / 1e6)
        return {"count": self.count, "mean": mean, **percentiles, "max": self._ms(self.at(100.0))}

    @staticmethod
    def _ms(seconds: float | None) -> float | None:
        return None if seconds is None else round(seconds * 1e3, 3)


@dataclass
class LoadTally:
    """Figures of some turns.

    Attributes:
        requests: that were sent.
        passed: answered, and nothing is wrong that is not known.
        left: streams that the client left before their end.
        left_out: turns that could not be asked.
        calls: that the model made.
        missing: turns that expect calls, and were answered without any.
        unparsable: calls whose arguments are no JSON object.
        mixed: answers with the words or the id of another conversation.
        tokens: that the model generated, by the server's own count.
        events: of streams.
        errors: requests without an answer where one was expected, by code.
        mismatches: by what they are about.
        findings: by code and place, those that nobody knew of.
        known: by the reference of the known deviation, or the id of the defect that the scenario names.
        first, gap, turn: until the first words, between the arrivals of events, until the end of an answer.
    """

    requests: int = 0
    passed: int = 0
    left: int = 0
    left_out: int = 0
    calls: int = 0
    missing: int = 0
    unparsable: int = 0
    mixed: int = 0
    tokens: int = 0
    events: int = 0
    errors: Counter[str] = field(default_factory=Counter)
    mismatches: Counter[str] = field(default_factory=Counter)
    findings: Counter[str] = field(default_factory=Counter)
    known: Counter[str] = field(default_factory=Counter)
    first: Distribution = field(default_factory=Distribution)
    gap: Distribution = field(default_factory=Distribution)
    turn: Distribution = field(default_factory=Distribution)

    @classmethod
    def of(cls, tallies: Iterable[LoadTally]) -> LoadTally:
        """The sum of several."""
        whole = cls()
        for tally in tallies:
            for each in fields(cls):
                ours, theirs = getattr(whole, each.name), getattr(tally, each.name)
                if isinstance(ours, Distribution):
                    ours.add_all(theirs)
                else:
                    setattr(whole, each.name, ours + theirs)
        return whole

    @property
    def wrong(self) -> bool:
        """Whether something is not as it should be, and nobody knew of it."""
        return bool(self.errors or self.mismatches or self.findings)

    def add(self, taken: LoadTurn) -> None:
        """Counts a turn."""
        result, heard = taken.result, taken.heard
        self.add_findings(result.findings)
        self.mismatches.update(_plain(each.what) for each in result.mismatches if not each.known)
        self.known.update(each.known for each in result.mismatches if each.known)
        if heard is None:
            self.left_out += 1
            return
        self.requests += 1
        self.events += heard.events
        if result.reason == LEFT:
            self.left += 1
            return
        if code := error_of(taken):
            self.errors[code] += 1
        self.passed += not result.wrong
        self._add_calls(taken)
        self._add_times(heard)

    def add_findings(self, findings: Iterable[Finding]) -> None:
        """Counts findings, known or not."""
        for finding in findings:
            if finding.known:
                self.known[finding.known] += 1
            elif finding.counts:
                self.findings[place_of(finding)] += 1

    def _add_calls(self, taken: LoadTurn) -> None:
        result, answer = taken.result, taken.result.answer
        if answer is not None:
            self.calls += len(answer.calls)
            self.unparsable += sum(call.values is None for call in answer.calls)
        self.missing += lacks_calls(taken.turn, result)
        self.mixed += any(each.what in MIXED for each in result.mismatches)

    def _add_times(self, heard: StreamResult) -> None:
        if heard.first_s is not None:
            self.first.add(heard.first_s)
        for gap in heard.gaps_s:
            self.gap.add(gap)
        if heard.exchange.status:
            self.turn.add(heard.exchange.seconds or 0.0)
        self.tokens += _tokens(heard.body)

    def as_json(self, seconds: float) -> Json:
        """For a report; rates are by the seconds that the load took."""
        counts = {
            each.name: getattr(self, each.name)
            for each in fields(self)
            if isinstance(getattr(self, each.name), int)
        }
        return {
            **counts,
            "requests_a_second": round(self.requests / seconds, 3) if seconds else None,
            "tokens_a_second": round(self.tokens / seconds, 3) if seconds else None,
            "errors": _sorted(self.errors),
            "mismatches": _sorted(self.mismatches),
            "findings": _sorted(self.findings),
            "known": _sorted(self.known),
            "time_to_first_token_ms": self.first.as_json(),
            "gap_between_events_ms": self.gap.as_json(),
            "turn_ms": self.turn.as_json(),
        }


SAME_ID = "id"
"""What a mismatch is about where two answers have the same id."""
MIXED = ("conversation", SAME_ID)


def error_of(taken: LoadTurn) -> str:
    """The code of a request that was not answered as it was expected, and nobody knew of it; else empty."""
    result, heard = taken.result, taken.heard
    if heard is None or result.answer is None or result.answer.status == taken.turn.expect.status:
        return ""
    if any(each.known and each.what in STATUS for each in result.mismatches):
        return ""
    exchange = heard.exchange
    if exchange.broken:
        return exchange.broken.partition(":")[0]
    if result.answer.status == "refused":
        return f"HTTP {exchange.status}"
    return "failed in the stream" if result.answer.status == "failed" else ""


def place_of(finding: Finding) -> str:
    """Code and place of a finding, the same wherever in a list it is."""
    return f"{finding.code} {_plain(finding.path)}"


def problems_of(result: TurnResult) -> list[str]:
    """What is wrong with a turn, and nobody knew of it: one name for each kind."""
    named = [_plain(each.what) for each in result.mismatches if each.what != OF_OUTPUTS and not each.known]
    return named + [place_of(each) for each in result.findings if each.counts]


def _plain(path: str) -> str:
    return _INDEX.sub("[*]", path)


def _tokens(body: Mapping[str, Any] | None) -> int:
    usage = (body or {}).get("usage")
    if not isinstance(usage, dict):
        return 0
    counted = usage.get("output_tokens", usage.get("completion_tokens"))
    return counted if isinstance(counted, int) else 0


def _sorted(counter: Counter[str]) -> dict[str, int]:
    return dict(sorted(counter.items(), key=lambda item: (-item[1], item[0])))


def summary_rows(tallies: Sequence[tuple[str, LoadTally]], seconds: float) -> list[tuple[Any, ...]]:
    """A row for each: name, counts, rates, and times as text."""
    return [
        (
            name,
            str(tally.requests),
            str(tally.passed),
            f"{tally.requests / seconds:.1f}" if seconds else "",
            f"{tally.tokens / seconds:.0f}" if seconds else "",
            *(
                _ms(times.at(percentile))
                for times in (tally.first, tally.gap, tally.turn)
                for percentile in (50.0, 99.0)
            ),
            f"{tally.calls}/{tally.missing}/{tally.unparsable}",
        )
        for name, tally in tallies
    ]


def _ms(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds * 1e3:.1f}"
