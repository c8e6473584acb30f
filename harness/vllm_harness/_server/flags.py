"""Parses flags of `vllm serve` the way vLLM does."""

from __future__ import annotations

from argparse import ArgumentError, ArgumentParser
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TypeVar

Value = TypeVar("Value")
DEMO_FLAGS = ("--tool-server", "demo")
"""The flags for the demo tool server."""


def flag_values(
    args: Sequence[str], flags: Sequence[tuple[str, ...]], of: Callable[[str], Value], default: Value
) -> list[Value]:
    """Finds the values of flags; `--tool_server` equals `--tool-server`, and if repeated, the last counts.

    Each item of `flags` lists all spellings of a flag; `of` converts a value from text. If any value is
    invalid (vLLM itself would refuse it), the result is the default for every flag.
    """
    parser = ArgumentParser(allow_abbrev=False, add_help=False, exit_on_error=False)
    names = [parser.add_argument(*spellings, type=of, default=default).dest for spellings in flags]
    with suppress(ArgumentError):
        known, _ = parser.parse_known_args([_dashed(arg) for arg in args])
        return [getattr(known, name) for name in names]
    return [default] * len(flags)


def asks_for_demo(args: Sequence[str]) -> bool:
    """Whether flags of `vllm serve` name the demo tool server."""
    flag, demo = DEMO_FLAGS
    return flag_values(args, [(flag,)], str, "") == [demo]


def _dashed(arg: str) -> str:
    flag, equals, value = arg.partition("=")
    return flag.replace("_", "-") + equals + value if flag.startswith("--") else arg
