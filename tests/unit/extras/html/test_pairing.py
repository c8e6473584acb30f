"""Each target of a run is paired with the most similar target of another run."""

from __future__ import annotations

import pytest

from vllm_harness._runs.records import TargetRecord
from vllm_harness.extras.html.pairing import pairs


def target(
    identifier: str, title: str = "qwen3", vllm: str = "0.32.0", frontend: str = "python"
) -> TargetRecord:
    return TargetRecord(id=identifier, title=title, lane="scripted", vllm=vllm, frontend=frontend)


@pytest.mark.parametrize(
    ("before", "now", "partners"),
    [
        ([target("a"), target("b", "gpt-oss")], [target("b", "gpt-oss"), target("a")], {"a": "a", "b": "b"}),
        ([target("a", vllm="0.31.0")], [target("b")], {"b": "a"}),
        ([target("a"), target("b", frontend="rust")], [target("c", frontend="rust")], {"c": "b"}),
        ([target("a", vllm="0.31.0"), target("b")], [target("c")], {"c": "b"}),
        ([target("a", frontend="rust")], [target("b")], {"b": "a"}),
        ([target("a")], [target("b"), target("c")], {"b": "a"}),
        ([target("a", "granite")], [target("b")], {"b": "a"}),
        ([target("a", "granite"), target("b", "glm")], [target("c")], {}),
    ],
    ids=["ids", "versions", "front ends", "same version first", "other front end", "once", "alone", "none"],
)
def test_pairs(before: list[TargetRecord], now: list[TargetRecord], partners: dict[str, str]) -> None:
    assert pairs(before, now) == partners
