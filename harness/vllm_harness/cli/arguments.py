"""The arguments of a command line, before any command reads them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from vllm_harness._extensions import COMMANDS
from vllm_harness._terminal.notices import show

AUTO = "auto"
"""The address that stands for RAY_ADDRESS, or for the cluster that this machine belongs to."""
RENAMED: Mapping[str, str] = {
    "ps": "serve ps",
    "stop": "serve stop",
    "assets": "env assets",
    "bundle": "env bundle",
    "explain": "validate explain",
    "regression diff": "compare --as regression",
    "regression mutants": "mutants parsers",
    "parity": "regression parity",
    "bisect": "repro bisect",
    "report compare": "compare --as run",
    "diff": "compare --as cassette",
    "record": "cassette record",
    "replay": "cassette replay",
    "convert": "cassette convert",
    "gateway compare": "compare --as recording",
    "mutants": "mutants serving",
    "check-weights": "weights",
}
"""What commands were called before 0.2, and what they are called."""
RENAMED_OPTIONS: Mapping[str, Mapping[str, str]] = {
    "repro": {"--parallel": "--jobs"},
    "defects export": {"--parallel": "--jobs"},
    "load": {"--out": "--output"},
    "gateway": {"--into": "--output"},
}
"""The same of options, by command."""


def with_address(arguments: Sequence[str]) -> list[str]:
    """The arguments of a command line; `--ray` without an address gets `auto`."""
    made: list[str] = []
    for argument, following in zip(arguments, [*arguments[1:], "--"], strict=False):
        made.append(argument)
        if argument == "--ray" and following.startswith("-"):
            made.append(AUTO)
    return made


def todays(arguments: Sequence[str]) -> list[str]:
    """The arguments of a command line with today's names in place of old ones, each of which is noticed."""
    made = list(arguments)
    for old, new in RENAMED.items():
        if _begins(made, old) and not _names_today(made, old):
            _notice(f"vllm-harness {old}", f"vllm-harness {new}")
            made = [*new.split(), *made[len(old.split()) :]]
            break
    for command, options in RENAMED_OPTIONS.items():
        if _begins(made, command):
            made = [*_with_options(made, options)]
    return made


def _begins(arguments: Sequence[str], name: str) -> bool:
    return list(arguments[: name.count(" ") + 1]) == name.split()


def _names_today(arguments: Sequence[str], old: str) -> bool:
    """Whether an old name is a group today, and a command of it follows."""
    following = "".join(arguments[1:2])
    return old in COMMANDS and (f"{old} {following}" in COMMANDS or following == "--help")


def _with_options(arguments: Sequence[str], renamed: Mapping[str, str]) -> list[str]:
    end = arguments.index("--") if "--" in arguments else len(arguments)
    made = []
    for argument in arguments[:end]:
        option, equals, value = argument.partition("=")
        if option in renamed:
            _notice(option, renamed[option])
        made.append(renamed.get(option, option) + equals + value)
    return [*made, *arguments[end:]]


def _notice(old: str, new: str) -> None:
    show(f"`{old}` is now `{new}`; the old name goes with 0.2")
