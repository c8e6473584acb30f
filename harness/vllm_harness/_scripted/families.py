"""The model families of vLLM's parsers, read from families.yaml, and a stand-in for each: a tiny Llama."""

from __future__ import annotations

import hashlib
import json
from dataclasses import field, replace
from functools import cache
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, ConfigDict
from pydantic.dataclasses import dataclass

from vllm_harness._configuration.model_entries import Capability, Hub, ModelEntry, StandIn, load_models
from vllm_harness._files.located_yaml import read_yaml
from vllm_harness._files.paths import cache_dir
from vllm_harness._files.strict import StrictModel, with_names
from vllm_harness._files.temporary import temporary_folder
from vllm_harness._scripted.dialects import DialectError, find_dialect, load_forms
from vllm_harness._scripted.dialects.form import Form
from vllm_harness._scripted.standin import publish
from vllm_harness._scripted.synthetic import (
    Token,
    byte_tokenizer,
    ids_of,
    stop_of,
    stops_of,
    tokens_of,
    with_tokens,
    write_tokenizer,
)

FILE = Path(__file__).with_name("families.yaml")
LAYERS = 2
"""The number of layers of a family's stand-in."""
_REGISTRY_HUB = Hub(id="none/none")


def _known_dialect(name: str) -> str:
    try:
        return find_dialect(name).name
    except DialectError as error:
        raise ValueError(f"unknown dialect, {error.hint}") from error


@dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class Family:
    """A family of models: its parsers in vLLM, its dialect, and the requirements on its tokenizer.

    Attributes:
        name: the family's key in families.yaml.
        tool_parser, reasoning_parser: vLLM's names for the family's parsers.
        dialect: the name of the family's dialect.
        model: the hub id of a model of this family.
        tokenizer: the asset with the real tokenizer; None if only a synthetic tokenizer is available.
        entry: a model entry of models.yaml whose stand-in has the family's architecture, if there is one.
        kwargs: the `chat_template_kwargs` of every request, which parsers read.
        args, env: further server arguments, and environment variables for the server.
        shows_reasoning: whether the parser leaves the reasoning in the text, markers included, since the
            model's makers require clients to send it back.
        tokens: single tokens in addition to the dialect's markers.
        merges, ids, sentencepiece: the arguments of `byte_tokenizer`.
        config: further settings for tokenizer_config.json.
        real: whether the family runs with its real tokenizer; see `on_real_tokenizer`.
    """

    name: str
    dialect: Annotated[str, AfterValidator(_known_dialect)]
    model: str
    tool_parser: str | None = None
    reasoning_parser: str | None = None
    tokenizer: str | None = None
    entry: str | None = None
    kwargs: dict[str, Any] = field(default_factory=dict)
    args: tuple[str, ...] = ()
    env: dict[str, str] = field(default_factory=dict)
    shows_reasoning: bool = False
    tokens: tuple[Token, ...] = ()
    merges: tuple[tuple[str, str], ...] = ()
    ids: dict[str, int] = field(default_factory=dict)
    sentencepiece: bool = False
    config: dict[str, Any] = field(default_factory=dict)
    real: bool = False

    @property
    def form(self) -> Form | None:
        """The dialect's form; None for Harmony, which is defined by code."""
        return load_forms().get(self.dialect)

    @property
    def plugin(self) -> str | None:
        """The file of a tool parser that is not part of vLLM; None if the parser is part of vLLM."""
        flag = "--tool-parser-plugin"
        return self.args[self.args.index(flag) + 1] if flag in self.args else None

    @property
    def request(self) -> dict[str, Any]:
        """The vLLM-specific fields that the family's requests need."""
        fields: dict[str, Any] = {"chat_template_kwargs": self.kwargs} if self.kwargs else {}
        reasoning = self.form.reasoning if self.form else None
        joined = self.form is not None and self.form.join is not None
        if (reasoning and reasoning.special) or joined:
            # if a request has no tools, vLLM would drop the markers that its parser needs
            fields["skip_special_tokens"] = False
        return fields


class WithoutFamily(StrictModel):
    """vLLM's parsers that have no family here: for each parser's name, the reason."""

    tool_parsers: dict[str, str]
    reasoning_parsers: dict[str, str]


class FamiliesFile(StrictModel):
    """The content of families.yaml."""

    families: Annotated[dict[str, Family], BeforeValidator(with_names)]
    stand_in: dict[str, Any]
    without_family: WithoutFamily


