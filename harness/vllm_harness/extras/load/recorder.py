"""Writes the run folder of a load: every turn when it ends, and one exchange for each kind of problem."""

from __future__ import annotations

import json
from collections.abc import Sequence

from vllm_harness._protocol import Finding
from vllm_harness._protocol.core.events import Json
from vllm_harness._runs.exchanges import record_of
from vllm_harness._runs.folder import RunWriter
from vllm_harness._runs.records import CaseRecord, RunFinding, Series, case_outcome
from vllm_harness._scenarios.transports import Transport
from vllm_harness.extras.load.conversations import LoadTurn
from vllm_harness.extras.load.health import ProcessSample
from vllm_harness.extras.load.tally import PERCENTILES, Distribution, LoadTally, outcome_of, problem_kinds

EXCHANGES = 200
"""The maximum number of exchanges that are stored."""
SUMMARY = "summary.json"
_POINTS = (0.0, 25.0, *PERCENTILES, 100.0)


class LoadRecorder:
    """Writes the results of a load to its run folder.

    Args:
        writer: the writer of the run folder.
        target: the id of the server in the run folder.
        epoch: the start of the load, in seconds since the epoch.
    """

    def __init__(self, writer: RunWriter, target: str, epoch: float) -> None:
        self._writer, self._target, self._epoch = writer, target, epoch
        self._seen: set[str] = set()

    def record_turn(self, load_turn: LoadTurn) -> None:
        """Writes a turn, with its exchange if it is the first with some kind of problem."""
        result, name = load_turn.result, f"{load_turn.conversation}/{load_turn.turn.name}"
        exchange = self._record_exchange(load_turn, name) if self._is_first(load_turn) else ""
        mismatches = [
            RunFinding(
                message=str(mismatch),
                path=mismatch.what,
                expected=mismatch.expected,
                actual=mismatch.actual,
                known=mismatch.known,
            )
            for mismatch in result.mismatches
        ]
        self._writer.write(
            CaseRecord(
                id=name,
                target=self._target,
                group=load_turn.transport.name,
                outcome=outcome_of(result),
                defects=tuple(sorted(result.known)),
                reason=result.reason or "; ".join(map(str, result.mismatches)),
                findings=(*mismatches, *(RunFinding.of(finding, exchange) for finding in result.findings)),
                started=round(self._epoch + load_turn.began_s, 6),
                seconds=load_turn.stream and load_turn.stream.exchange.seconds,
                node=load_turn.node,
            )
        )

    def record_findings(self, conversation: int, transport: Transport, findings: Sequence[Finding]) -> None:
        """Writes the findings between the turns of a conversation."""
        self._writer.write(
            CaseRecord(
                id=f"{conversation}/between its turns",
                target=self._target,
                group=transport.name,
                outcome=case_outcome(findings),
                findings=tuple(RunFinding.of(finding) for finding in findings),
            )
        )

    def record_figures(
        self, by_transport: Sequence[tuple[str, LoadTally]], health: dict[str, list[ProcessSample]]
    ) -> None:
        """Writes the distributions of times, and the memory and handles over time."""
        for name, tally in by_transport:
            for title, times in (
                ("time to first token", tally.first),
                ("gap between events", tally.gap),
                ("time of a turn", tally.turn),
            ):
                self._record_distribution(f"{title}, {name}", times)
        for process, samples in health.items():
            memory = tuple((sample.at_s, sample.memory_mib) for sample in samples)
            handles = tuple((sample.at_s, float(sample.handles)) for sample in samples)
            for title, unit, points in (("memory", "MiB", memory), ("handles", "", handles)):
                series = Series(
                    target=self._target, name=f"{title}, {process}", unit=unit, form="time", points=points
                )
                self._writer.write(series)

    def write_summary(self, summary: Json) -> None:
        """Writes the figures to `summary.json`."""
        (self._writer.folder / SUMMARY).write_text(json.dumps(summary, indent=2, ensure_ascii=False) + "\n")

    def _record_distribution(self, name: str, times: Distribution) -> None:
        points = tuple((point, value) for point in _POINTS if (value := times.at(point)) is not None)
        if points:
            series = Series(target=self._target, name=name, unit="s", form="percentiles", points=points)
            self._writer.write(series)

    def _is_first(self, load_turn: LoadTurn) -> bool:
        """Whether a turn is the first with some kind of problem."""
        kinds = problem_kinds(load_turn) - self._seen
        if not kinds or load_turn.stream is None or len(self._seen) >= EXCHANGES:
            return False
        self._seen |= kinds
        return True

    def _record_exchange(self, load_turn: LoadTurn, name: str) -> str:
        assert load_turn.stream is not None
        at = self._epoch + load_turn.began_s
        self._writer.write(
            record_of(load_turn.stream.exchange, id=name, target=self._target, case=name, at=at)
        )
        return name
