"""Each fault of a broken gateway is found by the rule for it; a correct gateway has no findings."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.extras.gateways.broken import FAULTS, Fault, gateway
from vllm_harness._exchange.server import VllmServer
from vllm_harness._terminal.status import quiet
from vllm_harness.cli.main import app
from vllm_harness.extras.gateways.cases import APIS, case_variants
from vllm_harness.extras.gateways.check import GatewayCheck, check
from vllm_harness.extras.gateways.findings import merge_findings
from vllm_harness.extras.gateways.scripts import GatewaySide, scripts_of

pytestmark = [pytest.mark.vllm_scripted, pytest.mark.vllm_model("qwen3")]

EXPECTED = {
    "drops a delta": (["chat/text/streamed"], {"GW101"}),
    "merges two calls": (["chat/parallel/streamed"], {"GW104", "GW123"}),
    "holds the stream back": (["chat/long/streamed", "responses/long/streamed"], {"GW116"}),
    "loses reasoning": (["chat/reasoning/streamed"], {"GW102"}),
    "changes an id": (["responses/call/streamed"], {"GW123"}),
    "drops [DONE]": (["chat/text/streamed"], {"GW118"}),
    "answers 200 to an error": (["chat/unknown-model", "messages/wrong-value"], {"GW121"}),
    "reorders events": (["responses/text/streamed"], {"GW115"}),
    "renames a field": (["chat/text"], {"GW110"}),
    "reads on after the client left": (["chat/leaves/streamed"], {"GW126"}),
    "tries again": (["responses/text"], {"GW127"}),
    "ends the stream early": (["chat/text/streamed"], {"GW119"}),
    "joins the deltas": (["chat/long/streamed"], {"GW117"}),
    "loses the usage": (["chat/text", "messages/text"], {"GW107"}),
    "loses a call": (["messages/parallel"], {"GW103"}),
    "leaves a field of the request out": (["responses/text"], {"GW112", "GW128"}),
    "adds events": (["messages/text/streamed"], {"GW114"}),
}

QUICK = ("drops a delta", "merges two calls", "drops [DONE]", "answers 200 to an error", "tries again")
NAMES = [name if name in QUICK else pytest.param(name, marks=pytest.mark.vllm_slow) for name in FAULTS]


def both_ways(server: VllmServer, address: str, only: Sequence[str], at_once: int = 0) -> GatewayCheck:
    """Sends the cases named in `only` to a scripted server, directly and through a gateway's address."""
    scripts = scripts_of(server.endpoint, server.entry)
    assert scripts is not None
    cases = list(case_variants(APIS, server.entry.capabilities, only))
    assert cases
    direct = GatewaySide("direct", server.endpoint, server.model)
    through = GatewaySide("gateway", replace(server.endpoint, base_url=address), server.model)
    try:
        return asyncio.run(check(direct, through, cases, scripts, quiet, at_once=at_once))
    finally:
        scripts.close()


def codes(both: GatewayCheck) -> set[str]:
    """The codes of the gateway rules with findings that count."""
    return {finding.code for _, finding in both.findings if finding.counts and finding.code.startswith("GW")}


@pytest.mark.parametrize("name", NAMES)
def test_fault_is_found_by_its_rule(name: str, vllm_server: VllmServer) -> None:
    only, expected = EXPECTED[name]
    with gateway(vllm_server.endpoint.base_url, FAULTS[name]) as address:
        both = both_ways(vllm_server, address, only)
    assert codes(both) == expected, [str(finding) for _, finding in both.findings]


def test_correct_gateway_has_no_findings(vllm_server: VllmServer) -> None:
    with gateway(vllm_server.endpoint.base_url, Fault()) as address:
        both = both_ways(vllm_server, address, ["chat/loop*", "*/stored", "chat/choices"], at_once=6)
    assert not both.findings, [str(finding) for _, finding in both.findings]


@pytest.mark.vllm_slow
def test_all_cases_through_a_correct_gateway(vllm_server: VllmServer) -> None:
    with gateway(vllm_server.endpoint.base_url, Fault()) as address:
        both = both_ways(vllm_server, address, [], at_once=32)
    assert not both.findings, [str(finding) for _, finding in both.findings]
    names = {exchange.name for exchange in both.direct}
    assert names == {exchange.name for exchange in both.gateway}


def test_command(vllm_server: VllmServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The exit code and the output show the difference; comparing the recordings has the same result."""
    direct = vllm_server.endpoint.base_url
    with gateway(direct, FAULTS["drops [DONE]"]) as address:
        words = ["check", address, "--server-url", direct, "--model", vllm_server.entry.name]
        words += ["--only", "chat/text*", "--concurrency", "0", "--output", str(tmp_path / "run")]
        monkeypatch.setenv("KEY_OF_BOTH", vllm_server.endpoint.api_key)
        words += ["--api-key-env", "KEY_OF_BOTH", "--server-api-key-env", "KEY_OF_BOTH"]
        broken = CliRunner().invoke(app, ["gateway", *words])
    assert broken.exit_code == 1
    assert "GW118" in broken.stdout
    assert "1 errors and warnings" in broken.stdout
    sides = [str(tmp_path / "run" / side) for side in ("direct", "gateway")]
    assert "data: [DONE]" in (tmp_path / "run" / "direct" / "chat-text-streamed.sse").read_text()
    assert "data: [DONE]" not in (tmp_path / "run" / "gateway" / "chat-text-streamed.sse").read_text()
    compared = CliRunner().invoke(app, ["compare", *sides])
    assert compared.exit_code == 1
    assert "GW118" in compared.stdout
    same = CliRunner().invoke(app, ["compare", sides[0], sides[0], "--json"])
    assert same.exit_code == 0
    assert '"differences": []' in same.stdout


@pytest.mark.vllm_slow
def test_interrupted_check(vllm_server: VllmServer, tmp_path: Path) -> None:
    """After SIGTERM during the fourth case, the first three can be compared."""
    direct, run = vllm_server.endpoint.base_url, tmp_path / "run"
    command = [sys.executable, "-m", "vllm_harness.cli.start", "gateway", "check"]
    with gateway(direct, FAULTS["drops [DONE]"]) as address:
        words = [address, "--server-url", direct, "--model", vllm_server.entry.name, "--output", str(run)]
        with subprocess.Popen([*command, *words], stderr=subprocess.PIPE, text=True) as process:
            assert process.stderr
            next(line for line in process.stderr if line.startswith("4 of"))
            process.send_signal(signal.SIGTERM)
            output = process.stderr.read()
        assert process.returncode not in (0, 2)
    sides = [str(run / side) for side in ("direct", "gateway")]
    assert " ".join(sides) in output
    compared = CliRunner().invoke(app, ["compare", *sides])
    assert compared.exit_code == 1
    assert "GW118" in compared.stdout


@pytest.mark.vllm_slow
def test_findings_of_one_kind_are_merged(vllm_server: VllmServer) -> None:
    with gateway(vllm_server.endpoint.base_url, FAULTS["drops [DONE]"]) as address:
        both = both_ways(vllm_server, address, ["chat/text/*", "chat/call/*"])
    (difference,) = merge_findings(both.findings)
    assert difference.names == ("chat/text/streamed", "chat/call/streamed")
