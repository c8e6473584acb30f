"""The validator's rules on real servers: faults in vLLM's serving code bring about their codes alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.choice import few, seed_of_today
from tests.regression.asks import Ask
from tests.regression.rule_faults import changed_files, fired, load_faults
from vllm_harness.environments import Environment
from vllm_harness.mutants.first_files import write_put
from vllm_harness.server.fork_server import FIRST
from vllm_harness.server.remote import RemoteServer

MODEL = "qwen3"
SERVERS = load_faults().servers
DRAWN = few(SERVERS, 1, seed_of_today())  # of the faulty ones; a short run starts one


@pytest.fixture(scope="module")
def unfaulted(release: Environment) -> Iterator[RemoteServer]:
    with RemoteServer(MODEL, lane="scripted", vllm=release) as server:
        yield server


@pytest.mark.parametrize("name", SERVERS)
def test_each_fault_fits_the_release(name: str, package: Path) -> None:
    assert changed_files(SERVERS[name], package)


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.vllm_slow] * (name not in DRAWN)) for name in SERVERS]
)
def test_rules_fire(
    name: str,
    release: Environment,
    package: Path,
    unfaulted: RemoteServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first, loaded = write_put(tmp_path, changed_files(SERVERS[name], package))
    monkeypatch.setenv(FIRST, str(first))
    wanted = fired(SERVERS[name])
    with RemoteServer(MODEL, lane="scripted", vllm=release) as faulty:
        assert loaded.exists()
        assert {ask: Ask.named(ask).codes(faulty) for ask in wanted} == wanted
    assert {ask: Ask.named(ask).codes(unfaulted) for ask in wanted} == {ask: [] for ask in wanted}
