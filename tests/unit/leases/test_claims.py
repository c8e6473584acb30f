"""Claims: who holds how much, and that waits never deadlock."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vllm_harness._server.leases import claims
from vllm_harness._server.leases.claims import MEMORY, Claim, all_claims, held_by, may_wait

A, B, C = "abc"


def lease(holder: str, amount: int) -> Claim:
    """A claim for memory that is leased."""
    return Claim("lease", {MEMORY: amount}, holder=holder)


def wait(holder: str, since: float = 0.0) -> Claim:
    """A claim of a process that waits."""
    return Claim("wait", holder=holder, since=since)


@pytest.mark.parametrize(
    ("others", "expected"),
    [
        ([lease(A, 1), lease(B, 2)], True),  # B will finish
        ([lease(A, 2), lease(B, 2), wait(B)], False),
        ([lease(A, 1), lease(B, 1), wait(B), lease(C, 2), wait(C)], False),
        ([lease(A, 1), lease(B, 1), wait(B), lease(C, 2)], True),
        ([lease(B, 4), wait(B)], True),  # A holds nothing
        ([lease(A, 4)], False),  # A would wait for itself
        ([lease(A, 2), lease(B, 2), wait(A, since=1), wait(B, since=2)], True),  # B must not wait
    ],
    ids=[
        "others finish",
        "two in a circle",
        "three in a circle",
        "one after the other",
        "holds nothing",
        "waits for itself",
        "order",
    ],
)
def test_may_wait(others: list[Claim], expected: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claims, "this_process", lambda: A)
    assert may_wait(1, 4, others, [MEMORY]) is expected


@given(seed=st.integers(0, 2**32), total=st.integers(1, 5), processes=st.integers(2, 5))
def test_waits_never_deadlock(seed: int, total: int, processes: int) -> None:
    """If processes lease one unit at a time, and wait only if they may, they never all wait."""
    chance, all_held, names = random.Random(seed), list[Claim](), list(map(str, range(processes)))

    def waiting() -> list[Claim]:
        return [claim for claim in all_held if claim.kind == "wait"]

    def fits() -> bool:
        return held_by(all_held, [MEMORY]).total() < total

    with pytest.MonkeyPatch.context() as patch:
        for now in range(60):
            running = [name for name in names if name not in {claim.holder for claim in waiting()}]
            holder = chance.choice(running)
            patch.setattr(claims, "this_process", lambda holder=holder: holder)
            own = [claim for claim in all_held if claim.holder == holder]
            if own and chance.random() < 0.4:
                all_held.remove(own[0])
            elif fits():
                all_held.append(lease(holder, 1))
            elif may_wait(1, total, all_held, [MEMORY]):
                all_held.append(wait(holder, since=now))
            for claim in waiting():
                if fits():
                    all_held[all_held.index(claim)] = lease(claim.holder, 1)
            assert len(waiting()) < processes


def test_a_circle_over_two_resources(monkeypatch: pytest.MonkeyPatch) -> None:
    """A holds all memory and wants the GPU; B holds the GPU and waits for memory."""
    monkeypatch.setattr(claims, "this_process", lambda: A)
    gpu = Claim("lease", {"GPU-1": 16}, holder=B)
    assert may_wait(16, 16, [lease(A, 4), gpu], ["GPU-1"])
    assert not may_wait(16, 16, [lease(A, 4), gpu, wait(B)], ["GPU-1"])


def test_a_claim_of_another_version_is_dropped(tmp_path: Path) -> None:
    with all_claims() as current:
        current.append(Claim("port", port=1))
    file = tmp_path / "state" / "claims.json"
    file.write_text(json.dumps([*json.loads(file.read_text()), {"kind": "lease", "color": "red"}]))
    with all_claims() as current:
        assert [claim.port for claim in current] == [1]


def test_a_later_process_with_the_same_id_holds_nothing() -> None:
    with all_claims() as current:
        current.append(replace(Claim("port", port=1), started=1))
    with all_claims() as current:
        assert current == []
