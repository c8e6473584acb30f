"""The harness reproduces cost defects on a real vLLM, and so do the standalone scripts for them."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from vllm_harness._defects.entry import Defect
from vllm_harness._defects.registry import load_defects
from vllm_harness._defects.repro.reproducer import checked, jobs_of, reproducer_of, run_job
from vllm_harness._defects.repro.verdict import Reproduction
from vllm_harness._environments import resolve
from vllm_harness._environments.spec import Environment
from vllm_harness._regression.engines.answer import CaseAnswer, CostPoint, Curve
from vllm_harness._server.leases.ports import lease_port
from vllm_harness._server.progress import StartProgress
from vllm_harness.extras.costs.repro import CostCase
from vllm_harness.extras.triage.files import files_of

pytestmark = [pytest.mark.vllm_slow, pytest.mark.timeout(600)]

VLLM = "0.32.0"
IN_PROCESS, ON_A_SERVER = "hermes-reads-all-calls-anew", "messages-counts-reasoning-anew"


def test_cost_in_process(tmp_path: Path) -> None:
    defect, environment = load_defects()[IN_PROCESS], resolve(VLLM)
    (job,) = jobs_of([defect])
    ((_, outcome),) = run_job(job, environment, progress=StartProgress())
    assert outcome.verdict == "reproduced"
    printed = printed_by(defect, outcome, environment, tmp_path)
    rows = re.findall(r"^ +([\d,]+) +(\d+\.\d{4}) +(\d+\.\d)?(?: .*)?$", printed, re.MULTILINE)
    assert len(rows) == 1 + len(curve_of(outcome).points)
    assert min(float(times) for _, _, times in rows[-3:]) > 2.5, printed


def test_cost_on_a_server(tmp_path: Path) -> None:
    defect, environment = load_defects()[ON_A_SERVER], resolve(VLLM)
    cost = reproducer_of(defect)
    assert isinstance(cost, CostCase)
    points = tuple(
        CostPoint(size=len(grown.text), cpu_s=0.1, longest_s=0.1) for grown in cost.case.input.grown[:3]
    )
    (delivery,) = cost.deliveries
    answer = CaseAnswer(family=cost.family.name, delivery=delivery, curve=Curve(points=points))
    shown = Reproduction("reproduced", delivery=delivery.code, answers=[answer.model_dump(mode="json")])
    printed = printed_by(defect, shown, environment, tmp_path)
    rows = re.findall(r"([\d,]+) tokens: +([\d.]+) s .*\(([\d,]+) events", printed)
    assert [row[0] for row in rows] == [f"{point.size:,}" for point in points], printed
    assert all(int(events.replace(",", "")) > 10 for _, _, events in rows), printed


def curve_of(outcome: Reproduction) -> Curve:
    """The cost curve that the reproduction measured."""
    (curve,) = (CaseAnswer.model_validate(each).curve for each in outcome.answers)
    assert curve
    return curve


def printed_by(defect: Defect, shown: Reproduction, environment: Environment, folder: Path) -> str:
    """Runs a defect's script with vLLM's Python, and returns its output."""
    script = folder / "reproduce.py"
    script.write_text(files_of(checked(defect), shown, environment.describe()).script)
    port = lease_port()
    try:
        result = subprocess.run(
            [environment.python, script],
            env={**environment.environ(), "PORT": str(port.port)},
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
    finally:
        port.release()
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout
