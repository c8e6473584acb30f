"""The files that store the smallest failures of generated meanings."""

from __future__ import annotations

from pathlib import Path

from vllm_harness._environments.spec import Environment
from vllm_harness._exchange.delivery import Delivery
from vllm_harness._regression.cases.groups import GenerationPlan
from vllm_harness._regression.cases.meanings import load_meanings, renderable
from vllm_harness._regression.cases.properties import GeneratedMeaning, generate
from vllm_harness._regression.results.mismatches import Mismatch
from vllm_harness._scripted.families import load_families
from vllm_harness.extras.triage.search import OWN_CUTS, FailureKind, read_failures, write_failures

HERMES = load_families()["hermes"]
WHOLE = Delivery.parse("whole")
CALL_LOST, TEXT_LOST = Mismatch.parse("call_lost"), Mismatch.parse("text_lost")
VLLM = Environment("release", Path("python"), "3.12", "0.0.0", "cpu", None)


def test_a_file_of_a_failure_gives_the_same_case(tmp_path: Path) -> None:
    generated = next(
        meaning for meaning in generate(HERMES, budget=200, seed=1) if meaning.spelled_spans and meaning.cuts
    )
    found: list[tuple[FailureKind, GeneratedMeaning]] = [
        ((OWN_CUTS, CALL_LOST), generated),
        ((WHOLE, TEXT_LOST), generated),
    ]
    write_failures(VLLM, HERMES, found, GenerationPlan(200, 1), tmp_path / "hermes")
    first, second = read_failures(HERMES, tmp_path / "hermes")
    own = generated.own_delivery
    assert (first.delivery, first.mismatch, first.file.name) == (own, CALL_LOST, "1.yaml")
    assert (second.delivery, second.mismatch) == (WHOLE, TEXT_LOST)
    (case,), _ = renderable(HERMES, load_meanings(first.file))
    assert case == generated.case_input("call_lost", (own,))
    assert "--budget 200 --seed 1" in first.file.read_text()
