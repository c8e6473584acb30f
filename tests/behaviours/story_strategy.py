"""Generates stories with hypothesis: conversations in all legal forms with random request options.

The strategies avoid known defects as narrowly as possible; a comment at each exception names the defect.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st

from tests.apis import Api, Json
from tests.behaviours.stories import ShapedTurn, Story
from tests.prompts import Turn
from vllm_harness._configuration.model_entries import ModelEntry

Options = st.SearchStrategy[Json]
SCHEMA: Json = {
    "type": "object",
    "properties": {"river": {"type": "string"}},
    "required": ["river"],
    "additionalProperties": False,
}
ANSWER_IN_JSON = json.dumps({"river": "Nile"})
USER: dict[Api, tuple[str, ...]] = {
    "responses": ("text", "typed", "parts"),
    "chat": ("text", "parts"),
    "messages": ("text", "parts"),
}
THOUGHTS: dict[Api, tuple[str, ...]] = {
    "responses": ("content", "summary"),
    "chat": ("field",),
    "messages": ("block",),
}
ASSISTANT: dict[Api, tuple[str, ...]] = {
    "responses": ("item", "bare", "short"),
    "chat": ("text", "parts"),
    "messages": ("block",),
}
CALL: dict[Api, tuple[str, ...]] = {
    "responses": ("item", "bare"),
    "chat": ("absent", "null", "empty"),
    "messages": ("block",),
}
OUTPUT: dict[Api, tuple[str, ...]] = {
    "responses": ("text", "item", "parts"),
    "chat": ("text", "parts"),
    "messages": ("text", "parts"),
}
REFUSED: dict[Api, list[tuple[Json, str]]] = {
    "responses": [
        ({"background": True, "store": False}, "background"),
        ({"tool_choice": {"type": "function", "name": "nobody"}}, "tool_choice|Tool choice"),
        ({"presence_penalty": 3}, "presence_penalty"),
        ({"include": ["everything"]}, "include"),
    ],
    "chat": [
        ({"logprobs": False, "top_logprobs": 2}, "logprobs"),
        ({"tool_choice": {"type": "function", "function": {"name": "nobody"}}}, "tool_choice|tools"),
        ({"response_format": {"type": "json_schema"}}, "json_schema"),
    ],
    "messages": [
        ({"thinking": {"type": "enabled", "budget_tokens": 4000}}, "budget_tokens"),
        ({"tool_choice": {"type": "some"}}, "tool_choice"),
        ({"max_tokens": "many"}, "max_tokens"),
    ],
}
"""Options that an API always refuses with a 400, each with a pattern that matches the error."""
plain = st.sampled_from(
    ["Hello.", "The Nile.", "It is 4 °C.", "Ça va, 東京?", "Yes: [1] {2} <3>.", "One\n\nTwo 🦊"]
)
"""Model texts without anything that a parser might take for a marker; tests/regression covers markers."""
cities = st.sampled_from(["Oslo", "Zürich", "東京", 'New "York"', "a\\b"])
wild = st.one_of(plain, st.text("ab Z\n\t.,'\"\\{}[]<>&|#é東🦊\u0301", min_size=1, max_size=12))
"""Texts in a request, which stay text even if they look like markers."""


@st.composite
def stories(draw: st.DrawFn, api: Api, entry: ModelEntry) -> Story:
    """Generates stories over one API for a model entry."""
    tools = draw(st.booleans())
    options = draw(_OPTIONS[api])
    by_id = api == "responses" and draw(st.booleans())
    if by_id:
        options.pop("store", None)  # a response that is not stored cannot be continued
    if api == "responses" and options.get("temperature") == 0:
        options.pop("top_p", None)  # greedy-request-top-p-is-echoed-as-1
    if entry.harmony:
        _without_what_harmony_lacks(options)
    if tools:
        options |= draw(_choices(api))
    says = draw(_says(api, options, entry, tools=tools))
    turns = draw(_turns(api, entry, tools=tools, by_id=by_id))
    story = Story(api=api, turns=tuple(turns), by_id=by_id, tools=tools, options=options, says=tuple(says))
    is_refused = draw(st.integers(0, 7)) == 7
    return draw(st.sampled_from(REFUSED[api]).map(story.refused_for)) if is_refused else story


def _without_what_harmony_lacks(options: Json) -> None:
    if "logprobs" in str(options.get("include")):  # vllm-23225
        del options["include"]
        options.pop("top_logprobs", None)
    if options.get("thinking", {}).get("type") == "enabled":  # thinking-with-budget-on-harmony
        del options["thinking"]
    for effort in (options.get("reasoning", {}), options):  # gpt-oss always reasons
        for key in ("effort", "reasoning_effort"):
            if effort.get(key) == "none":
                effort[key] = "low"


@st.composite
def _turns(draw: st.DrawFn, api: Api, entry: ModelEntry, *, tools: bool, by_id: bool) -> list[ShapedTurn]:
    """Generates the earlier turns: a system or developer message, rounds, and a question or an output."""
    words = plain if by_id else wild
    turns = draw(_head(api, entry, by_id=by_id))
    calls = tools and not (by_id and not entry.harmony)  # vllm-43244
    numbers = iter(map(str, range(1, 100)))
    rounds = draw(st.integers(0, 3))
    for at in range(rounds + 1):
        turns += draw(_questions(api, after_outputs=bool(turns) and turns[-1][0] == "output"))
        steps = draw(st.integers(0, 2)) if calls else 0
        for _ in range(steps):
            turns += draw(_step(api, entry, words, numbers, by_id=by_id))
        if at < rounds and (steps == 0 or draw(st.booleans())):
            turns += draw(_answer(api, words, by_id=by_id))
    if by_id or len(turns) > 1 or api != "responses" or turns[0][1] == "parts":
        return turns
    return [("user", draw(st.sampled_from(["string", turns[0][1]])), *turns[0][2:])]


@st.composite
def _head(draw: st.DrawFn, api: Api, entry: ModelEntry, *, by_id: bool) -> list[ShapedTurn]:
    kinds = ["", "system"] if api == "messages" else ["", "system", "developer"]
    if by_id and not entry.harmony:
        kinds.remove("system")  # follow-up-drops-system-messages-of-the-input
    kind = draw(st.sampled_from(kinds))
    return [(kind, *draw(_texts(("text", "parts"))))] if kind else []


@st.composite
def _questions(draw: st.DrawFn, api: Api, *, after_outputs: bool) -> list[ShapedTurn]:
    shapes = ("after outputs", *USER[api]) if after_outputs and api == "messages" else USER[api]
    first = ("user", *draw(_texts(shapes)))
    return [first, ("user", *draw(_texts(USER[api])))] if draw(st.booleans()) else [first]


@st.composite
def _texts(draw: st.DrawFn, shapes: Sequence[str]) -> tuple[str, ...]:
    """Generates a form, and one text or, if the form has parts, several texts."""
    shape = draw(st.sampled_from(shapes))
    return (shape, *draw(st.lists(wild, min_size=1, max_size=2 if shape == "parts" else 1)))


@st.composite
def _step(
    draw: st.DrawFn, api: Api, entry: ModelEntry, words: Any, numbers: Any, *, by_id: bool
) -> list[ShapedTurn]:
    """Generates a round of a conversation: reasoning, text, calls and the outputs of the calls."""
    turns = draw(_thoughts(api, words, by_id=by_id))
    if not entry.harmony and draw(st.booleans()):  # vllm-50975, replayed-preamble-comes-before-its-reasoning
        turns.append(("assistant", draw(st.sampled_from(ASSISTANT[api])), draw(words)))
    count = draw(st.integers(1, 2)) if "parallel_tools" in entry.capabilities else 1
    called = [next(numbers) for _ in range(count)]
    escaped = entry.harmony and api == "messages"  # messages-escape-arguments-of-the-history
    names = cities.filter(str.isascii) if escaped else cities
    turns += [("call", draw(st.sampled_from(CALL[api])), number, draw(names)) for number in called]
    outputs = OUTPUT[api]
    if entry.harmony and api == "responses":
        outputs = tuple(shape for shape in outputs if shape != "parts")  # vllm-54786
    for number in called:
        shape, *texts = draw(_texts(outputs))
        turns.append(("output", shape, number, *texts))
    return turns


@st.composite
def _answer(draw: st.DrawFn, api: Api, words: Any, *, by_id: bool) -> list[ShapedTurn]:
    thoughts = draw(_thoughts(api, words, by_id=by_id))
    return [*thoughts, ("assistant", draw(st.sampled_from(ASSISTANT[api])), draw(words))]


@st.composite
def _thoughts(draw: st.DrawFn, api: Api, words: Any, *, by_id: bool) -> list[ShapedTurn]:
    """Generates reasoning in some form, or none; if turns are sent by id, the server has it as generated."""
    shapes = THOUGHTS[api][:1] if by_id else THOUGHTS[api]
    return [("thoughts", draw(st.sampled_from(shapes)), draw(words))] if draw(st.booleans()) else []


@st.composite
def _says(draw: st.DrawFn, api: Api, options: Json, entry: ModelEntry, *, tools: bool) -> list[Turn]:
    """Generates the model's answer within the limits of the options."""
    request = Story(api=api, turns=(), options=options)
    choice = _choice(options) if tools else "none"
    if not entry.harmony and choice in ("any", "one"):  # stop-string-shifts-what-hermes-streams
        options.pop("stop", None)
        options.pop("stop_sequences", None)
    # likewise, and reasoning-tokens-stream-beside-stop-string
    only_words = not entry.harmony and bool({"stop", "stop_sequences"} & set(options))
    thinks = (
        "reasoning" in entry.capabilities
        and request.effort != "none"
        and not only_words
        and draw(st.booleans())
    )
    words = (
        plain if entry.harmony else plain.filter(str.isascii)
    )  # partial-characters-are-no-thoughts-in-a-stream
    says: list[Turn] = [("thoughts", draw(words))] if thinks else []
    if request.is_json and choice not in ("any", "one"):
        return [*says, ("assistant", ANSWER_IN_JSON)]
    if choice in ("any", "one") or (choice == "auto" and not only_words and draw(st.booleans())):
        several = "parallel_tools" in entry.capabilities and choice == "auto" and not _is_single(options)
        count = draw(st.integers(1, 2)) if several else 1  # hermes-grammar-allows-no-line-end-between-calls
        escaped = entry.harmony and api == "chat"  # arguments-are-written-anew
        names = cities.filter(str.isascii) if escaped else cities
        return [*says, *(("call", str(number), draw(names)) for number in range(count))]
    return [*says, ("assistant", draw(plain))]


