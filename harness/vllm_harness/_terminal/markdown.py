"""Formats untrusted text, such as error messages, for Markdown."""

from __future__ import annotations

import re

from vllm_harness._terminal.tables import one_line


def code_span(text: str, width: int | None = None) -> str:
    """Formats the first line of a string as a code span, truncated to a width; backticks stay intact."""
    line = one_line(text, width) or "-"
    runs = re.findall("`+", line)
    fence = "`" * (max(map(len, runs), default=0) + 1)
    return f"{fence} {line} {fence}" if runs else f"`{line}`"
