"""The groups of cases, and the questions of each to one family."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Literal, get_args

from vllm_harness.regression.cases.malformed import broken_texts
from vllm_harness.regression.cases.meanings import (
    MeaningCase,
    Meanings,
    marker_tokens,
    markers,
    quotes,
    sayable,
)
from vllm_harness.regression.cases.properties import BUDGET, Made, made
from vllm_harness.regression.engines.in_process import Case
from vllm_harness.regression.engines.over_http import INTERVALS
from vllm_harness.regression.results.results import Engine
from vllm_harness.scripted.dialects import DialectError, render
from vllm_harness.scripted.dialects.form import Form
from vllm_harness.scripted.families import Family
from vllm_harness.scripted.meaning import Meaning, Reasoning, Text, ToolCall
from vllm_harness.scripted.synthetic import PAD

Group = Literal["canonical", "forced", "chunks", "malformed", "properties", "load"]
GROUPS: tuple[Group, ...] = get_args(Group)
BY_DEFAULT: tuple[Group, ...] = ("canonical", "forced", "chunks", "malformed")
WAYS: dict[Engine, dict[Group, tuple[str, ...]]] = {
    "in-process": {
        "canonical": ("whole", "1", "2", "3", "5", "7", "0", "1+end", "0+end"),
        "forced": ("whole", "1", "3", "0", "0+end"),
        "chunks": ("whole", "1", "2", "0", "1+end", "0+end", "late", "cuts", "random"),
        "malformed": ("whole", "1", "3", "0", "0+end"),
        "properties": ("whole", "1", "3", "0+end"),
    },
    "http": {
        "canonical": ("chat", "chat stream", "responses", "responses stream"),
        "forced": ("chat", "chat stream", "responses", "responses stream"),
        "chunks": ("chat", "chat stream", "chat stream, stop", *INTERVALS),
        "malformed": ("chat", "chat stream"),
        "properties": ("chat", "chat stream"),
        "load": ("chat", "chat stream"),
    },
}
"""The first way of a group without meanings is what the others are measured by."""
LOAD = 32
_SPELLED_WAYS = ("whole", "1", "0", "cuts")
_STRICT = {"call", "call without arguments", "two calls", "reasoning and call"}
_FORBIDDEN = {"call", "text and call", "reasoning and call"}
_STRAYED = {"text", "reasoning and text"}
_QUOTED = {"call", "reasoning and text", "reasoning and call"}
_SPELLED = {"call", "two calls", "text and call", "reasoning and text", "reasoning and call"}
_CUT = ("whole", "1", "0")


@dataclass(frozen=True)
class Question:
    """One case of a group.

    Attributes:
        case: what the model says, and how it is asked.
        topic: for reports.
        meaning: what must come back; None: whatever comes, the same in every way.
        barred: whether the request's grammar must keep the model from saying it.
        names: the functions that are called where there is no meaning; none: any may be.
        words: what an answer without calls must say where there is no meaning.
        values: what one with calls must say there.
        uncalled: whether the request allows no call.
    """

    case: Case
    topic: str
    meaning: Meaning | None
    barred: bool = False
    names: frozenset[str] = frozenset()
    words: frozenset[str] = frozenset()
    values: frozenset[str] = frozenset()
    uncalled: bool = False

    @property
    def told(self) -> list[object]:
        """All that decides its result but vLLM, as JSON."""
        kinds = [kind for kind in ("barred", "uncalled") if getattr(self, kind)]
        held_to = [*kinds, *sorted(self.names), *sorted(self.words), *sorted(self.values)]
        return [self.case.model_dump(), repr(self.meaning), *held_to]


@dataclass(frozen=True)
class Questions:
    """A group's questions to one family, and why it has no others: name -> reason."""

    asked: tuple[Question, ...]
    left_out: dict[str, str]


@dataclass(frozen=True)
class Search:
    """How many meanings are made up for a family, and from what seed."""

    budget: int = BUDGET
    seed: int = 0


def questions(
    group: Group, family: Family, meanings: Meanings, engine: Engine, search: Search | None = None
) -> Questions:
    """The cases of one group that a family can say, in the ways of an engine."""
    ways = WAYS[engine].get(group)
    if ways is None:
        return Questions((), {})
    if group == "properties":
        found = _properties(family, search or Search())
    else:
        found = _MAKERS[group](family, meanings)
    asked = [_in_ways(question, ways) for question in found.asked]
    if engine == "http":
        few = _few(meanings)
        asked = [question for question in asked if _served(question, few)]
    return Questions(tuple(asked), found.left_out)


