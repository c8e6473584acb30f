"""What a client wants to work, and which of it a case of parser regression says something about."""

from __future__ import annotations

from enum import StrEnum
from functools import cache

from vllm_harness._regression.cases.case import Group, Topic
from vllm_harness._regression.cases.delivery import Chunking, Delivery
from vllm_harness._regression.cases.meanings import load_meanings
from vllm_harness._scripted.meaning import Reasoning

_TOKEN_BY_TOKEN = (Chunking.TOKENS, Chunking.HELD_BACK)


class Feature(StrEnum):
    """What works or does not; each answer of a run says something about one of them."""

    TEXT = "text"
    CALLS = "calls"
    PARALLEL = "parallel calls"
    REASONING = "reasoning"
    FORCED = "forced calls"
    MARKERS = "markers in strings"
    STREAMING = "streaming"
    SEVERAL_TOKENS = "several tokens a step"
    BROKEN = "broken answers"
    LONG = "long answers"

    @property
    def letter(self) -> str:
        """Its sign where there is no room for its name."""
        return LETTERS[self]

    @property
    def meaning(self) -> str:
        """What it means that it works, in a sentence."""
        return TITLES[self]


LETTERS: dict[Feature, str] = {
    Feature.TEXT: "T",
    Feature.CALLS: "C",
    Feature.PARALLEL: "P",
    Feature.REASONING: "R",
    Feature.FORCED: "F",
    Feature.MARKERS: "M",
    Feature.STREAMING: "S",
    Feature.SEVERAL_TOKENS: "N",
    Feature.BROKEN: "B",
    Feature.LONG: "L",
}
TITLES: dict[Feature, str] = {
    Feature.TEXT: "A text comes as the model wrote it.",
    Feature.CALLS: "One call, with arguments of every type, comes as the model wrote it.",
    Feature.PARALLEL: "Several calls in one answer all come, in order.",
    Feature.REASONING: "The reasoning is told from the text and from the calls.",
    Feature.FORCED: "`tool_choice` required, named and none, and strict tools, hold.",
    Feature.MARKERS: "A marker of the model's own format in a string argument stays data.",
    Feature.STREAMING: "A stream of one token a step adds up to the same answer.",
    Feature.SEVERAL_TOKENS: "So does a stream of several tokens a step, as speculative decoding has it.",
    Feature.BROKEN: "An answer that breaks the model's format loses nothing, and raises no error.",
    Feature.LONG: "Time and memory grow no faster than the answer.",
}


def feature_of(group: Group, case: str, topic: Topic, delivery: Delivery) -> Feature:
    """What an answer says something about.

    Args:
        group, case, topic: of the case.
        delivery: how its answer arrived.
    """
    if group == "cost":
        return Feature.LONG
    if group == "forced":
        return Feature.FORCED
    if group == "malformed":
        return Feature.BROKEN
    if topic is Topic.MARKER_IN_STRING:
        return Feature.MARKERS
    if delivery.is_streamed:
        return Feature.STREAMING if is_token_by_token(delivery) else Feature.SEVERAL_TOKENS
    return _content(case, topic)


def is_token_by_token(delivery: Delivery) -> bool:
    """Whether a stream has one token a step."""
    return delivery.shape in _TOKEN_BY_TOKEN and delivery.tokens <= 1 and not delivery.with_end


def _content(case: str, topic: Topic) -> Feature:
    """Of an answer that is not streamed: by the meaning that the case is made from, else by its topic."""
    meanings = _contents()
    plain = case if case in meanings else case.rpartition(", ")[0]
    by_topic = Feature.TEXT if topic in (Topic.PLAIN, Topic.LOOKS) else Feature.CALLS
    return meanings.get(plain, by_topic)


@cache
def _contents() -> dict[str, Feature]:
    """The feature of each canonical meaning."""
    found = {}
    for case in load_meanings().cases:
        if any(isinstance(part, Reasoning) for part in case.meaning.parts):
            found[case.name] = Feature.REASONING
        elif len(case.calls) > 1:
            found[case.name] = Feature.PARALLEL
        else:
            found[case.name] = Feature.CALLS if case.calls else Feature.TEXT
    return found
