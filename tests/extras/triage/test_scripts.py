"""Scripts without the harness, run on a real vLLM: the exit code says whether the defect shows."""

from __future__ import annotations

import re
import socket
import subprocess
from pathlib import Path

import pytest

from vllm_harness._configuration.model_entries import load_models
from vllm_harness._defects.registry import load_defects
from vllm_harness._defects.repro.reproducer import checked, jobs_of, run_job
from vllm_harness._environments.resolve import resolve
from vllm_harness._server.launch import fetched_stand_in
from vllm_harness._server.progress import ConsoleProgress
from vllm_harness._terminal.status import quiet
from vllm_harness.extras.triage.files import files_of

BY_CONDITIONS = "hermes-keeps-back-text-like-its-tag"
BY_MEANING = "internlm-streams-another-number-for-a-negative-fraction"


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


@pytest.mark.vllm_slow
@pytest.mark.parametrize("id_", [BY_CONDITIONS, BY_MEANING])
def test_a_script_exits_with_1_where_the_defect_shows(id_: str, tmp_path: Path) -> None:
    code, shown = ended(script_of(id_), tmp_path)
    assert (code, shown) in [(1, f"{times} of 20") for times in range(1, 21)]


@pytest.mark.vllm_slow
def test_a_script_exits_with_0_where_the_answer_is_right(tmp_path: Path) -> None:
    """The two conditions of the entry are exchanged, so that what vLLM answers is right."""
    names = {"RIGHT": "WRONG", "WRONG": "RIGHT"}
    script = re.sub(
        r"^(RIGHT|WRONG) = ", lambda found: f"{names[found[1]]} = ", script_of(BY_CONDITIONS), flags=re.M
    )
    assert ended(script, tmp_path) == (0, "0 of 20")


def script_of(id_: str) -> str:
    defect, environment = load_defects()[id_], resolve(None)
    (job,) = jobs_of([defect])
    ((_, shown),) = run_job(job, environment, progress=ConsoleProgress())
    return files_of(checked(defect), shown, environment.describe()).script


def ended(script: str, folder: Path) -> tuple[int, str]:
    """The exit code of a script, and in how many rounds it says that the defect shows."""
    file, environment = folder / "reproduce.py", resolve(None)
    file.write_text(script)
    checkpoint, _, _ = fetched_stand_in(load_models().get("qwen3"), quiet)
    variables = {**environment.environ(), "TOKENIZER": checkpoint, "PORT": str(free_port())}
    if "Qwen/" not in script:  # the tokenizer is among the script's files
        del variables["TOKENIZER"]
    command = [str(environment.python), str(file)]
    done = subprocess.run(command, env=variables, cwd=folder, text=True, capture_output=True, timeout=900)
    shown = re.search(r"THE DEFECT SHOWS in (\d+ of \d+) rounds", done.stdout)
    return done.returncode, shown[1] if shown else done.stdout + done.stderr
