"""The first text that `vllm-harness` without arguments prints: its purposes, each with commands."""

from __future__ import annotations

from collections.abc import Iterator

import vllm_harness
from vllm_harness._extensions import installed
from vllm_harness._files.paths import checkout

DISTRIBUTION = "vllm-harness"


def version_line() -> str:
    """The name and the version of the installed distribution."""
    return f"{DISTRIBUTION} {vllm_harness.__version__}"


def welcome() -> str:
    """The purposes of the harness, each with its commands, in at most 80 columns."""
    purposes = (
        f"{title}\n" + "\n".join(f"  $ {command}" for command in commands) for title, commands in _purposes()
    )
    return "\n".join(
        [f"{version_line()} launches real vLLM servers and checks what their clients see.\n", *purposes]
    )


def _purposes() -> Iterator[tuple[str, tuple[str, ...]]]:
    yield (
        "Test a client against a real vLLM server whose answers are scripted",
        ("vllm-harness init", "vllm-harness serve qwen3 --lane scripted --book book.yaml"),
    )
    if checkout():
        yield "Run the suites on a model", ("vllm-harness run --model qwen3",)
    else:
        yield "Run the suites on a model, from a checkout of vllm-harness", ("scripts/run --model qwen3",)
    yield (
        "Check a recorded stream or body",
        ("vllm-harness validate capture.sse", "vllm-harness validate explain RS101"),
    )
    yield (
        "Compare the parsers of two versions of vLLM",
        ("vllm-harness regression --vllm 0.31.0,0.32.0 --cases canonical",),
    )
    yield "Look at the findings of the last run", ("vllm-harness report latest",)
    if installed("load"):
        yield (
            "Check every stream of a server under load",
            ("vllm-harness load etl-three-turns --model qwen3 --concurrency 16",),
        )
    yield "See what this machine can run", ("vllm-harness doctor",)
