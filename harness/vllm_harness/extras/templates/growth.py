"""Whether a conversation grows: whether the next prompt begins with the last one and its answer.

A prefix cache and training on conversations need it. Where a template writes a past turn otherwise than the
model wrote it, the prompt breaks off there, and all tokens behind that place are computed anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from vllm_harness._regression.results.judge import common_start
from vllm_harness._scripted.dialects import Dialect, find_dialect
from vllm_harness._scripted.families import Family
from vllm_harness._scripted.meaning import Meaning
from vllm_harness._terminal.status import Progress, quiet
from vllm_harness.extras.templates.chat_template import ChatTemplate, ChatTemplateError
from vllm_harness.extras.templates.comparison import around_difference, shapes_of
from vllm_harness.extras.templates.conversations import TOOL, USER, Message, messages_of, plain, what_follows
from vllm_harness.extras.templates.pairs import NamedDifference, file_of, load_pairs, template_of


@dataclass(frozen=True)
class Break:
    """A turn after which the next prompt does not begin with the last prompt and its answer.

    Attributes:
        shape: the shape of the turn.
        answered, shown: what the model wrote at the place of the break, and what the template shows there.
        line: the line of the template that writes it; None if it is not known.
    """

    shape: str
    answered: str
    shown: str
    line: int | None


@dataclass(frozen=True)
class Growth:
    """The growth of a family's prompts: the shapes of turns that it keeps, and those at which it breaks."""

    family: str
    kept: tuple[str, ...]
    breaks: tuple[Break, ...]

    def as_json(self) -> dict[str, Any]:
        """The growth as a JSON object."""
        return asdict(self)


def grown(families: Sequence[Family], progress: Progress = quiet) -> list[Growth]:
    """Finds where the prompts of families break; families without a template are left out.

    Raises:
        AssetError: a template is not in the cache, and cannot be fetched.
    """
    found = []
    for family in families:
        pair = load_pairs().get(family.dialect)
        if pair is not None and pair.proves:
            dialect = find_dialect(family.dialect)
            template = template_of(pair, dialect, file_of(pair, progress))
            found.append(growth_of(family.name, dialect, template, pair.differences))
    return found


def growth_of(
    family: str, dialect: Dialect, template: ChatTemplate, differences: Sequence[NamedDifference] = ()
) -> Growth:
    """Finds the shapes of turns after which the next prompt does not begin with the last one and its answer.

    Args:
        differences: the named differences; those of the stand-in alone are no breaks.
    """
    breaks = []
    shapes = shapes_of(dialect)
    for shape in shapes:
        meaning = plain(shape).meaning
        before = template([USER], [TOOL], generate=True) + _by_real_model(dialect, meaning, differences)
        messages: list[Message] = [*messages_of(meaning), *what_follows(meaning)]
        try:
            after = template(messages, [TOOL], generate=True)
        except ChatTemplateError as error:
            breaks.append(Break(shape, "", f"(the template raises: {error})", None))
            continue
        if not after.startswith(before):
            line = template.line_at(messages, [TOOL], common_start(before, after))
            breaks.append(Break(shape, *around_difference(before, after, before=12, after=24), line))
    broken = {each.shape for each in breaks}
    return Growth(family, tuple(shape for shape in shapes if shape not in broken), tuple(breaks))


def _by_real_model(dialect: Dialect, meaning: Meaning, differences: Sequence[NamedDifference]) -> str:
    text = dialect.render(meaning)
    for each in differences:
        if each.of_stand_in:
            text = each.replaced_in(text)
    return text