def _in_ways(question: Question, ways: tuple[str, ...]) -> Question:
    return replace(question, case=question.case.model_copy(update={"ways": question.case.ways or ways}))


def _canonical(family: Family, meanings: Meanings) -> Questions:
    known = {case.name: case for case in meanings.cases}
    cases, left_out = sayable(family, meanings)
    asked = [_meant(family, case, known[case.name].topic, known[case.name].meaning) for case in cases]
    for case in cases:
        meaning = known[case.name].meaning
        if case.name in _QUOTED and family.form:
            quoted = {"name": f"{case.name}, markers in the prompt", "asked": _quoting(family.form)}
            asked.append(_meant(family, case.model_copy(update=quoted), "prompt", meaning))
        if case.name in _STRAYED and family.form and "skip_special_tokens" not in family.request:
            asked.append(_meant(family, _strayed(case), "special token", meaning))
    held = _held_in_strings(family, meanings)
    return Questions((*asked, *held.asked), {**left_out, **held.left_out})


def _held_in_strings(family: Family, meanings: Meanings) -> Questions:
    """Calls with one of the family's markers in a string, where it is data and no token of its own."""
    asked, left_out = [], {}
    for marker in markers(family) if "f" in meanings.tools else ():
        name, said = f"call, {marker} in a string", f"a {marker} b"
        meaning = Meaning.of(calls=(ToolCall("f", {"s": said, "i": 1}),))
        try:
            text = render(family.dialect, meaning)
        except DialectError as error:
            left_out[name] = error.message
            continue
        quoted = quotes(family, meaning)
        case = Case(name=name, text=text, tools=meanings.tools_offered(), quoted=quoted)
        asked.append(_meant(family, case, "marker in a string", meaning))
    return Questions(tuple(asked), left_out)


def _strayed(case: Case) -> Case:
    """With a special token that means nothing within its text, which vLLM leaves out by default."""
    changed = {"name": f"{case.name}, special token", "text": case.text.replace("there", f"{PAD}there")}
    return case.model_copy(update=changed)


def _quoting(form: Form) -> str:
    """A question about a format's own markers, as developers and documents that quote them ask."""
    thoughts = form.thoughts
    quoted = [f"{thoughts.open or thoughts.tail.strip()}this{thoughts.close}"] if thoughts else []
    return f"What do {' and '.join([*quoted, form.calls.open or form.calls.marker])} mean?"


def _meant(family: Family, case: Case, topic: str, meaning: Meaning) -> Question:
    ids = family.form.call_ids(meaning) if family.form else ()
    return Question(case.model_copy(update={"ids": ids}), topic, _as_answered(family, meaning))


def _as_answered(family: Family, meaning: Meaning) -> Meaning:
    """What a client is to get: the meaning, or thoughts and text as one where the family shows them so."""
    if not family.shows_thoughts or family.form is None or family.form.thoughts is None:
        return meaning
    thoughts = family.form.thoughts
    thought = "".join(part.text for part in meaning.parts if isinstance(part, Reasoning))
    text = "".join(part.text for part in meaning.parts if isinstance(part, Text))
    shown = f"{thoughts.open or thoughts.tail.strip()}{thought}{thoughts.close}{thoughts.gap}{text}"
    return Meaning((Text(shown), *meaning.calls))


def _forced(family: Family, meanings: Meanings) -> Questions:
    """Calls that the request holds to: required, named, of strict tools, or none at all."""
    known = {case.name: case for case in meanings.cases if case.calls and case.text is None}
    cases, left_out = sayable(family, meanings)
    asked = []
    for case in cases:
        if case.name not in known:
            continue
        meaning = known[case.name].meaning
        offered = case.model_copy(update={"tools": meanings.tools_offered(_called(meaning))})
        held = [
            (topic, _forced_case(family, offered, meaning, topic, choice))
            for topic, choice in _choices(known[case.name])
        ]
        if case.name in _STRICT:
            held.append(("strict", _strict(family, case, meaning)))
        asked += [Question(one, topic, _as_answered(family, meaning)) for topic, one in held]
    asked += [Question(case, "forbidden", None, uncalled=True) for case in _forbidden(cases)]
    asked += [Question(case, "barred", None, barred=True) for case in _barred(family, cases, meanings)]
    return Questions(tuple(asked), {name: why for name, why in left_out.items() if name in known})


def _forbidden(cases: list[Case]) -> Iterator[Case]:
    """Calls of a model that does not keep to a request without any."""
    for case in cases:
        if case.name in _FORBIDDEN:
            yield case.model_copy(update={"name": f"{case.name}, none", "choice": "none"})


