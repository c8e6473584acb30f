"""The validator's rules on real servers: faults in vLLM's serving code yield exactly the expected codes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path

import pytest

from tests.choice import few, seed_of_today
from tests.extras.mutants.rule_faults import Fault, changed_files, fired, load_faults, model_of, sound
from tests.regression.asks import Ask
from vllm_harness._environments import Environment
from vllm_harness._server.fork_server import FIRST
from vllm_harness._server.remote import RemoteServer
from vllm_harness.extras.mutants.startup_files import write_put

SERVERS = load_faults().servers
DRAWN = few(SERVERS, 1, seed_of_today())  # in a short run, only one faulty server is started


@pytest.fixture(scope="module")
def unfaulted(release: Environment) -> Iterator[Callable[[str], RemoteServer]]:
    """A function that starts a server without faults, once for each model."""
    with ExitStack() as servers:
        yield cache(lambda model: servers.enter_context(RemoteServer(model, lane="scripted", vllm=release)))


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
    unfaulted: Callable[[str], RemoteServer],
    tmp_path: Path,
) -> None:
    faults = SERVERS[name]
    wanted, model, alone = fired(faults), model_of(faults), sound(faults)
    nothing: dict[str, list[str]] = {ask: [] for ask in wanted}
    with _changed(model, faults, release, package, tmp_path / "faults") as server:
        assert _codes(server, wanted) == wanted
    if not alone:
        assert _codes(unfaulted(model), wanted) == nothing
        return
    with _changed(model, alone, release, package, tmp_path / "sound") as server:
        assert _codes(server, wanted) == nothing


@contextmanager
def _changed(
    model: str, faults: Sequence[Fault], release: Environment, package: Path, folder: Path
) -> Iterator[RemoteServer]:
    """A server with the given faults."""
    folder.mkdir()
    first, loaded = write_put(folder, changed_files(faults, package))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(FIRST, str(first))
        with RemoteServer(model, lane="scripted", vllm=release) as server:
            assert loaded.exists()
            yield server


def _codes(server: RemoteServer, wanted: dict[str, list[str]]) -> dict[str, list[str]]:
    """Name of a request -> the codes that the validator reports for the answer."""
    return {ask: Ask.named(ask).codes(server, codes) for ask, codes in wanted.items()}