def _choice(options: Json) -> str:
    """Returns whether the model may or must call a tool: auto, any, one, none."""
    choice = options.get("tool_choice", "auto")
    if isinstance(choice, str):
        return {"required": "any"}.get(choice, choice)
    return {"function": "one", "tool": "one"}.get(choice["type"], choice["type"])


def _is_single(options: Json) -> bool:
    choice = options.get("tool_choice")
    single = isinstance(choice, dict) and choice.get("disable_parallel_tool_use", False)
    return single or options.get("parallel_tool_calls") is False


def _choices(api: Api) -> Options:
    """Generates a value for tool_choice."""
    named: Json = {
        "responses": {"type": "function", "name": "get_weather"},
        "chat": {"type": "function", "function": {"name": "get_weather"}},
        "messages": {"type": "tool", "name": "get_weather"},
    }[api]
    if api == "messages":
        single = [{}, {"disable_parallel_tool_use": True}, {"disable_parallel_tool_use": False}]
        kinds = st.sampled_from([{"type": "auto"}, {"type": "any"}, {"type": "none"}, named])
        both = st.tuples(kinds, st.sampled_from(single))
        chosen = both.map(lambda pair: pair[0] if pair[0]["type"] == "none" else {**pair[0], **pair[1]})
        return st.fixed_dictionaries({}, optional={"tool_choice": chosen})
    chosen = st.sampled_from(["auto", "none", "required", named])
    return st.fixed_dictionaries({}, optional={"tool_choice": chosen, "parallel_tool_calls": st.booleans()})