@cache
def load_families_file(path: Path = FILE) -> FamiliesFile:
    """Reads a families.yaml.

    Raises:
        UsageError: the file is not valid; the message names the file, line and key.
    """
    return read_yaml(path).validated(FamiliesFile)


def load_families() -> dict[str, Family]:
    """The families of vLLM's parsers, by name."""
    return load_families_file().families


def families_of_model(entry: ModelEntry) -> tuple[Family, ...]:
    """The families with the same tool parser and reasoning parser as a model."""
    both = (entry.tool_call_parser, entry.reasoning_parser)
    return tuple(f for f in load_families().values() if (f.tool_parser, f.reasoning_parser) == both)


REAL = "+real"
"""The suffix in the name of a family that runs with its real tokenizer."""


def unverified(*names: str) -> bool:
    """Whether no template of its vendor shows the dialect of any of these families."""
    found = [load_families().get(name.removesuffix(REAL)) for name in names]
    sources = [find_dialect(family.dialect).source if family else "" for family in found]
    return bool(sources) and all(source.startswith("unverified") for source in sources)


def title_of(name: str) -> str:
    """A family's name, followed by `unverified` if that is what its dialect is."""
    return f"{name} (unverified)" if unverified(name) else name


def on_real_tokenizer(family: Family) -> Family | None:
    """The same family with its real tokenizer; None if it has none, or if its format is defined by code."""
    if family.form is None or family.tokenizer is None:
        return None
    return replace(family, name=f"{family.name}{REAL}", real=True)


def entry_of(family: Family) -> ModelEntry:
    """The model entry for a family: a tiny Llama, or `family.entry` if the format is defined by code."""
    if family.form is None:
        assert family.entry is not None
        return load_models().get(family.entry)
    return family_entry(family)


def family_entry(family: Family, *, real: Path | None = None, into: Path | None = None) -> ModelEntry:
    """Creates a model entry whose stand-in is a tiny Llama with the family's tokens and parsers.

    Args:
        family: a family whose dialect is defined by data; for Harmony, use the entry `family.entry` instead.
        real: the folder of a real tokenizer; by default the family's own if `family.real` is set, else a
            synthetic tokenizer is created.
        into: the parent folder for the tokenizer, by default `tokenizers` in the cache.

    Returns:
        An entry for the scripted lane; its `stand_in.tokenizer` is the tokenizer's folder.
    """
    form = family.form
    if form is None:
        raise ValueError(f"family {family.name} has no synthetic stand-in; use model {family.entry}")
    if family.real and family.tokenizer and real is None:
        from vllm_harness._environments.assets import fetch

        real = fetch(family.tokenizer)
    document = _document(family, form, real)
    folder = _tokenizer_folder(family, form, document, into or cache_dir() / "tokenizers")
    ids = ids_of(document)
    capabilities: set[Capability] = {"tools"} if family.tool_parser else set()
    if family.reasoning_parser:
        capabilities.add("reasoning")
    stops = [ids[stop] for stop in stops_of(form)]
    return ModelEntry(
        name=family.name,
        hub=_REGISTRY_HUB,
        family=family.name,
        dialect=family.dialect,
        tool_call_parser=family.tool_parser,
        reasoning_parser=family.reasoning_parser,
        args=family.args,
        env=family.env,
        lanes=("scripted",),
        capabilities=frozenset(capabilities),
        stand_in=StandIn(
            tokenizer=str(folder),
            stop=stop_of(form),
            generation_config={"eos_token_id": stops},
            config={
                **load_families_file().stand_in,
                "num_hidden_layers": LAYERS,
                "eos_token_id": stops,
                "vocab_size": -(-(max(ids.values()) + 1) // 64) * 64,
            },
        ),
    )


def _document(family: Family, form: Form, real: Path | None) -> dict[str, Any]:
    tokens = (*tokens_of(form), *family.tokens)
    if real is not None:
        return with_tokens(json.loads((real / "tokenizer.json").read_text()), tokens)
    return byte_tokenizer(tokens, merges=family.merges, ids=family.ids, sentencepiece=family.sentencepiece)


def _tokenizer_folder(family: Family, form: Form, document: dict[str, Any], into: Path) -> Path:
    into.mkdir(parents=True, exist_ok=True)
    with temporary_folder(into) as scratch:
        written = scratch / "tokenizer"
        written.mkdir()
        write_tokenizer(written, document, form, config=family.config)
        content = b"".join(path.read_bytes() for path in sorted(written.iterdir()))
        folder = into / f"{family.name}-{hashlib.sha256(content).hexdigest()[:16]}"
        publish(written, folder)
    return folder
