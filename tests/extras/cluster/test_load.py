"""A load test with clients on three nodes has the same results as on one machine, even if a node is lost."""

from __future__ import annotations

import json
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import psutil

from tests.extras.cluster.conftest import NODE, Begin
from tests.extras.cluster.leftovers import orphaned_blocks, servers, wait_for
from vllm_harness._runs.reading import records
from vllm_harness._runs.records import CaseRecord
from vllm_harness._runs.report.run import read_run

COMMAND = ("load", "etl-three-turns", "--model", "qwen3")
OF_TIME = {"requests_a_second", "tokens_a_second"}
COUNTED = (
    "conversations",
    "cut_off",
    "left_running",
    "stopped",
    "scenario",
    "vllm",
    "scripted",
    "concurrency",
)
CONVERSATIONS = 24
REQUESTS = 3 * CONVERSATIONS


def figures(out: Path) -> dict[str, Any]:
    """The counts in a load test's summary, without times."""
    summary = json.loads((out / "summary.json").read_text())
    of_each = {"total": summary["total"], **summary["by_transport"]}
    return {
        **{name: summary[name] for name in COUNTED},
        **{name: _counts(tally) for name, tally in of_each.items()},
    }


def _counts(tally: dict[str, Any]) -> dict[str, Any]:
    plain = {name: value for name, value in tally.items() if name not in OF_TIME and not name.endswith("_ms")}
    times = {
        name: value["count"] for name, value in tally.items() if name in ("time_to_first_token_ms", "turn_ms")
    }
    plain.pop("events")  # the number of events depends on which tokens arrive together
    return plain | times


def cases(out: Path) -> Counter[tuple[Any, ...]]:
    """The turns of a load test and their outcomes, with the number of times that each occurs."""
    return Counter(
        (
            case.id,
            case.group,
            case.outcome,
            case.defects,
            case.reason,
            tuple(sorted((each.code, each.path, each.known) for each in case.findings)),
        )
        for _, case in records(out)
        if isinstance(case, CaseRecord)
    )


def clients() -> list[int]:
    """The process ids of load test clients on the nodes."""
    return [
        each.pid
        for each in psutil.process_iter(["cmdline"])
        if "_Hosted" in " ".join(each.info["cmdline"] or ())
    ]


def where(out: Path) -> Counter[str]:
    """Node -> the number of turns that ran on it."""
    return Counter(
        case.node for _, case in records(out) if isinstance(case, CaseRecord) and case.seconds is not None
    )


def compared(begin: Begin, nodes: Any, tmp_path: Path, *command: str) -> tuple[Path, Path]:
    """Runs a load test on one machine and on the nodes, compares the results, and returns both folders."""
    here, there = tmp_path / "here", tmp_path / "there"
    one = begin(*command, "--output", str(here))
    one_output, _ = one.communicate()
    several = begin(*command, "--output", str(there), "--ray", nodes.address)
    output, _ = several.communicate()
    assert several.returncode == one.returncode == 0, output + one_output
    assert figures(there) == figures(here)
    assert cases(there) == cases(here)
    return here, there


def test_the_figures_equal_those_of_one_machine(begin: Begin, nodes: Any, tmp_path: Path) -> None:
    options = ("--concurrency", "6", "--requests", str(REQUESTS), "--cancel", "0.1", "--seed", "3")
    before = orphaned_blocks()
    here, there = compared(begin, nodes, tmp_path, *COMMAND, *options)
    assert len(where(there)) == 3
    assert "" not in where(there)
    assert set(where(here)) == {""}
    wait_for(lambda: not servers() and not clients())
    assert orphaned_blocks() <= before


def test_a_defect_that_the_scenario_names_is_counted_separately(
    begin: Begin, nodes: Any, tmp_path: Path
) -> None:
    command = ("load", "images-refused", "--model", "smolvlm-256m", "--transport", "messages")
    options = ("--lane", "scripted", "--concurrency", "3", "--requests", "18")
    _, there = compared(begin, nodes, tmp_path, *command, *options)
    assert figures(there)["total"]["known"] == {"vllm-57997": 18}
    wait_for(lambda: not servers() and not clients())


def test_conversations_of_a_lost_node_are_held_again(begin: Begin, nodes: Any, tmp_path: Path) -> None:
    """When the node of one of four clients is removed, no turn is missing or counted twice."""
    out = tmp_path / "run"
    further = nodes.add_node(**NODE, resources={"goes": 1})
    nodes.wait_for_nodes()
    options = ("--concurrency", "8", "--requests", "240", "--ray", nodes.address)
    command = begin(*COMMAND, "--output", str(out), *options)
    wait_for(lambda: len(taken(out)) >= 60)
    nodes.remove_node(further, allow_graceful=False)
    said, _ = command.communicate()
    summary = json.loads((out / "summary.json").read_text())
    assert command.returncode == 0, said
    assert set(taken(out).values()) == {1}
    assert len(taken(out)) == summary["total"]["requests"] == 240
    assert summary["conversations"] == 80
    assert summary["lost"] == summary["held_again"] >= 1
    assert "starts again on another node" in said
    assert max(len(each["nodes"]) for each in summary["clients"]) == 2
    wait_for(lambda: not clients())


def taken(out: Path) -> Counter[str]:
    """Turn -> how often it was recorded."""
    if not (out / "records.jsonl").exists():
        return Counter()
    recorded = (case for _, case in records(out) if isinstance(case, CaseRecord))
    return Counter(case.id for case in recorded if case.seconds is not None)


def test_an_interrupt_ends_the_clients_and_keeps_their_results(
    begin: Begin, nodes: Any, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    options = ("--concurrency", "6", "--duration", "300", "--ray", nodes.address)
    command = begin(*COMMAND, "--output", str(out), *options)
    wait_for(lambda: len(taken(out)) >= 20)
    assert len(clients()) == 3
    command.send_signal(signal.SIGINT)
    said, _ = command.communicate(timeout=60)
    assert command.returncode == 128 + signal.SIGINT, said
    end = read_run(out).end
    assert end is not None
    assert end.stopped == "SIGINT"
    summary = json.loads((out / "summary.json").read_text())
    assert summary["total"]["requests"] == len(taken(out)) >= 20
    assert 1 <= summary["cut_off"] <= 6
    assert summary["left_running"] == 0
    wait_for(lambda: not clients())


def test_a_server_that_the_nodes_cannot_reach_is_reported(begin: Begin, nodes: Any, tmp_path: Path) -> None:
    options = ("--server-url", "http://127.0.0.1:9", "--requests", "3", "--ray", nodes.address)
    command = begin(*COMMAND, "--output", str(tmp_path / "run"), *options)
    said, _ = command.communicate()
    assert command.returncode == 3
    assert "does not answer" in said
