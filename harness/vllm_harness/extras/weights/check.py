"""Runs the same prompts with transformers, in the server's interpreter, and with a server for each dtype."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, Field

from vllm_harness._errors import HarnessError
from vllm_harness._files.located_yaml import read_yaml
from vllm_harness._files.strict import StrictModel
from vllm_harness._files.temporary import temporary_folder
from vllm_harness._server.launch import Launch
from vllm_harness._server.progress import StartProgress
from vllm_harness._server.remote import RemoteServer
from vllm_harness._terminal.status import Progress
from vllm_harness.extras.weights.verdict import Answers, DtypeComparison, Reference, compare, noise_reference

if TYPE_CHECKING:
    from openai import OpenAI

MAX_TOKENS = 16
EXACT = {"TRITON_F32_DEFAULT": "ieee"}
"""Makes Triton multiply in full float32; on CUDA its default is TF32, whose rounding error is far larger."""

_HERE = Path(__file__).parent


class NoReferenceError(HarnessError):
    """transformers could not compute the reference."""


class CheckPrompts(StrictModel):
    """The contents of `prompts.yaml`: the prompts, and the text whose log-probabilities are compared."""

    prompts: tuple[str, ...] = Field(min_length=1)
    text: str


@dataclass(frozen=True)
class DtypeCheck:
    """The comparison for a dtype, and how long its server took to start, in seconds."""

    comparison: DtypeComparison
    startup_s: float


def check_prompts(count: int | None = None) -> CheckPrompts:
    """Reads the text and the first `count` prompts; all prompts if None. Raises UsageError if invalid."""
    inputs: CheckPrompts = read_yaml(_HERE / "prompts.yaml").validated(CheckPrompts)
    return inputs.model_copy(update={"prompts": inputs.prompts[:count]})


def reference(launch: Launch, inputs: CheckPrompts, dtypes: Sequence[str]) -> Reference:
    """Computes the reference from a launch's weights with transformers, on CPU, in the launch's interpreter.

    Raises:
        NoReferenceError: transformers cannot load the weights, or fails.
    """
    revision = None if Path(launch.model).is_dir() else launch.entry.hub.revision
    job = {
        "model": launch.model,
        "revision": revision,
        "prompts": inputs.prompts,
        "text": inputs.text,
        "dtypes": _needed(dtypes),
        "max_tokens": MAX_TOKENS,
    }
    with temporary_folder() as folder:
        job_file, answer = folder / "job.json", folder / "answer.json"
        job_file.write_text(json.dumps(job))
        result = launch.environment.run(
            str(_HERE / "reference.py"), str(job_file), str(answer), offline=revision is None
        )
        if result.returncode or not answer.exists():
            last = "\n    ".join(result.stderr.strip().splitlines()[-4:])
            raise NoReferenceError(
                f"transformers cannot compute the reference of {launch.model} "
                f"(exit code {result.returncode}):\n    {last}",
                hint="exit code -9 means too little memory; otherwise check that the weights are complete",
            )
        return Reference.model_validate_json(answer.read_text())


def check(
    launch: Launch,
    dtypes: Sequence[str],
    inputs: CheckPrompts,
    *,
    weights: Path | None = None,
    cold_start: bool = False,
    progress: Progress,
    start_progress: StartProgress | None = None,
) -> Iterator[DtypeCheck]:
    """Starts a server for each dtype, one after the other, and compares it with the reference.

    Args:
        launch: a launch on the live lane; each server gets `--dtype` in addition to the launch's flags.
        dtypes: the dtypes, such as float32 and bfloat16.
        inputs: the prompts and the text; see `check_prompts`.
        weights: a checkpoint folder to serve; the reference still comes from the launch's own weights.
        cold_start: whether to start the servers without the fork server.
        progress: called with a line of text for each step.
        start_progress: shows the progress of starting the servers.

    Raises:
        NoReferenceError: transformers failed.
        StartupError: a server did not start.
    """
    progress(f"computing the reference with transformers: {', '.join(_needed(dtypes))}")
    expected = reference(launch, inputs, dtypes)
    served = replace(launch, model=str(weights)) if weights else launch
    for dtype in dtypes:
        env = served.env | (EXACT if dtype == "float32" else {})
        planned = replace(served, args=(*served.args, "--dtype", dtype), env=env)
        progress(f"starting the server in {dtype}")
        with RemoteServer(planned, cold_start=cold_start, progress=start_progress) as server:
            progress(f"requesting completions in {dtype}")
            answers = request_answers(server.client(timeout=None), server.model, expected)
            yield DtypeCheck(compare(dtype, expected, answers), server.startup_seconds)


def request_answers(client: OpenAI, model: str, expected: Reference) -> Answers:
    """Requests a server's answers to the reference's prompts, and the log-probabilities of its text."""
    completion = client.completions.create(
        model=model,
        prompt=expected.prompts,
        max_tokens=MAX_TOKENS,
        temperature=0,
        extra_body={"return_token_ids": True, "repetition_penalty": 1},
    )
    scored = client.completions.create(
        model=model, prompt=[expected.text], max_tokens=1, temperature=0, extra_body={"prompt_logprobs": 0}
    )
    (choice,) = scored.choices
    rows = _extra(choice, "prompt_logprobs")[1:]
    logprobs = [row[str(token)]["logprob"] for row, token in zip(rows, expected.text[1:], strict=True)]
    by_prompt = sorted(completion.choices, key=lambda choice: choice.index)
    return Answers([_extra(choice, "token_ids") for choice in by_prompt], logprobs)


def _extra(choice: BaseModel, name: str) -> Any:
    value = (choice.model_extra or {}).get(name)
    if value is None:
        raise HarnessError(f"the server does not return {name}", hint="use the Python front end")
    return value


def _needed(dtypes: Sequence[str]) -> list[str]:
    return list(dict.fromkeys(["float32", *dtypes, *map(noise_reference, dtypes)]))
