"""A load on a real server: no data is lost or mixed up, cancelled streams end, missing calls are counted."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.own_server import OwnServer
from vllm_harness._defects.entry import Defect
from vllm_harness._exchange.server import VllmServer
from vllm_harness._runs.folder import RunWriter
from vllm_harness._runs.reading import records
from vllm_harness._runs.records import CaseRecord, ExchangeRecord, Header, Kind, Outcome
from vllm_harness._runs.report.run import read_run
from vllm_harness._scenarios.format import Scenario
from vllm_harness._scenarios.reading import find_scenario, read_scenario
from vllm_harness._scenarios.running import transports_of
from vllm_harness.extras.load.driver import Load
from vllm_harness.extras.load.health import drift
from vllm_harness.extras.load.plan import Plan
from vllm_harness.extras.load.recorder import LoadRecorder

pytestmark = [pytest.mark.vllm_scripted, pytest.mark.vllm_needs("tools")]
TOOL = {"parameters": {"type": "object", "properties": {}}, "outputs": [{"output": "21 degrees"}]}
WITHOUT_KERNEL_CACHE = {"ONEDNN_PRIMITIVE_CACHE_CAPACITY": "8"}
"""On CPU, oneDNN caches kernels for 1,024 batch shapes, which would take up 300 MiB."""
CALL: dict[str, Any] = {"calls": [{"name": "get_weather"}]}
SHORT = {
    "scenario": 1,
    "tools": {"get_weather": TOOL},
    "turns": [
        {"name": "ask", "user": "Weather?", "expect": CALL, "say": CALL},
        {"name": "answer", "expect": {"calls": []}, "say": "It is mild today, and it will be so tomorrow."},
    ],
}
WITHOUT_CALL = {
    **SHORT,
    "turns": [
        {"name": "ask", "user": "Weather?", "expect": CALL, "say": "I do not know."},
        {"name": "more", "user": "And tomorrow?", "say": "Who knows."},
    ],
}


NAMED: dict[str, Any] = {
    "scenario": 1,
    "turns": [
        {
            "name": "words",
            "user": "Hi",
            "expect": {"text": {"contains": "Bye."}},
            "say": "Hello.",
            "known": [{"defect": "acme-1", "over": ["chat-stream"]}],
        },
        {
            "name": "refused",
            "after": "start",
            "user": [{"text": "What is this?"}, {"image": "data:image/png;base64,%%%"}],
            "say": "never said",
            "known": [{"defect": "acme-2", "over": ["chat-stream"]}],
        },
    ],
}
"""A scenario in which a model without image input refuses an image."""
ACME = {
    id: Defect.model_validate({"id": id, "title": "It is wrong", "class": "defect", "pattern": pattern})
    for id, pattern in {"acme-1": "turn words: text", "acme-2": "turn refused: status: .*HTTP 400"}.items()
}


def run(server: VllmServer, scenario: Scenario, folder: Path, **more: Any) -> Load:
    """Runs a load test to its end."""
    defects = more.pop("defects", None)
    transports = transports_of(more.pop("transports", ()), (True,))
    with RunWriter.begin(folder, Header(kind=Kind.LOAD, started=0.0)) as writer:
        plan = Plan(transports, **more)
        recorder, pid = LoadRecorder(writer, server.model, 0.0), getattr(server, "pid", None)
        load = Load(scenario, server, plan, recorder, pid, defects)
        asyncio.run(load.run())
    return load


@pytest.mark.vllm_needs("store")
def test_concurrent_conversations_are_not_mixed_up(vllm_server: VllmServer, tmp_path: Path) -> None:
    load = run(vllm_server, Scenario.model_validate(SHORT), tmp_path / "run", concurrency=8, requests=32)
    total = load.total
    assert (total.requests, load.started, total.mixed, load.running) == (32, 16, 0, 0)
    assert total.calls + total.missing == 16
    assert not total.errors + total.findings
    assert {name: tally.requests for name, tally in load.by_transport.items()} == dict.fromkeys(
        ("responses", "responses-history", "chat", "messages"), 8
    )
    cases = [record for _, record in records(tmp_path / "run") if isinstance(record, CaseRecord)]
    assert len({case.id for case in cases if "between" not in case.id}) == 32


def test_cancelled_streams_end_on_the_server(vllm_server: VllmServer, tmp_path: Path) -> None:
    load = run(
        vllm_server,
        Scenario.model_validate(SHORT),
        tmp_path / "run",
        concurrency=8,
        requests=32,
        cancel=0.6,
        transports=["chat"],
    )
    assert load.total.left >= 4
    assert load.total.left_out >= 1
    assert load.running == 0
    assert not load.total.findings


def test_missing_calls(vllm_server: VllmServer, tmp_path: Path) -> None:
    counts = {}
    for behaviour in ("error_stop", "ignore_stop", "ignore_continue"):
        scenario = Scenario.model_validate(WITHOUT_CALL)
        load = run(
            vllm_server,
            scenario,
            tmp_path / behaviour,
            requests=2,
            transports=["chat"],
            missing_tool_call=behaviour,
        )
        total = load.total
        counts[behaviour] = (total.missing, total.passed, total.left_out, load.wrong)
    assert counts == {
        "error_stop": (1, 0, 1, True),
        "ignore_stop": (1, 1, 1, False),
        "ignore_continue": (1, 2, 0, False),
    }
    exchanges = [each for _, each in records(tmp_path / "error_stop") if isinstance(each, ExchangeRecord)]
    assert [exchange.case for exchange in exchanges] == ["0/ask"]


@pytest.mark.vllm_standard  # gpt-oss drops parts that it cannot read (harmony-drops-parts-without-text)
def test_defects_that_a_turn_names(vllm_server: VllmServer, tmp_path: Path) -> None:
    """A mismatch or refusal is a known defect on the transport that the turn names; on others it counts."""
    load = run(
        vllm_server,
        Scenario.model_validate(NAMED),
        tmp_path / "run",
        concurrency=2,
        requests=8,
        transports=["chat", "messages"],
        defects=ACME,
    )
    chat, messages = load.by_transport["chat"], load.by_transport["messages"]
    assert (chat.known["acme-1"], chat.known["acme-2"], chat.passed, chat.known_turns) == (2, 2, 0, 4)
    assert not chat.wrong
    assert messages.mismatches == {"text[*]": 2, "status": 2}
    assert messages.errors == {"HTTP 400": 2}
    assert (messages.passed, load.wrong) == (0, True)
    cases = [each for _, each in records(tmp_path / "run") if isinstance(each, CaseRecord)]
    of_chat = {each.outcome for each in cases if each.group == "chat"}
    assert of_chat == {Outcome.KNOWN}
    assert {id for each in cases if each.group == "chat" for id in each.defects} >= {"acme-1", "acme-2"}


def test_a_defect_that_no_longer_shows_fails_the_load(vllm_server: VllmServer, tmp_path: Path) -> None:
    right = {**NAMED["turns"][0], "expect": {"text": {"contains": "Hello."}}}
    load = run(
        vllm_server,
        Scenario.model_validate({**NAMED, "turns": [right]}),
        tmp_path / "run",
        requests=2,
        transports=["chat"],
        defects=ACME,
    )
    assert load.total.findings == {"KD101 $": 2}
    assert load.wrong


@pytest.mark.vllm_slow
def test_interrupted_load(vllm_server: VllmServer, tmp_path: Path) -> None:
    out = tmp_path / "run"
    command = [
        *(sys.executable, "-m", "vllm_harness.cli.start", "load", "etl-three-turns"),
        *("--model", vllm_server.entry.name, "--server-url", vllm_server.url_for("")),
        *("--duration", "300", "--concurrency", "2", "--transport", "chat", "--output", str(out)),
    ]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    while not (out / "records.jsonl").exists() or '"case"' not in (out / "records.jsonl").read_text():
        assert process.poll() is None
        time.sleep(0.1)
    process.send_signal(signal.SIGTERM)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGTERM
    assert f"records {out}" in output
    end = read_run(out).end
    assert end is not None
    assert end.stopped == "SIGTERM"
    assert json.loads((out / "summary.json").read_text())["total"]["requests"] >= 1


@pytest.mark.vllm_slow
@pytest.mark.timeout(7200)
@pytest.mark.vllm_servers(1)
def test_soak(own_server: OwnServer, tmp_path: Path) -> None:
    """A long load test loses no data and leaks nothing; `VLLM_HARNESS_SOAK` sets the number of turns.

    The transports store nothing on the server, as vLLM never deletes stored responses. A batch has at most
    8 requests: the logits for 32 take up 25 MiB (32 * 201,088 * 4 bytes), which vLLM allocates and frees.
    """
    load = run(
        own_server(["--max-num-seqs", "8"], env=WITHOUT_KERNEL_CACHE),
        read_scenario(find_scenario("etl-three-turns")),
        tmp_path / "run",
        concurrency=32,
        requests=int(os.environ.get("VLLM_HARNESS_SOAK", "600")),
        cancel=0.1,
        transports=["chat", "messages"],
    )
    total = load.total
    assert total.left
    assert (total.mixed, load.running) == (0, 0)
    assert not total.errors + total.findings
    for process, memory_mib, handles in (("client", 8, 8), ("server", 16, 32), ("engine", 16, 8)):
        change = drift(load.samples[process])
        assert change is not None
        assert change.memory_mib[1] - change.memory_mib[0] <= memory_mib, process
        assert change.handles[1] - change.handles[0] <= handles, process
