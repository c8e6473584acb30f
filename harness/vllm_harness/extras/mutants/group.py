"""`vllm-harness mutants`: changes of vLLM's code, and the tests and cases that notice them."""

from __future__ import annotations

import typer

app = typer.Typer(
    no_args_is_help=True,
    help="Change vLLM's code in one place at a time, and list what no test notices.",
)
