"""The mark of a conversation: its number, which is in the user's message and in every scripted answer.

An answer with another conversation's mark shows that something between client and model mixed them up.
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
"""The header with the turn's name, by which the script book chooses the rule for a request."""
_GROUP = "conversation"
_MARK = re.compile(r"\[conversation (\d+)\]")
_PATTERN = rf"\[conversation (?P<{_GROUP}>\d+)\]"
_QUOTED = f" [conversation ${{{_GROUP}}}]"


def mark(conversation: int) -> str:
    """The mark of a conversation, as it appears in messages."""
    return f"[conversation {conversation}]"


def marked(parts: tuple[ContentPart, ...], conversation: int) -> tuple[ContentPart, ...]:
    """Adds the conversation's mark to the end of a user's message."""
    *before, last = parts
    if last.text is None:
        return (*parts, ContentPart(text=mark(conversation)))
    return (*before, ContentPart(text=f"{last.text} {mark(conversation)}"))


def mixed_up(answer: Answer, conversation: int) -> TurnMismatch | None:
    """The mismatch if an answer contains another conversation's mark; None if it does not."""
    others = {int(number) for number in _MARK.findall(f"{answer.reasoning} {answer.text}")} - {conversation}
    if not others:
        return None
    return TurnMismatch("conversation", mark(conversation), ", ".join(map(mark, sorted(others))))


@dataclass(frozen=True)
class LoadScripts:
    """What a scripted model says in a load: a script book with a rule for each turn of the scenario.

    Attributes:
        book: the name of the script book on the server.
        says: what the model says, by the name of the turn.
    """

    book: str
    says: Mapping[str, Content]

    def meaning(self, turn: Turn, conversation: int) -> Meaning | None:
        """The meaning of what the model says in a turn; None if it is not a single meaning."""
        say = self.says.get(turn.name)
        meaning = sample(say, str(conversation)) if isinstance(say, Quoting) else say
        return meaning if isinstance(meaning, Meaning) else None


def put_scripts(scenario: Scenario, server: VllmServer) -> tuple[ScriptBook, LoadScripts]:
    """Puts the script book of a load on a server; returns the book, and its description for the clients.

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
                constrained=True,  # without the whitespace that a model may write around a call
                expect="cut" if turn.expect.status == "incomplete" else "done",
                keep_uses=False,
            )
        )
        if len(says) == 1:
            by_turn[turn.name] = says[0]
    return book, LoadScripts(book.name, by_turn)


def repeating(say: Content) -> Content:
    """Adds the conversation's mark to a model's text, or else to its reasoning."""
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
    """Escapes references such as `${name}` in a part's text, so that they are taken literally."""
    if isinstance(part, Text | Reasoning):
        return type(part)(re.sub(r"\$(\{\w+\})", r"$$\1", part.text))
    return part
