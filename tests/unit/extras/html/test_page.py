"""The HTML page of a run contains the data in the run folder, limited in size and without active content."""

from __future__ import annotations

import base64
import gzip
import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.extras.html.generated import DEFECT, write_run
from vllm_harness._errors import UsageError
from vllm_harness._runs.folder import RunWriter
from vllm_harness._runs.records import (
    Arrival,
    CaseRecord,
    ExchangeRecord,
    Header,
    Kind,
    LogLines,
    Outcome,
    RunFinding,
    TargetRecord,
)
from vllm_harness.extras.html.page import write

DATA = re.compile(r'<script type="text/plain" id="([\w-]+)">([A-Za-z0-9+/=]*)</script>')
HEADER = Header(kind=Kind.SUITES, started=1.0)


def unpacked(page: Path) -> dict[str, Any]:
    """Returns the data embedded in a page, by name."""
    blocks = DATA.findall(page.read_text(encoding="utf-8"))
    return {name: json.loads(gzip.decompress(base64.b64decode(text))) for name, text in blocks}


def detail_of(data: dict[str, Any], row: list[Any]) -> dict[str, Any]:
    block, at = row[-1]
    detail: dict[str, Any] = data[f"block-{block}"][at]
    return detail


def one_case(folder: Path, case: CaseRecord, *records: ExchangeRecord | LogLines) -> Path:
    with RunWriter.begin(folder, HEADER) as writer:
        for record in (*records, case):
            writer.write(record)
    return folder


def test_all_cases_and_the_details_of_failures(tmp_path: Path) -> None:
    data = unpacked(write([write_run(tmp_path / "run", cases=60)], tmp_path / "page.html"))
    index = data["index"]
    [run] = index["runs"]
    assert len(run["cases"]) == 60
    assert [target["title"] for target in run["targets"]] == ["qwen3", "gpt-oss", "llama3.1", "deepseek-r1"]
    assert run["header"]["name"] == "nightly"
    assert run["end"]["exit_code"] == 1
    failed = [row for row in run["cases"] if index["outcomes"][row[4]] == "finding"]
    assert failed
    for row in failed:
        detail = detail_of(data, row)
        streamed, body = detail["exchanges"]
        places = {finding["event_index"] for finding in detail["findings"]}
        assert max(places) < len(streamed["events"])
        assert streamed["twin"] == body["id"]
        assert "".join(text for _, text in streamed["output"]).endswith("<|im_end|>")
        assert detail["logs"][0]["lines"]
    assert index["defects"][DEFECT]["title"].startswith("A Chat body on Harmony")


