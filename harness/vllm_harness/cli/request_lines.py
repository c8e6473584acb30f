"""Formats a request that a scripted server answered as the line that `serve` and `book log` print."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from vllm_harness._terminal.tables import escaped


def line(entry: Mapping[str, Any]) -> str:
    """Formats a request as a line: its time, number, API, rule and outcome.

    Args:
        entry: an entry of the server's log; see `_scripted/in_server/vllm_harness_served.py`.
    """
    at = time.strftime("%H:%M:%S", time.localtime(entry["at"]))
    api = f"{entry['api']}, streamed" if entry["stream"] else entry["api"]
    book = "" if entry["book"] == "default" else f"{entry['book']}: "
    rule = repr(entry["script"]) if entry["script"] else "no rule"
    return escaped(f"{at}  #{entry['number']}  {api}  {book}{rule}  {outcome(entry)}")


def outcome(entry: Mapping[str, Any]) -> str:
    """The status of an answer, with the state of its script, or the reason why it has no script."""
    if entry["status"] is None:
        return "no answer: the client left, or vLLM failed"
    if entry["reason"]:
        return f"{entry['status']}: {entry['reason']}"
    states = dict.fromkeys("truncated" if state == "running" else state for state in entry["states"])
    return f"{entry['status']} {', '.join(states)}" if states else f"{entry['status']}: refused by vLLM"
