"""Reusable servers: a later run finds exactly the server that it needs."""

from __future__ import annotations

import os
import resource
import signal
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from typer.testing import CliRunner

from vllm_harness._server import reusable
from vllm_harness._server.launch import Launch
from vllm_harness._server.leases.allocation import reserved_for
from vllm_harness._server.process_tree import processes_in
from vllm_harness._server.records import ServerRecord, running
from vllm_harness._server.remote import RemoteServer
from vllm_harness.cli.main import app

HOST = "127.0.0.2"
"""An address of this machine that is not the default one."""


@pytest.fixture(scope="module")
def wanted(launch: Callable[..., Launch]) -> Iterator[Launch]:
    """A launch that only this module uses, with memory for two servers, which are ended afterwards."""
    planned = replace(launch(env={"KEPT_FOR": uuid.uuid4().hex}), host=HOST)
    with reserved_for(planned, 2, forked=True):
        yield planned
        for record in reusable_for(planned):
            assert not reusable.end_server(record)


def reusable_for(launch: Launch) -> list[ServerRecord]:
    """The records of the reusable servers that match a launch."""
    return [record for record in running() if record.kept and record.identity == reusable.identity(launch)]


def keep(launch: Launch) -> int:
    """Starts or reuses a server and leaves it running; returns its process id."""
    with RemoteServer(launch, keep=True) as server:
        return server.pid


def test_a_second_run_finds_the_server(wanted: Launch) -> None:
    first = keep(wanted)
    with RemoteServer(wanted, keep=True) as again:
        assert again.reused
        assert again.pid == first
        again.script("still here")
        assert "still here" in again.client().responses.create(model=again.model, input="hi").output_text
    assert [record.pid for record in reusable_for(wanted)] == [first]


def test_another_flag_or_variable_is_another_server(wanted: Launch) -> None:
    keep(wanted)
    flag = replace(wanted, args=(*wanted.args, "--max-num-seqs", "8"))
    variable = replace(wanted, env={**wanted.env, "ANOTHER": "1"})
    assert reusable.find_reusable(reusable.identity(wanted), "qwen3", wanted.api_key)
    assert not reusable.find_reusable(reusable.identity(flag), "qwen3", flag.api_key)
    assert not reusable.find_reusable(reusable.identity(variable), "qwen3", variable.api_key)


def test_another_limit_is_another_server(wanted: Launch) -> None:
    """A kept server has the limits of the run that started it, so other limits need another one."""
    keep(wanted)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft - 1, hard))
    try:
        assert not reusable.find_reusable(reusable.identity(wanted), "qwen3", wanted.api_key)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert reusable.find_reusable(reusable.identity(wanted), "qwen3", wanted.api_key)


def test_a_run_without_keep_starts_its_own_server(wanted: Launch) -> None:
    first = keep(wanted)
    with RemoteServer(wanted) as own:
        assert not own.reused
        assert own.pid != first
    assert psutil.pid_exists(first)


def test_a_dead_server_is_not_found(wanted: Launch) -> None:
    first = keep(wanted)
    folder = reusable_for(wanted)[0].tmp
    os.kill(first, signal.SIGKILL)
    second = keep(wanted)
    assert second != first
    assert not processes_in(folder)
    assert not Path(folder).exists()


def test_ps_lists_and_stop_ends(wanted: Launch) -> None:
    keep(wanted)
    record = reusable_for(wanted)[0]
    listed = CliRunner().invoke(app, ["serve", "ps"], env={"COLUMNS": "300"})
    assert f"http://{HOST}:{record.port}/v1" in listed.stdout
    assert not reusable.end_server(record)
    assert not processes_in(record.tmp)
    assert not Path(record.tmp).exists()
    assert not reusable_for(wanted)
