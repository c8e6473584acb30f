"""What a request costs the client: `vllm-harness load` beside GuideLLM (`scripts/bench-load`)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml
from rich.console import Console

from vllm_harness._environments.installer import run_uv
from vllm_harness._files.paths import cache_dir
from vllm_harness._scripted.book_check import check_book
from vllm_harness._server.progress import ConsoleProgress
from vllm_harness._server.remote import RemoteServer
from vllm_harness._terminal.tables import plain_console, show_table
from vllm_harness.cli.option_table import option
from vllm_harness.cli.options import environment

HERE = Path(__file__).parent / "load"
LOCK = Path(__file__).parents[2] / "env" / "guidellm.lock"
ANSWER = 40
"""Tokens at which the answers are cut."""
TURNS = 2


@dataclass(frozen=True)
class Cost:
    """What a run took: requests that it sent, seconds of processor time of all its processes, calls."""

    requests: int
    cpu_s: float
    calls: int
    wrong: int


Client = Callable[[int, int, Path], Cost]
"""Runs a load of so many conversations at once and so many requests; its files go into the folder."""


def main(
    concurrency: Annotated[list[int] | None, typer.Option(help="Conversations at once.")] = None,
    requests: Annotated[int, typer.Option(help="Requests between the two runs of a client.")] = 200,
    vllm: Annotated[str | None, option("vllm")] = None,
) -> None:
    """Prints the CPU time of a request, of both clients: the difference of a longer and a shorter run.

    So the start of a client, which takes seconds, does not count. Ours validates every stream.
    """
    guidellm = _guidellm()
    rows = []
    with (
        RemoteServer(
            "qwen3", lane="scripted", vllm=environment(vllm, None, None), progress=ConsoleProgress()
        ) as server,
        tempfile.TemporaryDirectory() as folder,
    ):
        server.book().replace(check_book(HERE / "book.yaml").usable())
        tokenizer = server.launch.model
        clients: dict[str, Client] = {
            "vllm-harness": lambda *run: _ours(server.url_for(""), *run),
            "guidellm": lambda *run: _theirs(guidellm, server.url_for(""), tokenizer, *run),
        }
        for client in clients.values():  # once, so that what it imports is compiled
            client(1, TURNS, Path(folder))
        for at_once in concurrency or (1, 16, 128):
            for name, client in clients.items():
                short, long = (
                    client(at_once, TURNS * at_once + more, Path(folder)) for more in (0, requests)
                )
                sent = long.requests - short.requests
                cost = (long.cpu_s - short.cpu_s) / sent * 1e3 if sent > 0 else float("nan")
                calls = f"{long.calls} of {long.requests}"
                cpu, wrong = f"{short.cpu_s:.1f}, {long.cpu_s:.1f}", str(short.wrong + long.wrong)
                rows.append((str(at_once), name, f"{cost:.2f}", cpu, calls, wrong))
                print(f"{name} at {at_once}: {cost:.2f} ms of CPU a request", file=sys.stderr, flush=True)
    headings = (
        "at once",
        "client",
        "ms of CPU a request",
        "CPU s of each run",
        "calls of requests",
        "errors",
    )
    show_table(plain_console(), headings, rows, numbers=headings[2:])


def _guidellm() -> Path:
    """GuideLLM's program, in an environment of its own, made where it is missing."""
    folder = cache_dir() / "guidellm"
    program, stamp = folder / "bin" / "guidellm", folder / "lock"
    if not (stamp.is_file() and stamp.read_bytes() == LOCK.read_bytes()):
        progress = Console(stderr=True, highlight=False).print
        run_uv("venv", "--clear", folder, progress=progress)
        run_uv(
            "pip",
            "install",
            "--no-deps",
            "--python",
            folder / "bin" / "python",
            "-r",
            LOCK,
            progress=progress,
        )
        stamp.write_bytes(LOCK.read_bytes())
    return program


def _ours(url: str, at_once: int, requests: int, folder: Path) -> Cost:
    out = Path(tempfile.mkdtemp(dir=folder))
    words: Sequence[str] = (
        *("vllm-harness", "load", str(HERE / "scenario.yaml"), "--model", "qwen3", "--server-url", url),
        *("--transport", "chat", "--concurrency", str(at_once), "--requests", str(requests)),
        *("--output", str(out), "--json"),
    )
    cpu_s = _run(words)
    total = json.loads((out / "summary.json").read_text())["total"]
    return Cost(total["requests"], cpu_s, total["calls"], total["requests"] - total["passed"])


def _theirs(program: Path, url: str, tokenizer: str, at_once: int, requests: int, folder: Path) -> Cost:
    out = folder / f"theirs-{at_once}-{requests}.json"
    config = {
        "backend": {"kind": "openai_http", "target": url, "model": "qwen3", "http2": False},
        "profile": {"kind": "concurrent", "streams": [at_once]},
        "constraints": [{"kind": "max_requests", "count": requests}],
        "tokenizer": {"kind": "huggingface_auto", "model": tokenizer},
        "data": [
            {
                "kind": "synthetic_text",
                "prompt_tokens": 20,
                "output_tokens": ANSWER,
                "turns": 1,
                "tool_call_turns": [0],
            }
        ],
        "outputs": [{"kind": "json", "path": str(out)}],
    }
    file = folder / "guidellm.yaml"
    file.write_text(yaml.safe_dump({"metadata": {"name": "bench-load"}, "spec": config}))
    cpu_s = _run((str(program), "run", "-c", str(file), "--disable-console"))
    found: dict[str, Any] = json.loads(out.read_text())["benchmarks"][0]["requests"]
    calls = sum(len(each.get("tool_calls") or ()) for each in found["successful"])
    return Cost(len(found["successful"]) + len(found["errored"]), cpu_s, calls, len(found["errored"]))


def _run(command: Sequence[str]) -> float:
    """Seconds of processor time of a command and of all its processes that it waited for."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, env={**os.environ, "HF_HUB_OFFLINE": "1"})
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode not in (0, 1):
        raise SystemExit(f"{command[0]} ended with {process.returncode}")
    return usage.ru_utime + usage.ru_stime


if __name__ == "__main__":
    typer.run(main)
