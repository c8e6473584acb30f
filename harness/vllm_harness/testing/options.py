"""The plugin's command-line options and markers."""

from __future__ import annotations

from pathlib import Path

import pytest

MARKERS = (
    "gpu: the server runs on CUDA (set by the plugin)",
    "scripted: only on the scripted lane",
    "live: only on the live lane",
    "greedy: holds for greedy choice only; --repeat runs it once, as it is",
    "harmony: only for model entries that speak Harmony (gpt-oss)",
    "standard: only for model entries that do not speak Harmony",
    "model(*names): only for these model entries",
    "needs(*names): only for entries with these capabilities, and servers with these APIs (responses, ...)",
    "servers(n): uses so many servers at once (default: the target's), whose memory is set aside before it",
    "alone: no other test may run meanwhile (--at-once)",
    "slow: takes minutes; run with --slow",
    "covers(*ids): behaviours that the test covers, as tests/coverage.yaml lists them",
    "known_defect(reference, *, versions, why, models=(), raises=...): a fault of vLLM that the test shows",
)


def add(group: pytest.OptionGroup) -> None:
    """Adds the options."""
    group.addoption("--model", action="append", default=[], help="model entry or hub id; may be repeated")
    group.addoption(
        "--lane", choices=["live", "scripted"], help="one lane; default: all this machine can run"
    )
    group.addoption(
        "--vllm", metavar="SPEC", help="server environment: 0.32.0, 0.33.0@0.32.0, tree:PATH, installed"
    )
    group.addoption("--vllm-python", metavar="PATH", help="the same as --vllm installed:PATH")
    group.addoption("--device", choices=["cpu", "cuda"], help="device of the server environment")
    group.addoption("--frontend", choices=["python", "rust"], default="python", help="vLLM's HTTP front end")
    group.addoption("--models-file", type=Path, help="another models.yaml")
    group.addoption(
        "--server-arg",
        action="append",
        default=[],
        metavar="FLAG",
        help="a further flag of `vllm serve`, such as --server-arg=--dtype=float16; may be repeated",
    )
    group.addoption("--server-url", metavar="URL", help="test a server that somebody else started")
    group.addoption("--server-model", metavar="NAME", help="the model's name on that server")
    group.addoption("--api-key-env", metavar="NAME", help="variable that holds that server's API key")
    group.addoption("--cold-start", action="store_true", help="start servers without the fork server")
    group.addoption("--keep-servers", action="store_true", help="leave servers running for a later run")
    group.addoption(
        "--at-once",
        type=int,
        default=0,
        metavar="N",
        help="scripted lane: N forks share a target's server, beside tests with servers of their own",
    )
    group.addoption("--slow", action="store_true", help="run tests marked slow as well")
    group.addoption(
        "--repeat", type=int, default=1, metavar="K", help="run each live test with K seeds: pass@k, pass^k"
    )
    group.addoption(
        "--quality-reference", type=Path, metavar="FILE", help="hold decisions to call tools against this run"
    )
    group.addoption(
        "--write-quality-reference", type=Path, metavar="FILE", help="keep this run's decisions to call tools"
    )
    group.addoption(
        "--record-tokens", metavar="DIR", type=Path, help="keep the token ids of every generation"
    )
    group.addoption(
        "--replay-tokens", metavar="DIR", type=Path, help="say what was recorded live, on the scripted lane"
    )
