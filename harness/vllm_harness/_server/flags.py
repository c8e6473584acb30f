"""Flags of `vllm serve`, as vLLM reads them."""

from __future__ import annotations

from argparse import ArgumentError, ArgumentParser
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TypeVar

Value = TypeVar("Value")


def flag_values(
    args: Sequence[str], flags: Sequence[tuple[str, ...]], of: Callable[[str], Value], default: Value
) -> list[Value]:
    """The values of some flags: `--tool_server` is `--tool-server`, and the last of two equal ones counts.

    Args:
        args: all flags of a server.
        flags: which to look for, each in all its spellings.
        of: makes a value of a text.
        default: where a flag is not there.

    Returns:
        A value for each; the default for all where one has a wrong value, which vLLM itself refuses.
    """
    parser = ArgumentParser(allow_abbrev=False, add_help=False, exit_on_error=False)
    names = [parser.add_argument(*spellings, type=of, default=default).dest for spellings in flags]
    with suppress(ArgumentError):
        known, _ = parser.parse_known_args([_dashed(arg) for arg in args])
        return [getattr(known, name) for name in names]
    return [default] * len(flags)


def _dashed(arg: str) -> str:
    flag, equals, value = arg.partition("=")
    return flag.replace("_", "-") + equals + value if flag.startswith("--") else arg
