"""Forms: dialects as data. A form composes a frame, thoughts and calls, and renders any meaning."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from itertools import groupby, pairwise
from string import Template

from pydantic.dataclasses import dataclass

from vllm_harness._scripted.dialects.dialect import OTHER_NAME, DialectError, refuse_markers
from vllm_harness._scripted.dialects.parts import STRICT, Calls, SharedFrame, SharedThoughts, Thoughts
from vllm_harness._scripted.meaning import Meaning, Part, Reasoning, Text, ToolCall

_NAME = re.compile(r"[\w.:/-]+")
_TAG = re.compile(r"<[^<>$]+>|\[/?[A-Z_]+\]")


@dataclass(frozen=True, config=STRICT)
class Form:
    """How a family writes one assistant turn.

    Attributes:
        name: the dialect's name.
        source: where the format is published.
        frame, thoughts, calls: its parts; without thoughts the format has no reasoning.
        text: what stands before and after a text.
        text_always: whether that is written also around no text at all.
        body: what stands around everything after the thoughts.
        join: what stands between two parts, each of which then is a message of its own, in any order.
        unthinking: what the prompt ends with where thinking is turned off.
        how: how to call the tools, as the prompt explains it after them.
    """

    name: str
    source: str
    frame: SharedFrame
    calls: Calls
    thoughts: SharedThoughts | None = None
    text: tuple[str, str] = ("", "")
    text_always: bool = False
    body: tuple[str, str] = ("", "")
    join: str | None = None
    unthinking: str = ""
    how: str = ""

    @property
    def tail(self) -> str:
        """What the prompt ends with, right before the model's first token."""
        return self.frame.roles["assistant"] + (self.thoughts.tail if self.thoughts else self.unthinking)

    @property
    def markers(self) -> tuple[str, ...]:
        """What has a meaning of its own in the format: its tokens, and what stands around its parts."""
        thoughts = self.thoughts or Thoughts(close="")
        tokens = (*self.frame.tokens, *thoughts.tokens, *self.calls.tokens)
        around = (thoughts.open, thoughts.close, self.calls.open, self.calls.close, self.calls.marker)
        tags = [tag for text in (*around, self.calls.arguments.end) for tag in _TAG.findall(text)]
        return tuple(dict.fromkeys(filter(None, (*tokens, *tags))))

    def call_ids(self, meaning: Meaning) -> tuple[str, ...]:
        """The ids of a turn's calls; none where the format writes no ids."""
        if not self.calls.id:
            return ()
        template = Template(self.calls.id)
        return tuple(
            template.substitute(name=call.name, index=index) for index, call in enumerate(meaning.calls)
        )

    def render(self, meaning: Meaning) -> str:
        """The turn as the model generates it freely; DialectError where the format cannot express it."""
        return self._render(meaning, gap=self.thoughts.gap if self.thoughts else "")

    def render_constrained(self, meaning: Meaning) -> str:
        """The same under a grammar, which leaves no room for the blanks after the thoughts."""
        return self._render(meaning, gap="")

    def render_anyway(self, meaning: Meaning) -> str:
        """The turn of a model that keeps to no order and number of parts, though the format has one.

        Raises:
            DialectError: the format has no reasoning, or cannot write one of the parts.
        """
        if self.thoughts is None and any(isinstance(part, Reasoning) for part in meaning.parts):
            raise DialectError(f"dialect {self.name} has no reasoning", hint="leave the reasoning out")
        apart = replace(self, calls=replace(self.calls, beside=self.calls.beside or "\n"))
        return apart._written(apart._runs(meaning), apart.thoughts.gap if apart.thoughts else "")

    def render_forced(self, meaning: Meaning, *, named: bool) -> list[str]:
        """A turn of calls, and nothing else but thoughts, where the request forces them.

        A server holds the model to a grammar once it has thought: of its own format, or of JSON.

        Args:
            named: whether the request names the function, so that JSON has its arguments alone.

        Returns:
            The turns that a grammar may leave possible, the nearest to the format first, in the same places
            for every meaning.
        """
        free = self._free(meaning)
        held = [
            f"{free}{json.dumps(answer, ensure_ascii=False)}{self.frame.end}"
            for answer in _in_json(meaning, named)
        ]
        return [*self.render_near(meaning), *held]

    def render_near(self, meaning: Meaning) -> list[str]:
        """A turn in the format, and in what differs from it by blanks and by its end, the nearest first."""
        own_end = self.frame.end_after_calls or self.frame.end
        ends = (own_end, self.frame.end)
        thoughts = self.thoughts or Thoughts(close="")
        nearer = [
            replace(self, calls=replace(self.calls, between=between))._render(meaning, gap=gap)
            for between in (self.calls.between, self.calls.between.strip())
            for gap in ("", thoughts.gap, "\n" if self.thoughts else "")
        ]
        return [text.removesuffix(own_end) + end for text in nearer for end in ends]

    def _free(self, meaning: Meaning) -> str:
        """How a turn begins where a grammar does not hold it yet: its thoughts, and what opens the rest."""
        runs = self._runs(meaning)
        thought = self._run(runs[0], 0) + (self.join or "") if isinstance(runs[0][0], Reasoning) else ""
        return thought + self.body[0]

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
        thought = written.pop(0) + gap if runs and isinstance(runs[0][0], Reasoning) else ""
        return f"{thought}{self.body[0]}{self.calls.beside.join(filter(None, written))}{self.body[1]}{end}"

    def _runs(self, meaning: Meaning) -> list[tuple[Part, ...]]:
        """The parts, adjacent calls as one run, with the empty parts that the format always writes."""
        if self.join is not None:
            return [(part,) for part in meaning.parts]
        runs = [
            run
            for kind, parts in groupby(meaning.parts, type)
            for run in ([tuple(parts)] if kind is ToolCall else [(part,) for part in parts])
        ]
        thought = [runs.pop(0)] if runs and isinstance(runs[0][0], Reasoning) else []
        if not thought and self.thoughts and self.thoughts.always:
            thought = [(Reasoning(""),)]
        if self.text_always and not (runs and isinstance(runs[0][0], Text)):
            runs.insert(0, (Text(""),))
        return thought + runs

    def _check_order(self, runs: list[tuple[Part, ...]]) -> None:
        kinds = [type(run[0]) for run in runs]
        if Reasoning in kinds and self.thoughts is None:
            raise DialectError(f"dialect {self.name} has no reasoning", hint="leave the reasoning out")
        calls = sum(len(run) for run in runs if isinstance(run[0], ToolCall))
        found = ", ".join(kind.__name__ for kind in kinds)
        if self.calls.most is not None and calls > self.calls.most:
            raise DialectError(
                f"dialect {self.name} writes {self.calls.most} call a turn, not {calls}",
                hint="give each call a turn of its own",
            )
        if self.join is not None:
            return
        visible = kinds[1:] if kinds[:1] == [Reasoning] else kinds
        orders: dict[str, tuple[str, bool]] = {
            "alone": ("a text or calls, never both", len(visible) <= 1),
            "before": ("one text, then calls", visible in ([], [Text], [ToolCall], [Text, ToolCall])),
            "around": (
                "texts and calls in turn",
                all(a is not b for a, b in pairwise(visible)),
            ),
        }
        order, kept = orders[self.calls.text]
        if Reasoning in visible or not kept:
            raise DialectError(
                f"dialect {self.name} writes one reasoning, then {order}; not {found}",
                hint="split it into turns, or script the raw text",
            )

    def _run(self, run: tuple[Part, ...], number: int) -> str:
        match run[0]:
            case Reasoning(text):
                assert self.thoughts is not None
                self._refuse(text, (self.thoughts.close.strip(),))
                return f"{self.thoughts.open}{text}{self.thoughts.close}"
            case Text(text):
                thinks = self.thoughts.open.strip() if self.thoughts else ""
                self._refuse(text, (thinks, self.calls.marker, self.text[1].strip()))
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
    """Calls as vLLM's schemas for forced calls have them: its own, then that of its mistral parser."""
    calls = meaning.calls
    own = [{"name": call.name, "parameters": call.arguments} for call in calls]
    return [calls[0].arguments if named else own, [{"name": c.name, "arguments": c.arguments} for c in calls]]
