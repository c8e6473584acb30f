"""`vllm-harness mutants`: changes vLLM's code, and finds the tests and cases that notice."""

from __future__ import annotations

import typer

app = typer.Typer(
    no_args_is_help=True,
    help="Change vLLM's code in one place at a time, and list the changes that no test notices.",
)
