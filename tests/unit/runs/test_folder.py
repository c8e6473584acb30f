"""Run folders: records can be written and read again, also after a kill; secrets are redacted."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from vllm_harness._errors import UsageError
from vllm_harness._runs.folder import RunWriter
from vllm_harness._runs.reading import header_of, latest_cases, records
from vllm_harness._runs.records import (
    Arrival,
    CaseRecord,
    End,
    ExchangeRecord,
    Header,
    Kind,
    Outcome,
    RunFinding,
    TargetRecord,
)
from vllm_harness._runs.report.run import read_run

HEADER = Header(kind=Kind.SUITES, name="nightly", started=1.0)
CASE = CaseRecord(id="test_a", target="t", outcome=Outcome.PASSED, findings=(RunFinding(message="late"),))


def test_what_is_written_is_read(tmp_path: Path) -> None:
    stream = (Arrival(after=0.1, text="data: {}\n\n"), Arrival(after=0.2, text="data: [DONE]\n\n"))
    kept = [HEADER, TargetRecord(id="t", title="qwen3"), CASE, ExchangeRecord(id="1", at=2.0, stream=stream)]
    with RunWriter.begin(tmp_path, HEADER) as writer:
        for record in kept[1:]:
            writer.write(record)
    found = list(records(tmp_path))
    assert [record for _, record in found] == kept
    assert [place.read() for place, _ in found] == kept
    assert header_of(tmp_path) == HEADER
    assert read_run(tmp_path).end is None


def test_parts_of_other_processes_belong_to_the_run(tmp_path: Path) -> None:
    with RunWriter(tmp_path, part="gw0") as worker, RunWriter(tmp_path) as run:
        worker.write(CASE)
        run.write(HEADER)
        run.write(End(at=3.0, exit_code=0))
    assert [record.type for _, record in records(tmp_path)] == ["header", "end", "case"]
    assert read_run(tmp_path).end == End(at=3.0, exit_code=0)


@pytest.mark.parametrize("missing", [1, 20, 70])
def test_a_truncated_last_line_is_skipped(tmp_path: Path, missing: int) -> None:
    with RunWriter.begin(tmp_path, HEADER) as writer:
        writer.write(CASE)
    path = tmp_path / "records.jsonl"
    path.write_bytes(path.read_bytes()[:-missing])
    assert [record for _, record in records(tmp_path)] == [HEADER]


def test_the_latest_record_of_a_case_counts() -> None:
    again = CASE.model_copy(update={"outcome": Outcome.FINDING})
    assert latest_cases([CASE, again]) == [again]


def test_secrets_are_not_written(tmp_path: Path) -> None:
    with RunWriter(tmp_path, secrets=["hunter2-hunter2"]) as writer:
        writer.write(ExchangeRecord(id="1", at=0.0, request={"key": "hunter2-hunter2"}))
    assert "hunter2" not in writer.path.read_text()
    assert writer.path.stat().st_mode & 0o777 == 0o600


def test_half_a_surrogate_pair_is_written_as_a_question_mark(tmp_path: Path) -> None:
    with RunWriter(tmp_path) as writer:
        writer.write(ExchangeRecord(id="1", at=0.0, answer={"text": "a\ud83d"}))
    [(_, record)] = records(tmp_path)
    assert record == ExchangeRecord(id="1", at=0.0, answer={"text": "a?"})


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (None, "does not contain a run"),
        (
            '{"type": "header", "kind": "suites", "started": 1, "format": 99}\n',
            "records.jsonl:1: .* format 99",
        ),
        (
            '{"type": "case", "id": "a"}\n',
            "records.jsonl:1: not a record of a run: case.target: Field required",
        ),
        ("nonsense\n", "records.jsonl:1: not a record"),
    ],
)
def test_a_damaged_run_is_an_error(tmp_path: Path, text: str | None, error: str) -> None:
    if text is not None:
        (tmp_path / "records.jsonl").write_text(text)
    with pytest.raises(UsageError) as raised:
        list(records(tmp_path))
    assert re.search(error, str(raised.value))


def test_a_folder_holds_one_run(tmp_path: Path) -> None:
    RunWriter.begin(tmp_path, HEADER).close()
    with pytest.raises(UsageError, match="already holds a run"):
        RunWriter.begin(tmp_path, HEADER)


def test_secrets_within_json_within_json_are_not_written(tmp_path: Path) -> None:
    secret = 'pä"ss\\word'
    piece = json.dumps({"delta": f"it is {secret}"}, ensure_ascii=False)
    with RunWriter(tmp_path) as writer:
        writer.hide([secret])
        with writer.part("fork") as part:
            part.write(ExchangeRecord(id="1", at=0.0, stream=(Arrival(after=0.0, text=piece),)))
            part.write(ExchangeRecord(id="2", at=0.0, answer=secret))
    first, second = (record for _, record in records(tmp_path))
    assert first.stream[0].text == '{"delta": "it is [redacted]"}'
    assert second.answer == "[redacted]"


def test_a_run_is_resumed(tmp_path: Path) -> None:
    for _ in range(2):
        RunWriter.resume(tmp_path, HEADER).close()
    assert [record for _, record in records(tmp_path)] == [HEADER]
