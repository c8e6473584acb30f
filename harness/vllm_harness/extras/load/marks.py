"""Words of a conversation's own: its number, said by the user, and by a scripted model in every answer.

So an answer that belongs to another conversation is found, whoever mixed them up.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from vllm_harness._exchange.answer import Answer
from vllm_harness._exchange.building import ContentPart
from vllm_harness._scenarios.conversation import Served, take_of
from vllm_harness._scenarios.format import Scenario, Turn
from vllm_harness._scenarios.judging import TurnMismatch
from vllm_harness._scripted.book import BookRule, Content, ScriptBook
from vllm_harness._scripted.meaning import Meaning, Reasoning, Text
from vllm_harness._scripted.meaning import Part as Spoken
from vllm_harness._scripted.quoting import Quoting, sample
from vllm_harness._scripted.when import MessageCondition, When

TURN_HEADER = "x-vllm-harness-turn"
"""Names the turn of a request, by which its rule is found."""
_GROUP = "conversation"
_MARK = re.compile(r"\[conversation (\d+)\]")
_PATTERN = rf"\[conversation (?P<{_GROUP}>\d+)\]"
_QUOTED = f" [conversation ${{{_GROUP}}}]"


def mark(conversation: int) -> str:
    """The words of a conversation's own."""
    return f"[conversation {conversation}]"


def marked(parts: tuple[ContentPart, ...], conversation: int) -> tuple[ContentPart, ...]:
    """What the user says, with the conversation's own words behind it."""
    *before, last = parts
    if last.text is None:
        return (*parts, ContentPart(text=mark(conversation)))
    return (*before, ContentPart(text=f"{last.text} {mark(conversation)}"))


def mixed(answer: Answer, conversation: int) -> TurnMismatch | None:
    """Where an answer has the words of another conversation."""
    others = {int(number) for number in _MARK.findall(f"{answer.reasoning} {answer.text}")} - {conversation}
    if not others:
        return None
    return TurnMismatch("conversation", mark(conversation), ", ".join(map(mark, sorted(others))))


@dataclass(frozen=True)
class LoadScripts:
    """What a scripted model says in a load: a book with a rule for each turn of any conversation.

    Attributes:
        book: its name on the server.
        said: what is said in each turn, by its name.
    """

    book: str
    said: Mapping[str, Content]

    def meaning(self, turn: Turn, conversation: int) -> Meaning | None:
        """What the model means in a conversation's turn; None where it is no single meaning."""
        said = self.said.get(turn.name)
        found = sample(said, str(conversation)) if isinstance(said, Quoting) else said
        return found if isinstance(found, Meaning) else None


def put_scripts(scenario: Scenario, served: Served) -> tuple[ScriptBook, LoadScripts]:
    """Puts the book of a load on a server; gives it, and what its clients need of it.

    Raises:
        DialectError: the model's family cannot express what a turn says.
        BookError: the server takes no scripts, or does not answer.
    """
    book = ScriptBook(served.endpoint, served.entry)
    said: dict[str, Content] = {}
    for turn in scenario.turns:
        begins = scenario.line(turn)[:1] or [turn]
        takes = [take_of(spec, served.entry) for spec in turn.say]
        says = [repeating(take) if begins[0].user else take for take in takes]
        book.add(
            BookRule(
                f"turn {turn.name}",
                tuple(says),
                when=When(
                    header={TURN_HEADER: f"^{re.escape(turn.name)}$"},
                    message=MessageCondition(role="user", text=_PATTERN) if begins[0].user else None,
                ),
                times=None,
                by_choice=len(says) == 1,
                constrained=True,  # without blanks that a model may put around a call
                expect="cut" if turn.expect.status == "incomplete" else "done",
                keep_uses=False,
            )
        )
        if len(says) == 1:
            said[turn.name] = says[0]
    return book, LoadScripts(book.name, said)


def repeating(say: Content) -> Content:
    """What is said, with the conversation's own words behind its text, or else behind its thoughts."""
    if not isinstance(say, Meaning):
        return say
    parts = tuple(map(_literal, say.parts))
    for kind in (Text, Reasoning):
        for number, part in enumerate(parts):
            if isinstance(part, kind):
                repeated = kind(part.text + _QUOTED)
                return Quoting(Meaning((*parts[:number], repeated, *parts[number + 1 :])))
    return say


def _literal(part: Spoken) -> Spoken:
    """A part whose text quotes nothing."""
    if isinstance(part, Text | Reasoning):
        return type(part)(re.sub(r"\$(\{\w+\})", r"$$\1", part.text))
    return part