def test_same_run_gives_the_same_bytes(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", cases=30)
    pages = [write([run], tmp_path / name).read_bytes() for name in ("a.html", "b.html")]
    assert pages[0] == pages[1]


def test_sum_and_times_of_a_stream(tmp_path: Path) -> None:
    events = ['data: {"type": "response.created", "response": {"id": "r", "output": []}}\n\n', ": ping\n\n"]
    text = "".join(events) + "data: [DONE]\n\ndata: cut"
    stream = tuple(
        Arrival(after=0.01 * at, text=each) for at, each in enumerate(re.findall(r".{1,40}|\n", text))
    )
    exchange = ExchangeRecord(id="1", target="t", case="c", at=1.0, stream=stream)
    run = one_case(tmp_path / "run", CaseRecord(id="c", target="t", outcome=Outcome.PASSED), exchange)
    data = unpacked(write([run], tmp_path / "page.html"))
    [shown] = detail_of(data, data["index"]["runs"][0]["cases"][0])["exchanges"]
    assert [event[2] for event in shown["events"]] == [events[0][6:-2], "[DONE]", "cut"]
    assert shown["events"][2][3] is True
    assert shown["events"][0][0] > 0
    assert shown["accumulated"] == {"id": "r", "output": []}


def test_twins_have_the_same_request(tmp_path: Path) -> None:
    def exchange(number: str, stream: bool) -> ExchangeRecord:
        answer: dict[str, Any] = (
            {"stream": (Arrival(after=0, text="data: {}\n\n"),)} if stream else {"answer": {}}
        )
        request = {"input": "Hi", "stream": stream}
        return ExchangeRecord(
            id=number, target="t", case="c", at=1.0, path="/v1/responses", request=request, **answer
        )

    run = one_case(
        tmp_path / "run",
        CaseRecord(id="c", target="t", outcome=Outcome.PASSED),
        *(exchange(str(number), number % 2 == 0) for number in range(4)),
    )
    data = unpacked(write([run], tmp_path / "page.html"))
    shown = detail_of(data, data["index"]["runs"][0]["cases"][0])["exchanges"]
    assert [each["twin"] for each in shown] == ["1", "0", "3", "2"]


def test_answers_are_not_markup(tmp_path: Path) -> None:
    hostile = "</script><script>alert(1)</script><!--"
    case = CaseRecord(
        id=hostile,
        target="t",
        group=hostile,
        outcome=Outcome.FINDING,
        reason=hostile,
        findings=(RunFinding(message=hostile, exchange="1"),),
    )
    exchange = ExchangeRecord(
        id="1", target="t", case=hostile, at=1.0, answer=hostile, request={hostile: hostile}
    )
    page = write([one_case(tmp_path / "run", case, exchange)], tmp_path / "page.html")
    assert "alert(1)" not in page.read_text(encoding="utf-8")
    assert unpacked(page)["index"]["runs"][0]["cases"][0][0] == hostile


def test_large_texts_are_truncated(tmp_path: Path) -> None:
    huge = "x" * 10_000_000
    deep: Any = "end"
    for _ in range(100):
        deep = [deep]
    exchanges = [
        ExchangeRecord(id=str(at), target="t", case="c", at=1.0, answer=[huge, deep], output=())
        for at in range(3)
    ]
    lines = LogLines(target="t", case="c", lines=tuple(f"line {at}" for at in range(5000)))
    case = CaseRecord(id="c", target="t", outcome=Outcome.PASSED)
    page = write([one_case(tmp_path / "run", case, *exchanges, lines)], tmp_path / "page.html")
    assert page.stat().st_size < 1_000_000
    data = unpacked(page)
    detail = detail_of(data, data["index"]["runs"][0]["cases"][0])
    assert all(
        each["answer"][0].endswith("[truncated: 10,000,000 characters in total]")
        for each in detail["exchanges"]
    )
    assert "nested more than" in json.dumps(detail["exchanges"][0])
    assert detail["logs"][0]["lines"][0] == "… [3,000 earlier lines are left out]"
    assert detail["logs"][0]["lines"][-1] == "line 4999"


def test_passed_cases_lose_their_details_first(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", cases=400, failing=0.02)
    data = unpacked(write([run], tmp_path / "page.html", room=1))
    index = data["index"]
    details = {
        outcome: [
            detail_of(data, row) for row in index["runs"][0]["cases"] if index["outcomes"][row[4]] == outcome
        ]
        for outcome in ("finding", "passed")
    }
    assert any("exchanges" in each for each in details["finding"])
    left_out = [each for each in details["passed"] if "left_out" in each]
    assert left_out
    assert all("exchanges" not in each for each in left_out)


def test_targets_of_two_runs_are_paired(tmp_path: Path) -> None:
    runs = [write_run(tmp_path / version, version=version, cases=20) for version in ("0.31.0", "0.32.0")]
    index = unpacked(write(runs, tmp_path / "page.html"))["index"]
    before, now = index["runs"]
    assert [target["partner"] for target in now["targets"]] == [target["id"] for target in before["targets"]]


def test_run_without_targets_or_end(tmp_path: Path) -> None:
    run = one_case(tmp_path / "run", CaseRecord(id="c", target="t", outcome=Outcome.PASSED))
    index = unpacked(write([run], tmp_path / "page.html"))["index"]
    assert index["runs"][0]["targets"] == [
        TargetRecord(id="t", title="t").model_dump(exclude_defaults=True) | {"partner": ""}
    ]
    assert index["runs"][0]["end"] is None
    assert index["defects"] == {}


@pytest.mark.parametrize("count", [0, 3])
def test_wrong_number_of_runs(tmp_path: Path, count: int) -> None:
    with pytest.raises(UsageError, match="one run or compares two"):
        write([tmp_path] * count, tmp_path / "page.html")


def test_page_that_cannot_be_written(tmp_path: Path) -> None:
    run = one_case(tmp_path / "run", CaseRecord(id="c", target="t", outcome=Outcome.PASSED))
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="cannot use"):
        write([run], tmp_path / "file" / "page.html")
