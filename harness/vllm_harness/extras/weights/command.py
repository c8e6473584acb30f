"""`vllm-harness weights`: compares vLLM with transformers on the same weights."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from vllm_harness._errors import UsageError
from vllm_harness._runs.records import Kind
from vllm_harness._server.launch import Launch, plan_launch
from vllm_harness._server.records import run_folder
from vllm_harness._terminal.status import shown
from vllm_harness._terminal.tables import Cell, plain_console, show_table
from vllm_harness.cli.options import VllmOptions
from vllm_harness.cli.run_folder import kept_run
from vllm_harness.extras.weights.check import CheckPrompts, DtypeCheck, check, check_prompts
from vllm_harness.extras.weights.records import case_of, target_of
from vllm_harness.extras.weights.verdict import Candidate, Flip, LogprobSpread

DTYPES = ("float32", "bfloat16", "float16")
VERDICT_CELLS = {
    "agrees": Text("agrees", "green"),
    "rounding": Text("rounding", "yellow"),
    "wrong": Text("wrong", "bold red"),
}
console = plain_console()
HEADINGS = ("dtype", "start", "same", "shortest", "difference", "noise", "verdict")


def check_weights(
    model: Annotated[
        str, typer.Argument(help="A model entry or a hub id whose live lane this machine can run.")
    ],
    dtype: list[str] | None = None,
    prompts: int | None = None,
    weights: Path | None = None,
    *,
    vllm_options: VllmOptions,
) -> None:
    """Compare vLLM with transformers on the same weights, token by token.

    --weights is the checkpoint that vLLM serves; the reference is still the
    entry's own. The exit code is 1 if a difference is larger than rounding
    explains.
    """
    dtypes = list(dict.fromkeys(dtype or DTYPES))
    if unknown := set(dtypes) - set(DTYPES):
        raise UsageError(f"unknown dtype {min(unknown)!r}", hint=f"choose from {', '.join(DTYPES)}")
    if weights is not None and not weights.is_dir():
        raise UsageError(
            f"--weights {weights} is {'a file, not' if weights.exists() else 'not'} a folder",
            hint="name the folder of a checkpoint, with its config.json and weights",
        )
    server_environment = vllm_options.environment()
    entry = vllm_options.entry(model)
    inputs = check_prompts(prompts)
    checks = []
    with kept_run(Kind.WEIGHTS, run_folder(), f"weights of {entry.name}") as writer:
        with shown() as progress:
            launch = plan_launch(
                entry,
                server_environment,
                lane="live",
                frontend=vllm_options.frontend or "python",
                progress=progress,
            )
            writer.write(target_of(launch))
            for each in check(
                launch, dtypes, inputs, weights=weights, cold_start=vllm_options.cold_start, progress=progress
            ):
                writer.write(case_of(each, launch.entry.name))
                checks.append(each)
        _show(launch, inputs, checks)
        console.print(f"run folder: {writer.folder}")
        if any(check.comparison.verdict == "wrong" for check in checks):
            raise typer.Exit(1)


def _show(launch: Launch, inputs: CheckPrompts, checks: Sequence[DtypeCheck]) -> None:
    console.print(f"{launch.entry.name} on {launch.describe()}")
    show_table(console, HEADINGS, [_row(check) for check in checks], HEADINGS[1:-1])
    console.print("same: the number of equal answers; shortest: the tokens before the earliest difference")
    console.print("difference, noise: the largest / the mean difference of the log-probabilities")
    for each in checks:
        for flip in each.comparison.flips:
            console.print(_flip_line(each.comparison.dtype, inputs.prompts[flip.prompt], flip))
    if any(check.comparison.verdict == "wrong" for check in checks):
        console.print(
            "wrong: the differences exceed the rounding of the dtype; suspect the kernels or the weights"
        )


def _row(check: DtypeCheck) -> tuple[Cell, ...]:
    comparison = check.comparison
    common, length = min(comparison.prefixes, key=lambda prefix: prefix[0] / max(prefix[1], 1))
    return (
        comparison.dtype,
        f"{check.startup_s:.1f} s",
        f"{comparison.same} of {len(comparison.prefixes)}",
        f"{common} of {length}",
        _figures(comparison.difference),
        _figures(comparison.noise),
        VERDICT_CELLS[comparison.verdict],
    )


def _figures(spread: LogprobSpread) -> str:
    return f"{spread.largest:.2g} / {spread.mean:.2g}"


def _flip_line(dtype: str, prompt: str, flip: Flip) -> str:
    kind = "near tie" if flip.near_tie else "not a near tie"
    gap = "" if math.isinf(flip.gap) else f", {flip.gap:.2g} apart"
    became = f"{_word(flip.expected)} became {_word(flip.actual)}"
    return f"{dtype}: {prompt!r}, token {flip.at + 1}: {became} ({kind}{gap})"


def _word(candidate: Candidate | None) -> str:
    return f"{candidate.text!r} ({candidate.logprob:.2f})" if candidate else "something else"
