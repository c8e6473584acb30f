"""Run folders for tests, written by `RunWriter`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from vllm_harness._runs.folder import RunWriter
from vllm_harness._runs.records import CaseRecord, End, Header, Kind, Outcome, RunFinding, TargetRecord
from vllm_harness._runs.report.run import RecordedRun, read_run

QWEN3 = TargetRecord(id="scripted-qwen3", title="qwen3", lane="scripted", vllm="0.32.0", frontend="python")
ENDED = End(at=11.0, exit_code=0)
HOSTILE = "<script>alert(1)</script> ]]> `x` | \x1b[31m\x00\n::error::pwned\r\n\ud7ff\ufffe"


def run_in(
    folder: Path,
    cases: Sequence[CaseRecord],
    targets: Sequence[TargetRecord] = (QWEN3,),
    end: End | None = ENDED,
) -> RecordedRun:
    """Writes a run with these records and reads it again."""
    with RunWriter.begin(folder, Header(kind=Kind.SUITES, name="qwen3", started=1.0)) as writer:
        for record in (*targets, *cases, *([end] if end else ())):
            writer.write(record)
    return read_run(folder)


def case(name: str, outcome: Outcome = Outcome.PASSED, **more: object) -> CaseRecord:
    """A case record for the target `QWEN3`."""
    given = {"target": QWEN3.id, "group": "behaviours/test_a", "seconds": 0.5, **more}
    return CaseRecord.model_validate(
        {"id": f"tests/behaviours/test_a.py::{name}", "outcome": outcome, **given}
    )


def every_outcome() -> list[CaseRecord]:
    """A case record for each outcome, with hostile texts such as a server may send."""
    return [
        case("test_passed", defects=("vllm-1",)),
        case("test_known", Outcome.KNOWN, defects=("vllm-2",), reason=HOSTILE),
        case(
            f"test_found[{HOSTILE}]",
            Outcome.FINDING,
            reason=HOSTILE,
            details=HOSTILE,
            findings=(RunFinding(code="RO101", path="$.x", message=HOSTILE),),
        ),
        case("test_skipped", Outcome.SKIPPED, reason="[slow] minutes"),
        case("test_cancelled", Outcome.CANCELLED),
        case("test_merged", Outcome.NOT_JUDGED, reason="vLLM took [2]"),
    ]