def _served(question: Question, few: set[str]) -> bool:
    """Whether a server is asked: it has no say in where a text is cut; of forced calls a few are enough."""
    case = question.case
    forced = case.choice is not None and not question.barred
    return not (case.spelled or case.cut or (forced and unforced(case.name) not in few))


def unforced(name: str) -> str:
    """The name of a case of the group forced, without what the request forces."""
    return name.rpartition(", ")[0]


def _few(meanings: Meanings) -> set[str]:
    return {case.name for case in meanings.cases if case.calls and (case.chunks or case.reasoning)}


def _barred(family: Family, cases: list[Case], meanings: Meanings) -> Iterator[Case]:
    """What a forced call rules out: a text, and a call of another function than the one that is named."""
    meant = {
        "call": ("get_time", "another function, named", Meaning.of(calls=(ToolCall("get_weather", {}),))),
        "text": ("required", "text, required", Meaning.of("Hello there.")),
    }
    tools = meanings.tools_offered(["get_time", "get_weather"])
    for case in cases:
        if case.name in meant and family.form and family.tool_parser:
            choice, name, meaning = meant[case.name]
            yield Case(name=name, text=family.form.render_constrained(meaning), tools=tools, choice=choice)


def _strict(family: Family, case: Case, meaning: Meaning) -> Case:
    """The case with tools whose arguments a grammar holds to their schema, where the model calls any."""
    changed = {
        "name": f"{case.name}, strict",
        "tools": tuple({**tool, "function": {**tool["function"], "strict": True}} for tool in case.tools),
        "choice": "auto",
        "instead": tuple(family.form.render_near(meaning)) if family.form else (),
    }
    return case.model_copy(update=changed)


def _called(meaning: Meaning) -> list[str]:
    """The functions that are called, and another one."""
    return sorted({"get_time", *(call.name for call in meaning.calls)})


def _choices(case: MeaningCase) -> list[tuple[str, str]]:
    (name,) = case.calls[0]
    return [("required", "required"), *([("named", name)] if len(case.calls) == 1 else [])]


def _forced_case(family: Family, case: Case, meaning: Meaning, topic: str, choice: str) -> Case:
    texts = [render(family.dialect, meaning, constrained=True)]
    if family.form:
        texts = family.form.render_forced(meaning, named=topic == "named")
    changed = {
        "name": f"{case.name}, {topic}",
        "text": texts[0],
        "choice": choice,
        "instead": tuple(texts[1:]),
    }
    return case.model_copy(update=changed)


def _load(family: Family, meanings: Meanings) -> Questions:
    cases, _ = sayable(family, meanings)
    return Questions(tuple(Question(case, "load", None) for case in cases[:LOAD]), {})


def _chunks(family: Family, meanings: Meanings) -> Questions:
    cut = {case.name for case in meanings.cases if case.chunks}
    cases, left_out = sayable(family, meanings)
    cases = [case for case in cases if case.name in cut]
    asked = [Question(case, "segmentation", None) for case in cases]
    tokens = marker_tokens(family)
    for case in cases:
        if case.name in _SPELLED and any(token in case.text for token in tokens):
            spelled = {"name": f"{case.name}, markers spelled", "spelled": True, "ways": _SPELLED_WAYS}
            asked.append(Question(case.model_copy(update=spelled), "markers spelled", None))
    for held in _held_in_strings(family, meanings).asked[:1]:
        asked.append(Question(held.case, held.topic, None))
    return Questions(tuple(asked), {name: why for name, why in left_out.items() if name in cut})


def _malformed(family: Family, meanings: Meanings) -> Questions:
    asked = []
    for broken in broken_texts(family):
        case = Case(
            name=broken.name,
            text=broken.text,
            tools=meanings.tools_offered(),
            ways=_CUT if broken.cut else (),
            cut=broken.cut,
        )
        topic = "cut off" if broken.cut else "malformed"
        question = Question(case, topic, None, names=broken.names, words=broken.words, values=broken.values)
        asked.append(question)
    return Questions(tuple(asked), {})


def _properties(family: Family, search: Search) -> Questions:
    found = made(family, search.budget, search.seed) if family.form else []
    asked = [made_question(family, one, f"property {number}") for number, one in enumerate(found)]
    return Questions(tuple(asked), {})


def made_question(family: Family, one: Made, name: str, ways: tuple[str, ...] = ()) -> Question:
    """What was made up, as a question; in these ways, or those of its group."""
    return _meant(family, one.case(name, ways), "property", one.meaning)


_MAKERS: dict[Group, Callable[[Family, Meanings], Questions]] = {
    "canonical": _canonical,
    "forced": _forced,
    "chunks": _chunks,
    "malformed": _malformed,
    "load": _load,
}
