"""What servers of every environment take to start, and of memory (`scripts/bench-environments`)."""

from __future__ import annotations

import json
from typing import Annotated

import openai
import psutil
import typer
from rich.console import Console
from rich.table import Table

from vllm_harness._configuration.model_entries import Frontend, load_models
from vllm_harness._configuration.targets import Machine, why_not
from vllm_harness._environments import locks, resolve
from vllm_harness._environments.spec import Environment
from vllm_harness._errors import HarnessError
from vllm_harness._scripted.meaning import ToolCall
from vllm_harness._server.process_tree import tree_pids
from vllm_harness._server.progress import ConsoleProgress
from vllm_harness._server.remote import RemoteServer

console = Console(highlight=False)
TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Current weather of a city",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}
CALL = ToolCall("get_weather", {"city": "Paris"})


def main(
    specs: Annotated[
        list[str] | None, typer.Argument(help="Environments; default: every release locked for cpu.")
    ] = None,
    model: Annotated[list[str] | None, typer.Option(help="Model entries; default qwen3 and gpt-oss.")] = None,
) -> None:
    """Starts each environment cold and forked, with each front end, and has it say a scripted call."""
    table = Table("environment", "model", "front end", "cold", "forked", "memory", "scripted call")
    for spec in specs or [lock.version for lock in locks.locks() if lock.device == "cpu"]:
        environment = resolve(spec, create=True, progress=console.print)
        for name in model or ["qwen3", "gpt-oss"]:
            for frontend in environment.frontends:
                table.add_row(environment.describe(), name, frontend, *_measured(environment, name, frontend))
    console.print(table)
    console.print(
        "forked: with vLLM imported before; memory: proportional share (PSS), of the forked server if any"
    )


def _measured(environment: Environment, model: str, frontend: Frontend) -> tuple[str, str, str, str]:
    """Seconds cold and forked, memory and verdict."""
    if obstacle := why_not(load_models().get(model), "scripted", Machine("cpu", frontend=frontend)):
        return "-", "-", "-", obstacle
    cold, memory, verdict = _started(environment, model, frontend, cold=True)
    if frontend == "rust" or verdict != "ok":
        return cold, "-", memory, verdict
    _started(environment, model, frontend, cold=False)
    return (cold, *_started(environment, model, frontend, cold=False))


def _started(environment: Environment, model: str, frontend: Frontend, *, cold: bool) -> tuple[str, str, str]:
    server = RemoteServer(
        model,
        lane="scripted",
        vllm=environment,
        frontend=frontend,
        cold_start=cold,
        progress=ConsoleProgress(),
    )
    try:
        with server:
            verdict = _call(server)
            pss = sum(psutil.Process(pid).memory_full_info().pss for pid in tree_pids(server.pid))
            return f"{server.startup_seconds:.1f} s", f"{pss / 2**20:.0f} MiB", verdict
    except (HarnessError, openai.APIError) as error:
        return "-", "-", error.message


def _call(server: RemoteServer) -> str:
    server.script(calls=[CALL])
    chat = server.client().chat.completions.create(
        model=server.model,
        messages=[{"role": "user", "content": "What is the weather in Paris?"}],
        tools=[TOOL],  # type: ignore[list-item]
    )
    server.book().verify()
    calls = chat.choices[0].message.tool_calls or []
    said = [json.loads(call.function.arguments) for call in calls if call.type == "function"]
    return "ok" if said == [CALL.arguments] else f"said {said}"


if __name__ == "__main__":
    typer.run(main)
