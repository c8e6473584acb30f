"""Compares the turns that a dialect renders with those that its template writes."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from vllm_harness._regression.results.judge import common_start
from vllm_harness._scripted.dialects import Dialect, DialectError
from vllm_harness._scripted.dialects.form import Form
from vllm_harness._scripted.meaning import Meaning
from vllm_harness.extras.templates.chat_template import ChatTemplate, ChatTemplateError
from vllm_harness.extras.templates.conversations import (
    SHAPES,
    TOOL,
    USER,
    DrawnTurn,
    messages_of,
    plain,
    what_follows,
)
from vllm_harness.extras.templates.pairs import NamedDifference
from vllm_harness.extras.templates.rewriting import rewritten


@dataclass(frozen=True)
class NewDifference:
    """A turn, or the end of a prompt, that differs from the template's in a way that has no name.

    Attributes:
        shape: the shape of the turn, or `prompt`.
        dialect, template: what each writes.
        line: the line of the template that writes the first character that differs, if it is known.
    """

    shape: str
    dialect: str
    template: str
    line: int | None = None

    @property
    def excerpts(self) -> tuple[str, str]:
        """What each writes around the first character that differs."""
        return around_difference(self.dialect, self.template, before=20, after=40)


def around_difference(one: str, other: str, *, before: int, after: int) -> tuple[str, str]:
    """Each text around the first character that differs, with so many characters before and after it."""
    same = common_start(one, other)
    place = slice(max(0, same - before), same + after)
    return one[place], other[place]


def shapes_of(dialect: Dialect) -> tuple[str, ...]:
    """The shapes of turns that a dialect can express."""
    return tuple(shape for shape in SHAPES if _rendered(dialect, plain(shape).meaning) is not None)


class Comparison:
    """Compares turns of a dialect with its template's, and counts which named differences it meets."""

    def __init__(
        self,
        dialect: Dialect,
        form: Form | None,
        template: ChatTemplate,
        differences: tuple[NamedDifference, ...],
    ) -> None:
        """Renders the prompt before a turn.

        Args:
            form: the dialect's form; None if the dialect is defined by code.

        Raises:
            ChatTemplateError: the template refuses the prompt.
        """
        self.dialect, self.template, self.differences = dialect, template, differences
        self.met: Counter[str] = Counter()
        self._form = form
        prompt = template([USER], [TOOL], generate=True)
        self._before = prompt[: common_start(prompt, template([USER], [TOOL], generate=False))]
        self._opening = prompt.removeprefix(self._before)
        self._following = {shape: self._what_follows(plain(shape).meaning) for shape in ("text", "call")}

    def of_prompt(self) -> NewDifference | None:
        """Compares the end of the prompt, which may open the reasoning; None if both are the same."""
        if self._form is None:
            return None
        tail = self._named(self._form.tail, Meaning(()))
        same = (self._before + self._opening).endswith(tail)
        return None if same else NewDifference("prompt", tail, self._opening)

    def of_turn(self, turn: DrawnTurn) -> NewDifference | None:
        """Compares a turn; None if both are the same, or if the dialect cannot write it."""
        text = _rendered(self.dialect, turn.meaning)
        if text is None:
            return None
        expected = self._named(self._opening + text, turn.meaning)
        messages = messages_of(turn.meaning)
        try:
            written = self._after_prompt(self.template(messages, [TOOL], generate=False))
        except ChatTemplateError as error:
            if self._raises_as_named(str(error)):
                return None
            return NewDifference(turn.shape, expected, f"(the template raises: {error})")
        if written.startswith(expected) and not written[len(expected) :].strip():
            return None
        following = self._following["call" if turn.meaning.calls else "text"]
        if expected.startswith(written) and following.startswith(expected[len(written) :]):
            return None
        same = len(self._before) + common_start(expected, written)
        return NewDifference(turn.shape, expected, written, self.template.line_at(messages, [TOOL], same))

    def _what_follows(self, meaning: Meaning) -> str:
        """What the template writes after a turn; a model generates its beginning if that ends the turn."""
        messages = messages_of(meaning)
        try:
            turn = self.template(messages, [TOOL], generate=False)
            whole = self.template([*messages, *what_follows(meaning)], [TOOL], generate=False)
        except ChatTemplateError:
            return ""
        return whole.removeprefix(turn) if whole.startswith(turn) else ""

    def _after_prompt(self, whole: str) -> str:
        if not whole.startswith(self._before):
            raise ChatTemplateError(f"it changes what precedes the turn: {whole[:200]!r}")
        return whole.removeprefix(self._before)

    def _raises_as_named(self, error: str) -> bool:
        named = [each.name for each in self.differences if each.raises and each.line in error]
        self.met.update(named)
        return bool(named)

    def _named(self, text: str, meaning: Meaning) -> str:
        """What the template writes for a dialect's text, given the named differences."""
        for difference in self.differences:
            changed = text
            if difference.arguments is not None and self._form is not None:
                changed = rewritten(self._form, meaning, changed, difference.arguments)
            changed = difference.replaced_in(changed)
            self.met[difference.name] += changed != text
            text = changed
        return text


def _rendered(dialect: Dialect, meaning: Meaning) -> str | None:
    try:
        return dialect.render(meaning)
    except DialectError:
        return None
