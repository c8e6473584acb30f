"""The features of a model, and which of them a parser regression case is about."""

from __future__ import annotations

from enum import StrEnum
from functools import cache

from vllm_harness._exchange.delivery import Chunking, Delivery
from vllm_harness._regression.cases.case import Group, Topic
from vllm_harness._regression.cases.meanings import load_meanings
from vllm_harness._scripted.meaning import Reasoning

_TOKEN_BY_TOKEN = (Chunking.TOKENS, Chunking.HELD_BACK)


class Feature(StrEnum):
    """A feature that works or does not; each answer in a run tests one feature."""

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
        """The letter that stands for the feature in narrow tables."""
        return LETTERS[self]

    @property
    def meaning(self) -> str:
        """A sentence that says what is true if the feature works."""
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
    Feature.TEXT: "The text arrives as the model wrote it.",
    Feature.CALLS: "One call, with arguments of every type, arrives as the model wrote it.",
    Feature.PARALLEL: "Several calls in one answer all arrive, in order.",
    Feature.REASONING: "The reasoning is separated from the text and the calls.",
    Feature.FORCED: "`tool_choice` required, named and none, and strict tools, are obeyed.",
    Feature.MARKERS: "A marker of the model's format in a string argument stays data.",
    Feature.STREAMING: "A stream of one token a step adds up to the same answer.",
    Feature.SEVERAL_TOKENS: "A stream of several tokens a step adds up to the same answer, too.",
    Feature.BROKEN: "An answer that breaks the model's format loses nothing, and raises no error.",
    Feature.LONG: "Time and memory grow no faster than the answer.",
}


def feature_of(group: Group, case: str, topic: Topic, delivery: Delivery) -> Feature:
    """The feature that an answer tests.

    Args:
        group, case, topic: the group, name and topic of the answer's case.
        delivery: how the answer was delivered (streamed or not, and in which chunks).
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
    """Whether a stream delivers one token per step."""
    return delivery.shape in _TOKEN_BY_TOKEN and delivery.tokens <= 1 and not delivery.with_end


def _content(case: str, topic: Topic) -> Feature:
    """The feature that an unstreamed answer tests: from the case's meaning, or else from its topic."""
    meanings = _contents()
    plain = case if case in meanings else case.rpartition(", ")[0]
    by_topic = Feature.TEXT if topic in (Topic.PLAIN, Topic.LOOKS) else Feature.CALLS
    return meanings.get(plain, by_topic)


@cache
def _contents() -> dict[str, Feature]:
    """The feature that each canonical meaning tests, by the meaning's name."""
    features = {}
    for case in load_meanings().cases:
        if any(isinstance(part, Reasoning) for part in case.meaning.parts):
            features[case.name] = Feature.REASONING
        elif len(case.calls) > 1:
            features[case.name] = Feature.PARALLEL
        else:
            features[case.name] = Feature.CALLS if case.calls else Feature.TEXT
    return features
