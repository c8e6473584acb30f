"""Counts the results of a load, and collects the distributions of its times, in bounded memory."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from hdrh.histogram import HdrHistogram

from vllm_harness._protocol import Finding
from vllm_harness._protocol.core.events import Json
from vllm_harness._runs.records import Outcome, case_outcome
from vllm_harness._scenarios.history import lacks_calls
from vllm_harness._scenarios.mismatches import HOW_IT_ENDED
from vllm_harness._scenarios.results import TurnResult
from vllm_harness.extras.load.conversations import LEFT, OF_OUTPUTS, LoadTurn
from vllm_harness.extras.load.streams import StreamResult

PERCENTILES = (50.0, 90.0, 99.0, 99.9)
_LONGEST_US = 3600 * 10**6
_DIGITS = 3
_INDEX = re.compile(r"\[\d+\]")


class Distribution:
    """A distribution of durations from a microsecond to an hour, with three significant digits."""

    def __init__(self) -> None:
        self._histogram = HdrHistogram(1, _LONGEST_US, _DIGITS)

    def add(self, seconds: float) -> None:
        """Adds a duration."""
        self._histogram.record_value(min(max(round(seconds * 1e6), 1), _LONGEST_US))

    def add_all(self, other: Distribution) -> None:
        """Adds all durations of another distribution."""
        self._histogram.add(other._histogram)

    @property
    def count(self) -> int:
        """The number of durations."""
        return int(self._histogram.get_total_count())

    def at(self, percentile: float) -> float | None:
        """The duration at a percentile, in seconds; None if the distribution is empty."""
        if not self.count:
            return None
        return float(self._histogram.get_value_at_percentile(percentile)) / 1e6

    def as_json(self) -> Json:
        """The count, and the mean, percentiles and maximum in milliseconds."""
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
    """The counts and times of a group of turns.

    Attributes:
        requests: the number of requests that were sent.
        passed: the number of turns that were answered without any problem.
        known_turns: the number of turns whose problems are all known.
        left: the number of streams that the client abandoned before they ended.
        left_out: the number of turns that were not sent.
        calls: the number of calls that the model made.
        missing: the number of turns that expect calls but whose answer has no call.
        unparsable: the number of calls whose arguments are not a JSON object.
        mixed: the number of answers with another conversation's mark or id.
        tokens: the number of tokens that the model generated, according to the server.
        events: the number of events in the streams.
        errors: the number of answers whose status is not the expected one, by error code.
        mismatches: the number of unknown mismatches, by what they are about.
        findings: the number of unknown findings, by code and path.
        known: the number of known problems, by the deviation's reference or the defect's id.
        first, gap, turn: the times to the first text, between arrivals, and to the end of the answer.
    """

    requests: int = 0
    passed: int = 0
    known_turns: int = 0
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
        """Adds up several tallies."""
        whole = cls()
        for tally in tallies:
            for name in (field_.name for field_ in fields(cls)):
                ours, theirs = getattr(whole, name), getattr(tally, name)
                if isinstance(ours, Distribution):
                    ours.add_all(theirs)
                else:
                    setattr(whole, name, ours + theirs)
        return whole

    @property
    def wrong(self) -> bool:
        """Whether there is an error, mismatch or finding that is not a known one."""
        return bool(self.errors or self.mismatches or self.findings)

    def add(self, load_turn: LoadTurn) -> None:
        """Counts a turn."""
        result, stream = load_turn.result, load_turn.stream
        self.add_findings(result.findings)
        self.mismatches.update(_plain(mismatch.what) for mismatch in result.mismatches if not mismatch.known)
        self.known.update(mismatch.known for mismatch in result.mismatches if mismatch.known)
        if stream is None:
            self.left_out += 1
            return
        self.requests += 1
        self.events += stream.events
        if result.reason == LEFT:
            self.left += 1
            return
        if code := error_of(load_turn):
            self.errors[code] += 1
        outcome = outcome_of(result)
        self.passed += outcome is Outcome.PASSED
        self.known_turns += outcome is Outcome.KNOWN
        self._add_calls(load_turn)
        self._add_times(stream)

    def add_findings(self, findings: Iterable[Finding]) -> None:
        """Counts findings, both known and unknown."""
        for finding in findings:
            if finding.known:
                self.known[finding.known] += 1
            elif finding.counts:
                self.findings[place_of(finding)] += 1

    def _add_calls(self, load_turn: LoadTurn) -> None:
        result, answer = load_turn.result, load_turn.result.answer
        if answer is not None:
            self.calls += len(answer.calls)
            self.unparsable += sum(call.values is None for call in answer.calls)
        self.missing += lacks_calls(load_turn.turn, result)
        self.mixed += any(mismatch.what in MIXED for mismatch in result.mismatches)

    def _add_times(self, stream: StreamResult) -> None:
        if stream.first_s is not None:
            self.first.add(stream.first_s)
        for gap in stream.gaps_s:
            self.gap.add(gap)
        if stream.exchange.status:
            self.turn.add(stream.exchange.seconds or 0.0)
        self.tokens += _tokens(stream.body)

    def as_json(self, seconds: float) -> Json:
        """The figures for the report, with rates over the duration of the load."""
        counts = {
            field_.name: getattr(self, field_.name)
            for field_ in fields(self)
            if isinstance(getattr(self, field_.name), int)
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
"""What a mismatch is about if two answers have the same id."""
MIXED = ("conversation", SAME_ID)


def outcome_of(result: TurnResult) -> Outcome:
    """The outcome of a turn; a missing call that the scenario allows is not a problem."""
    return case_outcome(result.problems, cancelled=bool(result.reason))


def error_of(load_turn: LoadTurn) -> str:
    """The error code of a turn whose status is not the expected one; empty if it is, or if it is known."""
    result, stream = load_turn.result, load_turn.stream
    if stream is None or result.answer is None or result.answer.status == load_turn.turn.expect.status:
        return ""
    if any(mismatch.known and mismatch.what in HOW_IT_ENDED for mismatch in result.mismatches):
        return ""
    exchange = stream.exchange
    if exchange.broken:
        return exchange.broken.partition(":")[0]
    if result.answer.status == "refused":
        return f"HTTP {exchange.status}"
    return "failed in the stream" if result.answer.status == "failed" else ""


def place_of(finding: Finding) -> str:
    """The code and path of a finding, without list indices."""
    return f"{finding.code} {_plain(finding.path)}"


def problem_kinds(load_turn: LoadTurn) -> set[str]:
    """The kinds of unknown problems that a turn has, each with the transport's name."""
    result = load_turn.result
    kinds = [
        _plain(mismatch.what)
        for mismatch in result.mismatches
        if mismatch.what != OF_OUTPUTS and not mismatch.known
    ]
    kinds += [place_of(finding) for finding in result.findings if finding.counts]
    return {f"{load_turn.transport.name} {kind}" for kind in kinds}


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
    """A table row for each tally: its name, counts, rates and times, as strings."""
    return [
        (
            name,
            str(tally.requests),
            str(tally.passed),
            str(tally.known_turns),
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
