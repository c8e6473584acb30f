"""Forms: dialects defined by data. A form combines a frame, a reasoning format and a call format.

Each file in formats/ maps names of dialects to their form. There, `<<: *NAME` copies all fields of another
dialect or part, and the fields next to it override them. `source` names the document that describes the
format; it begins with `unverified` if no chat template of the vendor, and no copy, could be compared with it.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from functools import cache
from itertools import groupby, pairwise
from pathlib import Path
from string import Template
from typing import Annotated

from pydantic import BeforeValidator, TypeAdapter
from pydantic.dataclasses import dataclass

from vllm_harness._errors import UsageError
from vllm_harness._files.located_yaml import read_yaml
from vllm_harness._files.strict import with_names
from vllm_harness._scripted.dialects.dialect import OTHER_NAME, DialectError, refuse_markers
from vllm_harness._scripted.dialects.parts import STRICT, Calls, ReasoningFormat, SharedFrame, SharedReasoning
from vllm_harness._scripted.meaning import Meaning, Part, Reasoning, Text, ToolCall

_NAME = re.compile(r"[\w.:/-]+")
_TAG = re.compile(r"<[^<>$]+>|\[/?[A-Z_]+\]")


@dataclass(frozen=True, config=STRICT)
class Form:
    """How a family writes one assistant turn.

    Attributes:
        name: the dialect's name.
        source: where the format is published.
        frame, reasoning, calls: the format's parts; `reasoning` is None if the format has no reasoning.
        text: the strings before and after text for the user.
        text_always: whether the model writes the `text` strings even in a turn without text.
        body: the strings before and after everything that follows the reasoning.
        join: the string between two parts if each part is a separate message, in any order; else None.
        unthinking: the end of the prompt if thinking is turned off.
        how: instructions for calling the tools, which the prompt contains after the list of tools.
    """

    name: str
    source: str
    frame: SharedFrame
    calls: Calls
    reasoning: SharedReasoning | None = None
    text: tuple[str, str] = ("", "")
    text_always: bool = False
    body: tuple[str, str] = ("", "")
    join: str | None = None
    unthinking: str = ""
    how: str = ""

    @property
    def tail(self) -> str:
        """The end of the prompt, right before the model's first token."""
        return self.frame.roles["assistant"] + (self.reasoning.tail if self.reasoning else self.unthinking)

    @property
    def markers(self) -> tuple[str, ...]:
        """The strings that are special in the format: its tokens, and the tags around its parts."""
        reasoning = self.reasoning or ReasoningFormat(close="")
        tokens = (*self.frame.tokens, *reasoning.tokens, *self.calls.tokens)
        around = (reasoning.open, reasoning.close, self.calls.open, self.calls.close, self.calls.marker)
        tags = [tag for text in (*around, self.calls.arguments.end) for tag in _TAG.findall(text)]
        return tuple(dict.fromkeys(filter(None, (*tokens, *tags))))

    def call_ids(self, meaning: Meaning) -> tuple[str, ...]:
        """The ids of a turn's calls; empty if the format writes no ids."""
        if not self.calls.id:
            return ()
        template = Template(self.calls.id)
        return tuple(
            template.substitute(name=call.name, index=index) for index, call in enumerate(meaning.calls)
        )

    def render(self, meaning: Meaning) -> str:
        """Renders a turn that no grammar constrains. Raises DialectError if the format cannot express it."""
        return self._render(meaning, gap=self.reasoning.gap if self.reasoning else "")

    def render_constrained(self, meaning: Meaning) -> str:
        """Renders a turn under a grammar, which forbids whitespace after the reasoning."""
        return self._render(meaning, gap="")

    def render_anyway(self, meaning: Meaning) -> str:
        """Renders a turn of a model that ignores the format's rules on the order and number of parts.

        Raises:
            DialectError: the format has no reasoning, or cannot write one of the parts.
        """
        self._check_reasoning([type(part) for part in meaning.parts])
        apart = replace(self, calls=replace(self.calls, beside=self.calls.beside or "\n"))
        return apart._written(apart._runs(meaning), apart.reasoning.gap if apart.reasoning else "")

    def render_forced(self, meaning: Meaning, *, named: bool) -> list[str]:
        """Renders a turn, with or without reasoning, whose calls the request forces.

        After the reasoning, a server constrains the model with a grammar for the format or for JSON.

        Args:
            named: whether the request names the function, so that the JSON consists only of its arguments.

        Returns:
            The renderings that such a grammar may allow, the nearest to the format first, in the same order
            for every meaning.
        """
        runs = self._runs(meaning)
        reasoning = self._run(runs[0], 0) + (self.join or "") if isinstance(runs[0][0], Reasoning) else ""
        start = reasoning + self.body[0]  # the grammar does not constrain it yet
        in_json = [
            f"{start}{json.dumps(answer, ensure_ascii=False)}{self.frame.end}"
            for answer in _in_json(meaning, named)
        ]
        return [*self.render_near(meaning), *in_json]

    def render_near(self, meaning: Meaning) -> list[str]:
        """Renders a turn, and variants with other whitespace or another end, the closest variants first."""
        own_end = self.frame.end_after_calls or self.frame.end
        ends = (own_end, self.frame.end)
        gaps = ("", self.reasoning.gap, "\n") if self.reasoning else ("", "", "")
        turns = [
            replace(self, calls=replace(self.calls, between=between))._render(meaning, gap=gap)
            for between in (self.calls.between, self.calls.between.strip())
            for gap in gaps
        ]
        return [text.removesuffix(own_end) + end for text in turns for end in ends]

    def _render(self, meaning: Meaning, *, gap: str) -> str:
        runs = self._runs(meaning)
        self._check_order(runs)
        return self._written(runs, gap)

    def _written(self, runs: list[tuple[Part, ...]], gap: str) -> str:
        end = self.frame.end
        if runs and isinstance(runs[-1][0], ToolCall):
            end = self.frame.end_after_calls or end
        number = 0
        written = []
        for run in runs:
            written.append(self._run(run, number))
            number += sum(isinstance(part, ToolCall) for part in run)
        if self.join is not None:
            return self.join.join(written) + end
        reasoning = written.pop(0) + gap if runs and isinstance(runs[0][0], Reasoning) else ""
        return f"{reasoning}{self.body[0]}{self.calls.beside.join(filter(None, written))}{self.body[1]}{end}"

    def _runs(self, meaning: Meaning) -> list[tuple[Part, ...]]:
        """Groups adjacent calls into one run; adds the empty parts that the format always writes."""
        if self.join is not None:
            return [(part,) for part in meaning.parts]
        runs = [
            run
            for kind, parts in groupby(meaning.parts, type)
            for run in ([tuple(parts)] if kind is ToolCall else [(part,) for part in parts])
        ]
        reasoning = [runs.pop(0)] if runs and isinstance(runs[0][0], Reasoning) else []
        if not reasoning and self.reasoning and self.reasoning.always:
            reasoning = [(Reasoning(""),)]
        if self.text_always and not (runs and isinstance(runs[0][0], Text)):
            runs.insert(0, (Text(""),))
        return reasoning + runs

    def _check_reasoning(self, kinds: list[type[Part]]) -> None:
        if Reasoning in kinds and self.reasoning is None:
            raise DialectError(f"dialect {self.name} has no reasoning", hint="omit the reasoning")

    def _check_order(self, runs: list[tuple[Part, ...]]) -> None:
        kinds = [type(run[0]) for run in runs]
        self._check_reasoning(kinds)
        calls = sum(len(run) for run in runs if isinstance(run[0], ToolCall))
        if self.calls.most is not None and calls > self.calls.most:
            raise DialectError(
                f"dialect {self.name} writes {self.calls.most} call per turn, not {calls}",
                hint="give each call a separate turn",
            )
        if self.join is not None:
            return
        visible = kinds[1:] if kinds[:1] == [Reasoning] else kinds
        orders: dict[str, tuple[str, bool]] = {
            "alone": ("text or calls, never both", len(visible) <= 1),
            "before": ("one text, then calls", visible in ([], [Text], [ToolCall], [Text, ToolCall])),
            "around": (
                "texts and calls alternately",
                all(a is not b for a, b in pairwise(visible)),
            ),
        }
        order, valid = orders[self.calls.text]
        if Reasoning in visible or not valid:
            raise DialectError(
                f"dialect {self.name} writes one reasoning block, then {order}; not "
                f"{', '.join(kind.__name__ for kind in kinds)}",
                hint="split it into turns, or script the raw text",
            )

    def _run(self, run: tuple[Part, ...], number: int) -> str:
        match run[0]:
            case Reasoning(text):
                assert self.reasoning is not None
                self._refuse(text, (self.reasoning.close.strip(),))
                return f"{self.reasoning.open}{text}{self.reasoning.close}"
            case Text(text):
                opens = self.reasoning.open.strip() if self.reasoning else ""
                self._refuse(text, (opens, self.calls.marker, self.text[1].strip()))
                return f"{self.text[0]}{text}{self.text[1]}" if text or self.text_always else ""
        calls = [self._call(call, index) for index, call in enumerate(run, start=number)]  # type: ignore[arg-type]
        return f"{self.calls.open}{self.calls.between.join(calls)}{self.calls.close}"

    def _call(self, call: ToolCall, index: int) -> str:
        self._refuse(call.name + call.arguments_json, ())
        arguments = self.calls.arguments(call, self.name)
        template = Template(self.calls.call)
        if "name" in template.get_identifiers() and not _NAME.fullmatch(call.name):
            raise DialectError(
                f"dialect {self.name} cannot write {call.name!r} as a bare name", hint=OTHER_NAME
            )
        return template.substitute(
            name=call.name,
            name_json=json.dumps(call.name, ensure_ascii=False),
            arguments=arguments,
            index=index,
            number=index + 1,
        )

    def _refuse(self, text: str, markers: tuple[str, ...]) -> None:
        refuse_markers(text, (*self.frame.tokens, *filter(None, markers)), self.name)


def _in_json(meaning: Meaning, named: bool) -> list[object]:
    """The calls in the JSON of vLLM's schema for forced calls, then in that of its mistral parser."""
    calls = meaning.calls
    own = [{"name": call.name, "parameters": call.arguments} for call in calls]
    return [calls[0].arguments if named else own, [{"name": c.name, "arguments": c.arguments} for c in calls]]


FOLDER = Path(__file__).with_name("formats")
FORMS: TypeAdapter[dict[str, Form]] = TypeAdapter(Annotated[dict[str, Form], BeforeValidator(with_names)])
"""The content of a file in formats/."""


@cache
def load_forms(folder: Path = FOLDER) -> dict[str, Form]:
    """Reads the forms in all files of a folder, by name.

    Raises:
        UsageError: a file is not valid; the message names the file, line and key.
    """
    forms: dict[str, Form] = {}
    for path in sorted(folder.glob("*.yaml")):
        further = read_yaml(path).validated(FORMS)
        if twice := forms.keys() & further.keys():
            raise UsageError(f"{path}: another file in the folder also defines the dialect {min(twice)!r}")
        forms |= further
    return forms
