"""The sessions of the harness's own requests: kept for a moment, by one thread of one process."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from vllm_harness.exchange import endpoint
from vllm_harness.exchange.endpoint import SPARE_S


@pytest.fixture
def sessions() -> endpoint._Sessions:
    return endpoint._Sessions()


def test_a_session_is_kept_and_asks_no_proxy(sessions: endpoint._Sessions) -> None:
    kept = sessions.current()
    assert sessions.current() is kept
    assert not kept.trust_env


def test_a_connection_that_the_server_may_be_closing_is_not_used(
    sessions: endpoint._Sessions, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    monkeypatch.setattr(endpoint.time, "monotonic", lambda: now[0])
    kept = sessions.current()
    now[0] += SPARE_S
    assert sessions.current() is kept
    now[0] += SPARE_S + 0.1
    assert sessions.current() is not kept


def test_a_fork_and_a_thread_have_their_own(
    sessions: endpoint._Sessions, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = sessions.current()
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(sessions.current).result() is not kept
    monkeypatch.setattr(endpoint.os, "getpid", lambda: 1)
    assert sessions.current() is not kept
