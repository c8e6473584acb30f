"""Pairs of a dialect and a template, read from pairs.yaml, with the differences that are known."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from vllm_harness._environments import assets
from vllm_harness._files.located_yaml import read_yaml
from vllm_harness._files.strict import Pattern, StrictModel
from vllm_harness._scripted.dialects import Dialect, load_forms
from vllm_harness._terminal.status import Progress, quiet
from vllm_harness.extras.templates import encoders
from vllm_harness.extras.templates.chat_template import (
    ChatTemplate,
    JinjaTemplate,
    with_json_arguments,
    with_thinking_part,
)

FILE = Path(__file__).with_name("pairs.yaml")
MOST_DIFFERENCES = 5
Provenance = Literal["vendor", "copy", "vLLM's example", "yours"]
"""Who published a template: the model's makers, somebody who copied theirs, vLLM, or the user."""
_CHANGES = {"json arguments": with_json_arguments, "thinking part": with_thinking_part}


class NamedDifference(StrictModel):
    """A known difference between what a dialect renders and what the template writes.

    Attributes:
        name, reason: what differs, and why the dialect stays as it is.
        line: a part of the template's line that makes the difference.
        pattern, write: what to replace in the dialect's text to get the template's; `.` matches line ends.
        arguments: how the template writes arguments, if that is the difference. With neither, the template
            raises an error with the words of `line`.
        fault: whether the template is at fault: a model that reads its history does not see what it said.
        of_stand_in: whether a real model and its tokenizer do not have this difference, only the stand-in.
    """

    name: str
    reason: str
    fault: bool = False
    of_stand_in: bool = False
    line: str = ""
    pattern: Pattern | None = None
    write: str = ""
    arguments: (
        Literal["sorted keys", "without nulls", "python values", "python scalars", "json in python"] | None
    ) = None

    def replaced_in(self, text: str) -> str:
        """The text with the pattern replaced; unchanged if the difference has no pattern."""
        return text if self.pattern is None else re.sub(self.pattern, self.write, text, flags=re.DOTALL)

    @property
    def raises(self) -> bool:
        """Whether the template raises an error, instead of writing another text."""
        return self.pattern is None and self.arguments is None


class Pair(StrictModel):
    """A dialect and the template that it is held to.

    Attributes:
        template: the template's asset and file, as `ASSET/FILE`.
        model: the model whose template it is.
        provenance: who published it.
        variables: the variables of a request's `chat_template_kwargs`.
        given: how the template must be given a turn, other than as vLLM gives it: arguments as a JSON string,
            or reasoning as a part of the content.
        mutable: whether the template changes lists, which the sandbox of transformers and vLLM refuses.
        differences: what may differ.
    """

    template: str
    model: str
    provenance: Provenance
    variables: dict[str, Any] = Field(default_factory=dict)
    given: tuple[Literal["json arguments", "thinking part"], ...] = ()
    mutable: bool = False
    differences: Annotated[tuple[NamedDifference, ...], Field(max_length=MOST_DIFFERENCES)] = ()

    @property
    def proves(self) -> bool:
        """Whether the template says what a model writes."""
        return proves(self.provenance)


def proves(provenance: str | None) -> bool:
    """Whether a template says what a model writes; an example of vLLM says what its parser expects."""
    return provenance not in (None, "vLLM's example")


@cache
def load_pairs(path: Path = FILE) -> dict[str, Pair]:
    """Reads the pairs by dialect. Raises UsageError if the file is not valid."""
    return read_yaml(path).validated(dict[str, Pair])


def file_of(pair: Pair, progress: Progress = quiet) -> Path:
    """The file of a pair's template, fetched if it is not in the cache. Raises AssetError."""
    asset, _, name = pair.template.partition("/")
    return assets.fetch(asset, progress=progress) / name


def template_of(pair: Pair, dialect: Dialect, path: Path) -> ChatTemplate:
    """The template of a pair, from the given file. Raises ChatTemplateError if it is malformed."""
    if path.suffix == ".py":
        return encoders.deepseek(path, **pair.variables)
    if path.suffix == ".tiktoken":
        return encoders.harmony(path)
    form = load_forms().get(dialect.name)
    tokens = {"bos_token": form.frame.start if form else "", "eos_token": dialect.ends[-1]}
    given = [_CHANGES[way] for way in pair.given]
    return JinjaTemplate(path.read_text(), mutable=pair.mutable, given=given, **{**tokens, **pair.variables})
