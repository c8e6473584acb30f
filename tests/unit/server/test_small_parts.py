"""Ports, phases, redaction, records and targets, without a server."""

from __future__ import annotations

import getpass
import json
import os
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from vllm_harness._configuration.model_entries import load_models
from vllm_harness._configuration.targets import Machine, choose
from vllm_harness._errors import UsageError
from vllm_harness._files.redaction import secret_values
from vllm_harness._server.leases import ports
from vllm_harness._server.leases.ports import NoFreePort, describe_holder, lease_port, listeners
from vllm_harness._server.phases import PhaseTracker
from vllm_harness._server.records import ServerRecord, records_folder, running, sweep
from vllm_harness._server.supervisor import _redacted, started


@pytest.fixture(autouse=True)
def _own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_HARNESS_STATE", str(tmp_path / "state"))


def test_a_port_is_leased_once() -> None:
    first = lease_port(seed=1)
    second = lease_port(seed=1)
    assert first.port != second.port
    taken = f"from vllm_harness._server.leases.ports import lease_port; lease_port({first.port})"
    other = subprocess.run([sys.executable, "-c", taken], capture_output=True, text=True, check=False)
    assert "NoFreePort" in other.stderr
    first.release()
    lease_port(first.port).release()
    second.release()


def test_a_port_in_use_names_its_holder() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(NoFreePort, match=r"pid \d+"):
            lease_port(port)
        assert listeners(port)
        assert "pid" in describe_holder(port)


def test_a_port_of_another_user_names_that_user(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel shows the user who holds the port, but not the process."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        monkeypatch.setattr(ports, "listeners", lambda port: {None})
        assert describe_holder(port) == f"user {getpass.getuser()}"


def test_a_port_held_by_our_server_brings_the_command_that_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        record = ServerRecord(
            server_id="x",
            tmp="/tmp",
            name="qwen3",
            lane="scripted",
            environment="vllm",
            log="/logs/a.log",
            port=port,
            owner=34,
        )
        for kept, command in ((False, "`kill 34`"), (True, "`vllm-harness serve stop qwen3`")):
            monkeypatch.setattr(ports, "running", lambda kept=kept: [replace(record, kept=kept)])
            with pytest.raises(NoFreePort) as caught:
                lease_port(port)
            assert caught.value.message == (
                f"port {port} is held by your scripted server 'qwen3' (log: /logs/a.log)"
            )
            assert command in caught.value.hint


def test_phases_only_move_on(tmp_path: Path) -> None:
    log = tmp_path / "log"
    tracker = PhaseTracker(log)
    assert not tracker.advance()
    assert tracker.phase == "import"
    log.write_text("Starting to load model x...\nInitializing a V1 LLM engine\n")
    assert tracker.advance()
    assert tracker.phase == "weights"
    with log.open("a") as file:
        file.write("INFO:     Application startup comp")
    assert not tracker.advance()
    with log.open("a") as file:
        file.write("lete.\n")
    assert tracker.advance()
    assert tracker.phase == "serving"


def test_secrets_never_reach_a_log() -> None:
    env = {
        "HF_TOKEN": "hf_abcdefghijkl",
        "MY_API_KEY": "topsecret",
        "PATH": "/usr/bin",
        "TOKENIZERS": "false",
    }
    flags = ["--api-key", "fromtheflag", "asecondone", "--seed", "1234567", "--hf-token=fromequals"]
    secrets = secret_values(env, flags)
    assert set(secrets) == {"hf_abcdefghijkl", "topsecret", "fromtheflag", "asecondone", "fromequals"}
    line = b"args: topsecret fromtheflag hf_abcdefghijkl sk-0123456789abcdef /usr/bin\n"
    clean = _redacted(line, [secret.encode() for secret in secrets])
    for secret in (b"topsecret", b"fromtheflag", b"hf_abcdefghijkl", b"0123456789abcdef"):
        assert secret not in clean
    assert b"/usr/bin" in clean


def test_leftovers_of_a_dead_supervisor_are_swept(tmp_path: Path) -> None:
    left = tmp_path / "vh-left"
    left.mkdir()
    record = ServerRecord(
        server_id="id1",
        supervisor=2**22 + 1,
        tmp=str(left),
        name="m",
        lane="live",
        environment="env",
        log="log",
        port=1,
    )
    record.write()
    assert running() == []
    assert sweep() == [record]
    assert not left.exists()
    assert sweep() == []


@pytest.mark.parametrize("lives", ["supervisor", "owner", None])
def test_a_record_of_another_version_stays_while_its_server_may_live(lives: str | None) -> None:
    """While a server starts, its record has an owner and no supervisor."""
    written: dict[str, object] = {"supervisor": 0, "owner": 2**22 + 1, "unknown field": 1}
    if lives:
        written |= {lives: os.getpid(), f"{lives}_started": started(os.getpid())}
    path = records_folder() / "id1.json"
    path.write_text(json.dumps(written))
    assert sweep() == []
    assert path.exists() == (lives is not None)


def test_targets_of_a_machine() -> None:
    known = load_models()
    rust = choose(known, Machine("cpu", frontend="rust"))
    assert "Rust front end" in next(why for why in rust.left_out if why.startswith("scripted-gpt-oss"))
    cpu = choose(known, Machine("cpu"))
    assert {"scripted-gpt-oss", "scripted-qwen3", "live-smollm2-135m"} <= {
        target.id for target in cpu.targets
    }
    assert not any(t.lane == "live" and t.entry.name == "gpt-oss" for t in cpu.targets)
    assert any("gpt-oss-120b" in reason for reason in cpu.left_out)
    big = choose(known, Machine("cuda", (80.0,)), lane="live")
    assert {"live-gpt-oss", "live-gpt-oss-120b"} <= {target.id for target in big.targets}
    with pytest.raises(UsageError, match="cannot run here"):
        choose(known, Machine("cpu"), models=["gpt-oss-120b"])


def test_a_lane_that_the_entry_does_not_list() -> None:
    """SmolLM2 has a stand-in for replays; it is scripted only if model and lane are both named."""
    known, machine = load_models(), Machine("cpu")

    def targets(*models: str, **lane: str) -> list[str]:
        chosen = choose(known, machine, models=models, **lane).targets  # type: ignore[arg-type]
        return [target.id for target in chosen if target.entry.name == "smollm2-135m"]

    assert targets() == targets("smollm2-135m") == ["live-smollm2-135m"]
    assert targets(lane="scripted") == []
    assert targets("smollm2-135m", lane="scripted") == ["scripted-smollm2-135m"]
