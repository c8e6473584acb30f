"""Reads environment variables."""

from __future__ import annotations

from collections.abc import Mapping

from vllm_harness._errors import UsageError


def number(environ: Mapping[str, str], name: str, default: float) -> float:
    """Reads a number from an environment variable. Raises UsageError if the value is not a number."""
    text = environ.get(name) or str(default)
    try:
        return float(text)
    except ValueError:
        raise UsageError(
            f"{name} is {text!r}, not a number", hint=f"set {name} to a number, or unset it"
        ) from None
