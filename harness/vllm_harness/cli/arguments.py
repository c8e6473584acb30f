"""Prepares the arguments of a command line before any command parses them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from vllm_harness._extensions import COMMANDS
from vllm_harness._terminal.notices import show

AUTO = "auto"
"""The address that means RAY_ADDRESS, or else the cluster that this machine belongs to."""
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
"""The names of commands in version 0.1, which work until 0.2, with the current names."""
RENAMED_OPTIONS: Mapping[str, Mapping[str, str]] = {
    "repro": {"--parallel": "--jobs"},
    "defects export": {"--parallel": "--jobs"},
    "load": {"--out": "--output"},
    "gateway": {"--into": "--output", "--at-once": "--concurrency"},
    "mutants parsers": {"--again": "--earlier", "--keep": "--output"},
    "mutants serving": {"--keep": "--output", "--models": "--model"},
    "regression": {"--models": "--model", "--frontend": "--frontends"},
    "env bundle": {"--models": "--model"},
    "run": {"--report": "--output", "--no-keep-servers": "", "--no-report-all": ""},
    "env verify": {"--no-source": ""},
    "validate explain": {"--write": "--output"},
    "site": {"--run": "--input"},
    "book": {"--book": "--book-name"},
    "cassette record": {"--stream": ""},
    "cassette convert": {"--form": "--format"},
    "": {"--no-cold-start": ""},
}
"""The old options of each command with their new names; an empty name means that it is the default now."""


def with_address(arguments: Sequence[str]) -> list[str]:
    """The arguments of a command line, with `auto` added after a `--ray` that has no address."""
    result: list[str] = []
    for argument, following in zip(arguments, [*arguments[1:], "--"], strict=False):
        result.append(argument)
        if argument == "--ray" and following.startswith("-"):
            result.append(AUTO)
    return result


def with_new_names(arguments: Sequence[str]) -> list[str]:
    """Replaces old names in the arguments of a command line, and prints a notice for each of them."""
    current = list(arguments)
    for old, new in RENAMED.items():
        if _starts(current, old) and not _names_today(current, old):
            _notice(f"`vllm-harness {old}` is now `vllm-harness {new}`")
            current = [*new.split(), *current[len(old.split()) :]]
            break
    for command, options in RENAMED_OPTIONS.items():
        if _starts(current, command):
            end = current.index("--") if "--" in current else len(current)
            current = [*_with_options(current[:end], options), *current[end:]]
    return current


def _starts(arguments: Sequence[str], name: str) -> bool:
    words = name.split()
    return list(arguments[: len(words)]) == words


def _names_today(arguments: Sequence[str], old: str) -> bool:
    """Whether an old name is also the name of a current group, and one of the group's commands follows."""
    following = "".join(arguments[1:2])
    return old in COMMANDS and (f"{old} {following}" in COMMANDS or following == "--help")


def _with_options(arguments: Sequence[str], renamed: Mapping[str, str]) -> Iterator[str]:
    for argument in arguments:
        option, equals, value = argument.partition("=")
        new = renamed.get(option, option)
        if new != option:
            _notice(f"`{option}` is now `{new}`" if new else f"`{option}` is the default")
        if new:
            yield new + equals + value


def _notice(text: str) -> None:
    show(f"{text}; the old name will be removed in 0.2")
