"""Checks whether a vLLM version knows the parsers, flags, variables and architectures in model entries."""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from pydantic import ValidationError

from vllm_harness._configuration.model_entries import TEMPLATES, Device, Frontend, Lane, ModelEntry
from vllm_harness._environments.spec import Environment
from vllm_harness._errors import HarnessError
from vllm_harness._files.strict import StrictModel
from vllm_harness._scripted.dialects import load_dialects
from vllm_harness._scripted.standin import check_stop, stand_in_args
from vllm_harness._server.launch import fetched_stand_in
from vllm_harness._terminal.status import Progress

_SCRIPT = Path(__file__).with_name("vllm_names.py")
_LIMIT_S = 300
_LANES: tuple[Lane, ...] = ("live", "scripted")
# with these flags, the Rust front end refuses an unknown name and lists the names that it knows
_RUST_REFUSALS = {
    "tool_parsers": ("--tool-call-parser", "?"),
    "reasoning_parsers": ("--tool-call-parser", "none", "--reasoning-parser", "?"),
}
_DEVICES: tuple[Device, ...] = ("cpu", "cuda")


class NamesError(HarnessError):
    """The server's interpreter could not list the names that its vLLM knows."""


class VllmNames(StrictModel):
    """The names that a vLLM version knows; see `vllm_harness._server.vllm_names`."""

    tool_parsers: frozenset[str]
    reasoning_parsers: frozenset[str]
    flags: frozenset[str]
    variables: frozenset[str]
    architectures: frozenset[str]


@dataclass(frozen=True)
class Unknown:
    """A name in models.yaml that the checked vLLM, or the harness, does not know.

    Attributes:
        model: the name of the model entry.
        key: the key in the entry under which the name stands.
        name: the unknown name.
        near: the most similar known names, best first.
    """

    model: str
    key: str
    name: str
    near: tuple[str, ...]


def names_of(environment: Environment, frontend: Frontend = "python") -> VllmNames:
    """The names that an environment's vLLM knows, found by a subprocess that imports vLLM.

    Raises:
        NamesError: vLLM cannot be imported within five minutes, or it lacks the front end.
    """
    try:
        answer = environment.run("-c", _SCRIPT.read_text(), offline=False, limit_s=_LIMIT_S)
    except subprocess.TimeoutExpired as error:
        raise NamesError(
            f"{environment.describe()} did not list its names within {_LIMIT_S} s",
            hint=f"see how long `{environment.python} -c 'import vllm'` takes",
        ) from error
    try:
        names = VllmNames.model_validate_json(answer.stdout)
    except ValidationError as error:
        last = "\n".join(answer.stderr.strip().splitlines()[-5:])
        raise NamesError(
            f"{environment.describe()} cannot list the names that it knows:\n{last}",
            hint=f"run `{environment.python} -c 'import vllm'`",
        ) from error
    return names if frontend == "python" else names.model_copy(update=_rust_parsers(environment))


def _rust_parsers(environment: Environment) -> dict[str, frozenset[str]]:
    if environment.package is None or "rust" not in environment.frontends:
        raise NamesError(
            f"{environment.describe()} has no Rust front end",
            hint="use an environment that has one, such as 0.33.0@0.32.0",
        )
    names = {}
    with tempfile.TemporaryDirectory() as folder:
        for kind, flags in _RUST_REFUSALS.items():
            answer = subprocess.run(
                [environment.package / "vllm-rs", "render", folder, *flags],
                env=environment.environ(),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=_LIMIT_S,
            )
            listed = re.search(r"choose from: (.+?)\)", answer.stdout + answer.stderr)
            if listed is None:
                raise NamesError(
                    f"the Rust front end of {environment.describe()} does not list its {kind}",
                    hint="use the Python front end",
                )
            names[kind] = frozenset(listed[1].split(", "))
    return names


def unknown_names(
    entries: Iterable[ModelEntry], known: VllmNames, frontend: Frontend = "python"
) -> list[Unknown]:
    """The names in the entries that vLLM or the harness does not know, in the order of the entries."""
    templates = frozenset(path.name for path in TEMPLATES.glob("*.jinja"))
    pools = {
        "tool_call_parser": known.tool_parsers,
        "reasoning_parser": known.reasoning_parsers,
        "args": known.flags,
        "env": known.variables,
        "stand_in.config.architectures": known.architectures,
        "chat_template": templates,
        "dialect": frozenset(load_dialects()),
    }
    return [
        Unknown(entry.name, key, name, tuple(get_close_matches(name, sorted(pools[key]), n=3)))
        for entry in entries
        for key, name in _names(entry, frontend)
        if name not in pools[key]
    ]


def stand_in_problems(entries: Iterable[ModelEntry], progress: Progress) -> list[tuple[str, HarnessError]]:
    """The entry name and the error for each stand-in that cannot be made. Fetches missing assets."""
    problems = []
    for entry in (entry for entry in entries if entry.stand_in):
        try:
            checkpoint, _, _ = fetched_stand_in(entry, progress)
            check_stop(entry, Path(checkpoint))
        except HarnessError as error:
            problems.append((entry.name, error))
    return problems


def _names(entry: ModelEntry, frontend: Frontend) -> Iterator[tuple[str, str]]:
    tool_call_parser, reasoning_parser = entry.parsers(frontend)
    single = {
        "tool_call_parser": tool_call_parser,
        "reasoning_parser": reasoning_parser,
        "chat_template": entry.chat_template,
        "dialect": entry.dialect,
    }
    yield from ((key, name) for key, name in single.items() if name)
    flags = [entry.flags(lane, device) for lane in _LANES for device in _DEVICES]
    args = [arg for lane_flags in flags for arg in lane_flags.args]
    if entry.stand_in:
        args += stand_in_args(entry)
        yield from (
            ("stand_in.config.architectures", name) for name in entry.stand_in.config.get("architectures", ())
        )
    yield from (("args", name) for name in dict.fromkeys(_flag_names(args)))
    variables = dict.fromkeys(name for lane_flags in flags for name in lane_flags.env)
    yield from (("env", name) for name in variables if name.startswith("VLLM_"))


def _flag_names(args: Iterable[str]) -> Iterator[str]:
    """The flags among arguments, as argparse lists them: with hyphens, without values or dotted parts."""
    for arg in args:
        if arg.startswith("--"):
            yield arg.partition("=")[0].partition(".")[0].replace("_", "-")
