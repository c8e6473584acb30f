"""The mark of a conversation: its number, which the user says, and a scripted model repeats in every answer.

An answer with the mark of another conversation shows that something between client and model mixed them up.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from vllm_harness._exchange.answer import Answer
from vllm_harness._exchange.building import ContentPart
from vllm_harness._exchange.server import VllmServer
from vllm_harness._scenarios.conversation import take_of
from vllm_harness._scenarios.format import Scenario, Turn
from vllm_harness._scenarios.mismatches import TurnMismatch
from vllm_harness._scripted.book import BookRule, Content, ScriptBook
from vllm_harness._scripted.meaning import Meaning, Reasoning, Text
from vllm_harness._scripted.meaning import Part as Spoken
from vllm_harness._scripted.quoting import Quoting, sample
from vllm_harness._scripted.when import MessageCondition, When

TURN_HEADER = "x-vllm-harness-turn"
"""Names the turn of a request, so that the rule of that turn answers it."""
_GROUP = "conversation"
_MARK = re.compile(r"\[conversation (\d+)\]")
_PATTERN = rf"\[conversation (?P<{_GROUP}>\d+)\]"
_QUOTED = f" [conversation ${{{_GROUP}}}]"


def mark(conversation: int) -> str:
    """The mark of a conversation."""
    return f"[conversation {conversation}]"


def marked(parts: tuple[ContentPart, ...], conversation: int) -> tuple[ContentPart, ...]:
    """What the user says, followed by the conversation's mark."""
    *before, last = parts
    if last.text is None:
        return (*parts, ContentPart(text=mark(conversation)))
    return (*before, ContentPart(text=f"{last.text} {mark(conversation)}"))


def mixed_up(answer: Answer, conversation: int) -> TurnMismatch | None:
    """The mismatch of an answer that has the mark of another conversation; None if it has not."""
    others = {int(number) for number in _MARK.findall(f"{answer.reasoning} {answer.text}")} - {conversation}
    if not others:
        return None
    return TurnMismatch("conversation", mark(conversation), ", ".join(map(mark, sorted(others))))


@dataclass(frozen=True)
class LoadScripts:
    """What a scripted model says in a load: a book with a rule for each turn of any conversation.

    Attributes:
        book: the book's name on the server.
        says: what the model says, by the name of the turn.
    """

    book: str
    says: Mapping[str, Content]

    def meaning(self, turn: Turn, conversation: int) -> Meaning | None:
        """What the model means in a turn of a conversation; None if it is not a single meaning."""
        say = self.says.get(turn.name)
        meaning = sample(say, str(conversation)) if isinstance(say, Quoting) else say
        return meaning if isinstance(meaning, Meaning) else None


def put_scripts(scenario: Scenario, server: VllmServer) -> tuple[ScriptBook, LoadScripts]:
    """Puts the script book of a load on a server; returns the book, and what the clients need to know of it.

    Raises:
        DialectError: the model's family cannot express what a turn says.
        BookError: the server does not accept scripts, or does not answer.
    """
    book = ScriptBook(server.endpoint, server.entry)
    by_turn: dict[str, Content] = {}
    for turn in scenario.turns:
        start = (scenario.ancestors(turn)[:1] or [turn])[0]
        takes = [take_of(spec, server.entry) for spec in turn.say]
        says = [repeating(take) if start.user else take for take in takes]
        book.add(
            BookRule(
                f"turn {turn.name}",
                tuple(says),
                when=When(
                    header={TURN_HEADER: f"^{re.escape(turn.name)}$"},
                    message=MessageCondition(role="user", text=_PATTERN) if start.user else None,
                ),
                times=None,
                by_choice=len(says) == 1,
                constrained=True,  # without the blanks that a model may write around a call
                expect="cut" if turn.expect.status == "incomplete" else "done",
                keep_uses=False,
            )
        )
        if len(says) == 1:
            by_turn[turn.name] = says[0]
    return book, LoadScripts(book.name, by_turn)


def repeating(say: Content) -> Content:
    """What is said, with the conversation's mark after its text, or else after its reasoning."""
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
    """A part with the quotations in its text escaped."""
    if isinstance(part, Text | Reasoning):
        return type(part)(re.sub(r"\$(\{\w+\})", r"$$\1", part.text))
    return part
