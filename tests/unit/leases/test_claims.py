"""Claims: whose they are, and that processes which wait for each other never all stand still."""

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


def lease(who: str, amount: int) -> Claim:
    """A lease of so much memory."""
    return Claim("lease", {MEMORY: amount}, who=who)


def wait(who: str, since: float = 0.0) -> Claim:
    """A wait."""
    return Claim("wait", who=who, since=since)


@pytest.mark.parametrize(
    ("others", "expected"),
    [
        ([lease(A, 1), lease(B, 2)], True),  # B will finish
        ([lease(A, 2), lease(B, 2), wait(B)], False),
        ([lease(A, 1), lease(B, 1), wait(B), lease(C, 2), wait(C)], False),
        ([lease(A, 1), lease(B, 1), wait(B), lease(C, 2)], True),
        ([lease(B, 4), wait(B)], True),  # A keeps nobody waiting
        ([lease(A, 4)], False),  # it would wait for itself
        ([lease(A, 2), lease(B, 2), wait(A, since=1), wait(B, since=2)], True),  # B is to be refused
    ],
    ids=[
        "others finish",
        "two of each other",
        "three",
        "one after the other",
        "no holder",
        "itself",
        "order",
    ],
)
def test_may_wait(others: list[Claim], expected: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claims, "this_process", lambda: A)
    assert may_wait(1, 4, others, [MEMORY]) is expected


@given(seed=st.integers(0, 2**32), total=st.integers(1, 5), processes=st.integers(2, 5))
def test_somebody_can_always_go_on(seed: int, total: int, processes: int) -> None:
    """Processes that take servers one by one and refuse waits without an end never all stand still."""
    chance, every, names = random.Random(seed), list[Claim](), list(map(str, range(processes)))

    def waiting() -> list[Claim]:
        return [claim for claim in every if claim.kind == "wait"]

    def fits() -> bool:
        return held_by(every, [MEMORY]).total() < total

    with pytest.MonkeyPatch.context() as patch:
        for now in range(60):
            who = chance.choice([name for name in names if name not in {each.who for each in waiting()}])
            patch.setattr(claims, "this_process", lambda who=who: who)
            own = [claim for claim in every if claim.who == who]
            if own and chance.random() < 0.4:
                every.remove(own[0])
            elif fits():
                every.append(lease(who, 1))
            elif may_wait(1, total, every, [MEMORY]):
                every.append(wait(who, since=now))
            for each in waiting():
                if fits():
                    every[every.index(each)] = lease(each.who, 1)
            assert len(waiting()) < processes


def test_who_holds_memory_waits_for_no_gpu_of_one_who_waits_for_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A holds all memory; B holds the GPU and waits for memory."""
    monkeypatch.setattr(claims, "this_process", lambda: A)
    gpu = Claim("lease", {"GPU-1": 16}, who=B)
    assert may_wait(16, 16, [lease(A, 4), gpu], ["GPU-1"])
    assert not may_wait(16, 16, [lease(A, 4), gpu, wait(B)], ["GPU-1"])


def test_a_claim_of_another_version_is_dropped(tmp_path: Path) -> None:
    with all_claims() as every:
        every.append(Claim("port", port=1))
    file = tmp_path / "state" / "claims.json"
    file.write_text(json.dumps([*json.loads(file.read_text()), {"kind": "lease", "color": "red"}]))
    with all_claims() as every:
        assert [claim.port for claim in every] == [1]


def test_a_later_process_of_the_same_id_holds_nothing() -> None:
    with all_claims() as every:
        every.append(replace(Claim("port", port=1), started=1))
    with all_claims() as every:
        assert every == []
