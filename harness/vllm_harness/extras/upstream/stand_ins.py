"""The stand-ins for the models that vLLM's tests use, as stand_ins.yaml defines them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import Field, model_validator

from vllm_harness._configuration.model_entries import Hub, ModelEntry, load_models
from vllm_harness._environments import assets
from vllm_harness._errors import HarnessError
from vllm_harness._files.located_yaml import read_yaml
from vllm_harness._files.strict import StrictModel
from vllm_harness._scripted.families import family_entry, load_families

FILE = Path(__file__).with_name("stand_ins.yaml")
_BARE: dict[str, Any] = {
    **dict.fromkeys(("tool_call_parser", "reasoning_parser", "chat_template")),
    "args": (),
    "env": {},
}


class NoStandIn(HarnessError):
    """No stand-in can replace the requested server; the message is the reason for skipping the test."""


class StandInOf(StrictModel):
    """The stand-in for a model: a model `entry`, or a `family` with an asset's `tokenizer`.

    `parsers` maps tool parsers to families that are used instead of `family`.
    """

    entry: str | None = None
    family: str | None = None
    tokenizer: str | None = None
    parsers: dict[str, str] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _one_kind(self) -> StandInOf:
        if (self.entry is None) == (self.family is None) or (self.family is None) != (self.tokenizer is None):
            raise ValueError("give an entry, or a family and its tokenizer")
        return self


class StandInsFile(StrictModel):
    """The content of stand_ins.yaml."""

    models: dict[str, StandInOf]
    without: dict[str, str] = Field(default_factory=dict)
    dropped: dict[str, str] = Field(default_factory=dict)
    refused: dict[str, str] = Field(default_factory=dict)


@cache
def load_stand_ins() -> StandInsFile:
    """Reads the package's stand_ins.yaml."""
    return read_yaml(FILE).validated(StandInsFile)


@cache
def stand_in_entry(model: str, tool_parser: str = "") -> ModelEntry:
    """The stand-in entry for a model, without parsers and flags, since the test itself sets those.

    Args:
        model: the id of the requested model.
        tool_parser: the requested tool parser.

    Raises:
        NoStandIn: the model has no stand-in; the message explains why.
        AssetError: the tokenizer cannot be fetched.
    """
    known = load_stand_ins()
    if model not in known.models:
        raise NoStandIn(known.without.get(model) or f"no stand-in for the model {model}")
    chosen = known.models[model]
    if chosen.entry:
        entry = load_models().get(chosen.entry)
    else:
        assert chosen.family
        assert chosen.tokenizer
        name = chosen.parsers.get(tool_parser, chosen.family)
        family = replace(load_families()[name], name=f"{name}-{chosen.tokenizer}")
        entry = family_entry(family, real=assets.fetch(chosen.tokenizer))
    return entry.model_copy(update=_BARE)


def live_entry(model: str) -> ModelEntry:
    """An entry for the real model, with its hub id and no flags, since the test itself sets those."""
    known = {entry.hub.id: entry for entry in load_models()}
    hardware = {"hardware": known[model].hardware} if model in known else {}
    name = model.rpartition("/")[2]
    return ModelEntry(name=name, hub=Hub(id=model), family=name, lanes=("live",), **hardware)


def split_flags(args: Sequence[str]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yields the flags of a command line with their values; flags keep their spelling."""
    flag: str | None = None
    values: list[str] = []
    for part in args:
        if part.startswith("-"):
            if flag is not None:
                yield flag, tuple(values)
            flag, values = part, []
        else:
            values.append(part)
    if flag is not None:
        yield flag, tuple(values)


def flag_name(flag: str) -> str:
    """The normalized name of a flag: `--max-model-len` for `--max_model_len=5`."""
    return flag.partition("=")[0].replace("_", "-")
