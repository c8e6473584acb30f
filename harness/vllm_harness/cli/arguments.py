"""The arguments of a command line, before any command reads them."""

from __future__ import annotations

from collections.abc import Sequence

AUTO = "auto"
"""The address that stands for RAY_ADDRESS, or for the cluster that this machine belongs to."""


def with_address(arguments: Sequence[str]) -> list[str]:
    """The arguments of a command line; `--ray` without an address gets `auto`."""
    made: list[str] = []
    for argument, following in zip(arguments, [*arguments[1:], "--"], strict=False):
        made.append(argument)
        if argument == "--ray" and following.startswith("-"):
            made.append(AUTO)
    return made
