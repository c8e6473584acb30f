"""The folder of a load's run: every turn as it ends, and the first exchange of each kind of problem."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from vllm_harness._protocol import Finding
from vllm_harness._protocol.core.events import Json
from vllm_harness._runs.exchanges import record_of
from vllm_harness._runs.folder import RunWriter
from vllm_harness._runs.records import CaseRecord, Outcome, RunFinding, Series
from vllm_harness._scenarios.transports import Transport
from vllm_harness.extras.load.conversations import LoadTurn
from vllm_harness.extras.load.health import ProcessSample
from vllm_harness.extras.load.tally import PERCENTILES, Distribution, LoadTally, problems_of

EXCHANGES = 200
"""Kept whole at most."""
SUMMARY = "summary.json"
_POINTS = (0.0, 25.0, *PERCENTILES, 100.0)


class LoadRecorder:
    """Writes what a load brings.

    Args:
        writer: of the run's folder.
        target: id of the server in it.
        epoch: when the load began, in seconds since the epoch.
    """

    def __init__(self, writer: RunWriter, target: str, epoch: float) -> None:
        self._writer, self._target, self._epoch = writer, target, epoch
        self._seen: set[str] = set()

    @property
    def folder(self) -> Path:
        """Of the run."""
        return self._writer.folder

    def turn(self, taken: LoadTurn) -> None:
        """Keeps a turn."""
        result, name = taken.result, f"{taken.conversation}/{taken.turn.name}"
        exchange = self._exchange(taken, name) if self._first(taken) else ""
        mismatches = [
            RunFinding(
                message=str(each),
                path=each.what,
                expected=each.expected,
                actual=each.actual,
                known=each.known,
            )
            for each in result.mismatches
        ]
        known = sorted({each.known for each in result.findings if each.known}.union(result.tied))
        self._writer.write(
            CaseRecord(
                id=name,
                target=self._target,
                group=taken.transport.name,
                outcome=_outcome(taken, known),
                defects=tuple(known),
                reason=result.reason or "; ".join(map(str, result.mismatches)),
                findings=(*mismatches, *(RunFinding.of(each, exchange) for each in result.findings)),
                started=round(self._epoch + taken.began_s, 6),
                seconds=taken.heard and taken.heard.exchange.seconds,
                node=taken.node,
            )
        )

    def between(self, conversation: int, transport: Transport, findings: Sequence[Finding]) -> None:
        """Keeps what is wrong between the turns of a conversation."""
        counts = any(each.counts for each in findings)
        self._writer.write(
            CaseRecord(
                id=f"{conversation}/between its turns",
                target=self._target,
                group=transport.name,
                outcome=Outcome.FINDING if counts else Outcome.KNOWN,
                findings=tuple(RunFinding.of(each) for each in findings),
            )
        )

    def figures(
        self, by_transport: Sequence[tuple[str, LoadTally]], health: dict[str, list[ProcessSample]]
    ) -> None:
        """Keeps distributions, and memory and handles over the time."""
        for name, tally in by_transport:
            for title, times in (
                ("time to first token", tally.first),
                ("gap between events", tally.gap),
                ("time of a turn", tally.turn),
            ):
                self._distribution(f"{title}, {name}", times)
        for whose, samples in health.items():
            memory = tuple((each.at_s, each.memory_mib) for each in samples)
            handles = tuple((each.at_s, float(each.handles)) for each in samples)
            for title, unit, points in (("memory", "MiB", memory), ("handles", "", handles)):
                series = Series(
                    target=self._target, name=f"{title}, {whose}", unit=unit, form="time", points=points
                )
                self._writer.write(series)

    def summary(self, summary: Json) -> None:
        """Keeps the figures as a file of their own."""
        (self.folder / SUMMARY).write_text(json.dumps(summary, indent=2, ensure_ascii=False) + "\n")

    def _distribution(self, name: str, times: Distribution) -> None:
        points = tuple((each, value) for each in _POINTS if (value := times.at(each)) is not None)
        if points:
            series = Series(target=self._target, name=name, unit="s", form="percentiles", points=points)
            self._writer.write(series)

    def _first(self, taken: LoadTurn) -> bool:
        """Whether a turn has a problem of a kind that no turn before had."""
        kinds = {f"{taken.transport.name} {kind}" for kind in problems_of(taken.result)} - self._seen
        if not kinds or taken.heard is None or len(self._seen) >= EXCHANGES:
            return False
        self._seen |= kinds
        return True

    def _exchange(self, taken: LoadTurn, name: str) -> str:
        assert taken.heard is not None
        at = self._epoch + taken.began_s
        self._writer.write(record_of(taken.heard.exchange, id=name, target=self._target, case=name, at=at))
        return name


def _outcome(taken: LoadTurn, known: Sequence[str]) -> Outcome:
    if taken.result.wrong:
        return Outcome.FINDING
    if taken.result.reason:
        return Outcome.CANCELLED
    return Outcome.KNOWN if known else Outcome.PASSED