def _any_of(**values: Any) -> Options:
    """Generates some of these options, each with one of its values."""
    return st.fixed_dictionaries({}, optional={name: st.sampled_from(each) for name, each in values.items()})


_SAMPLING: Json = {"temperature": [0, 0.5, 1], "top_p": [0.5, 1]}
_OPTIONS: dict[Api, Options] = {
    "responses": _any_of(
        **_SAMPLING,
        instructions=["Be brief.", "Sois bref, s'il te plaît.\nMerci 🦊"],
        max_output_tokens=[300],
        text=[
            {"format": {"type": "text"}},
            {"format": {"type": "json_object"}},
            {"format": {"type": "json_schema", "name": "river", "schema": SCHEMA, "strict": True}},
        ],
        reasoning=[{"effort": effort} for effort in ("low", "medium", "high", "none")] + [{}],
        store=[True, False],
        include=[[], ["reasoning.encrypted_content"], ["message.output_text.logprobs"]],
        metadata=[{}, {"topic": "rivers"}],
        user=["somebody"],
        truncation=["disabled"],
        service_tier=["auto", "flex"],
        max_tool_calls=[3],
        presence_penalty=[0.5],
    ),
    "chat": _any_of(
        **_SAMPLING,
        max_tokens=[300],
        max_completion_tokens=[300],
        response_format=[
            {"type": "text"},
            {"type": "json_object"},
            {"type": "json_schema", "json_schema": {"name": "river", "schema": SCHEMA, "strict": True}},
        ],
        reasoning_effort=["low", "medium", "high", "none"],
        logprobs=[True, False],
        seed=[7],
        stop=["never said", ["never said", "nor this"]],
        presence_penalty=[0.5],
        metadata=[{"topic": "rivers"}],
        user=["somebody"],
        store=[True, False],
        n=[1],
    ),
    "messages": _any_of(
        **_SAMPLING,
        top_k=[5],
        stop_sequences=[["never said"]],
        thinking=[{"type": "disabled"}, {"type": "adaptive"}, {"type": "enabled", "budget_tokens": 1024}],
        output_config=[
            {"effort": "low"},
            {"effort": "high"},
            {"format": {"type": "json_schema", "schema": SCHEMA}},
        ],
        metadata=[{"user_id": "somebody"}],
        service_tier=["auto"],
    ),
}
