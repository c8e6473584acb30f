"""A line for each request that a scripted server answered: `serve` prints them, and `book log`."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from vllm_harness._terminal.tables import escaped


def line(entry: Mapping[str, Any]) -> str:
    """When a request was answered, its number, its API, the rule that took it, and what came of it.

    Args:
        entry: a request, as the server's log has it; see `scripted/in_server/vllm_harness_served.py`.
    """
    at = time.strftime("%H:%M:%S", time.localtime(entry["at"]))
    api = f"{entry['api']}, streamed" if entry["stream"] else entry["api"]
    book = "" if entry["book"] == "default" else f"{entry['book']}: "
    rule = repr(entry["script"]) if entry["script"] else "no rule"
    return escaped(f"{at}  #{entry['number']}  {api}  {book}{rule}  {outcome(entry)}")


def outcome(entry: Mapping[str, Any]) -> str:
    """The status of the answer, and what became of the script, or why there is none."""
    if entry["status"] is None:
        return "no answer: the client left, or vLLM failed"
    if entry["reason"]:
        return f"{entry['status']}: {entry['reason']}"
    states = dict.fromkeys("truncated" if state == "running" else state for state in entry["states"])
    return f"{entry['status']} {', '.join(states)}" if states else f"{entry['status']}: refused by vLLM"
