"""Makes the test cases of each group for one parser family; what only one group needs comes with it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from vllm_harness._exchange.delivery import Delivery, deliveries
from vllm_harness._extensions import GROWING_CASES, load
from vllm_harness._regression.cases.case import Case, CaseInput, CaseSet, Expected, Group, Topic
from vllm_harness._regression.cases.meanings import (
    MeaningCase,
    Meanings,
    marker_spans,
    marker_tokens,
    markers,
    renderable,
)
from vllm_harness._scripted.dialects import DialectError, render
from vllm_harness._scripted.dialects.form import Form
from vllm_harness._scripted.families import Family
from vllm_harness._scripted.meaning import Meaning, ToolCall
from vllm_harness._scripted.synthetic import PAD

if TYPE_CHECKING:
    from vllm_harness._regression.cases.properties import GeneratedMeaning

LOAD_CASES = 32
BUDGET = 40
_SPELLED_DELIVERIES = deliveries("whole tokens_1 all every_cut")
_TRUNCATED_DELIVERIES = deliveries("whole tokens_1 all")
_STRICT = {"call", "call without arguments", "two calls", "reasoning and call"}
_FORBIDDEN = {"call", "text and call", "reasoning and call"}
_SPECIAL_TOKEN = {"text", "reasoning and text"}
_MARKERS_IN_PROMPT = {"call", "reasoning and text", "reasoning and call"}
_SPELLED = {"call", "two calls", "text and call", "reasoning and text", "reasoning and call"}


@dataclass(frozen=True)
class GenerationPlan:
    """How many meanings to generate for a family, and the random seed."""

    budget: int = BUDGET
    seed: int = 0


def case_set(
    group: Group, family: Family, meanings: Meanings, generation: GenerationPlan | None = None
) -> CaseSet:
    """Returns the cases of one group that apply to a family, and why the others do not."""
    if group == "properties":
        return _properties(family, generation or GenerationPlan())
    return _MAKERS[group](family, meanings)


def _canonical(family: Family, meanings: Meanings) -> CaseSet:
    known = {case.name: case for case in meanings.cases}
    inputs, left_out = renderable(family, meanings)
    cases = [
        _expecting(family, input_, known[input_.name].topic, known[input_.name].meaning) for input_ in inputs
    ]
    for input_ in inputs:
        meaning = known[input_.name].meaning
        if input_.name in _MARKERS_IN_PROMPT and family.form:
            name, message = f"{input_.name}, markers in the prompt", _question_about_markers(family.form)
            changed = input_.model_copy(update={"name": name, "user_message": message})
            cases.append(_expecting(family, changed, Topic.PROMPT, meaning))
        if input_.name in _SPECIAL_TOKEN and family.form and "skip_special_tokens" not in family.request:
            cases.append(_expecting(family, _with_special_token(input_), Topic.SPECIAL_TOKEN, meaning))
    marker_cases, without = _markers_in_strings(family, meanings)
    return CaseSet(family, "canonical", (*cases, *marker_cases), {**left_out, **without})


def _markers_in_strings(family: Family, meanings: Meanings) -> tuple[list[Case], dict[str, str]]:
    """Calls with a marker of the family in a string argument, where it is data and not a special token."""
    cases, left_out = [], {}
    for marker in markers(family) if "f" in meanings.tools else ():
        name = f"call, {marker} in a string"
        meaning = Meaning.of(calls=(ToolCall("f", {"s": f"a {marker} b", "i": 1}),))
        try:
            text = render(family.dialect, meaning)
        except DialectError as error:
            left_out[name] = error.message
            continue
        spans = marker_spans(family, meaning)
        input_ = CaseInput(name=name, text=text, tools=meanings.tools_offered(), spelled_spans=spans)
        cases.append(_expecting(family, input_, Topic.MARKER_IN_STRING, meaning))
    return cases, left_out


def _with_special_token(input_: CaseInput) -> CaseInput:
    """Adds a meaningless special token to the text; vLLM omits such tokens by default."""
    text = input_.text.replace("there", f"{PAD}there")
    return input_.model_copy(update={"name": f"{input_.name}, special token", "text": text})


def _question_about_markers(form: Form) -> str:
    """Returns a user message that quotes a format's markers, as a developer might do."""
    reasoning = form.reasoning
    quoted = [f"{reasoning.open or reasoning.tail.strip()}this{reasoning.close}"] if reasoning else []
    return f"What do {' and '.join([*quoted, form.calls.open or form.calls.marker])} mean?"


def _expecting(family: Family, input_: CaseInput, topic: Topic, meaning: Meaning) -> Case:
    ids = family.form.call_ids(meaning) if family.form else ()
    expected = Expected(meaning=_as_answered(family, meaning))
    return Case(input_.model_copy(update={"call_ids": ids}), topic, expected)


def _as_answered(family: Family, meaning: Meaning) -> Meaning:
    """What a client must receive: the meaning; reasoning moves into the text if the family shows it there."""
    if not family.shows_reasoning or family.form is None or family.form.reasoning is None:
        return meaning
    reasoning = family.form.reasoning
    opened = f"{reasoning.open or reasoning.tail.strip()}{meaning.reasoning}"
    return Meaning.of(f"{opened}{reasoning.close}{reasoning.gap}{meaning.text}", calls=meaning.calls)


def _forced(family: Family, meanings: Meanings) -> CaseSet:
    """Cases whose request constrains calls: required, named, with strict tools, or forbidden."""
    every = {case.name: case for case in meanings.cases}
    known = {name: case for name, case in every.items() if case.calls and case.text is None}
    inputs, left_out = renderable(family, meanings)
    cases = []
    for input_ in inputs:
        if input_.name in known:
            cases += _constrained(family, meanings, input_, known[input_.name])
    for input_ in inputs:
        if input_.name in _FORBIDDEN:
            cases.append(_forbidden(input_, every[input_.name]))
    cases += [
        Case(input_, Topic.BARRED, Expected(refused=True)) for input_ in _barred(family, inputs, meanings)
    ]
    return CaseSet(
        family, "forced", tuple(cases), {name: reason for name, reason in left_out.items() if name in known}
    )


def _constrained(family: Family, meanings: Meanings, input_: CaseInput, known: MeaningCase) -> list[Case]:
    """The cases for one meaning with required or named calls, or strict tools."""
    meaning, essential = known.meaning, _is_essential(known)
    expected = Expected(meaning=_as_answered(family, meaning))
    offered = input_.model_copy(update={"tools": meanings.tools_offered(_called_and_another(meaning))})
    cases = [
        Case(_forced_input(family, offered, meaning, topic, choice), topic, expected, essential)
        for topic, choice in _tool_choices(known)
    ]
    if input_.name in _STRICT:
        cases.append(Case(_strict_input(family, input_, meaning), Topic.STRICT, expected, essential))
    return cases


def _forbidden(input_: CaseInput, known: MeaningCase) -> Case:
    """The case of a model that makes calls although `tool_choice` is `none`."""
    changed = input_.model_copy(update={"name": f"{input_.name}, none", "tool_choice": "none"})
    return Case(changed, Topic.FORBIDDEN, Expected(calls_allowed=False), essential=_is_essential(known))


def _is_essential(known: MeaningCase) -> bool:
    return bool(known.calls) and (known.chunks or known.reasoning is not None)


def unforced(name: str) -> str:
    """Returns the name of a case in the group `forced` without the suffix that names the constraint."""
    return name.rpartition(", ")[0]


def _barred(family: Family, inputs: list[CaseInput], meanings: Meanings) -> Iterator[CaseInput]:
    """Answers that a forced call rules out: a text, and a call to another function."""
    barred = {
        "call": ("get_time", "another function, named", Meaning.of(calls=(ToolCall("get_weather", {}),))),
        "text": ("required", "text, required", Meaning.of("Hello there.")),
    }
    tools = meanings.tools_offered(["get_time", "get_weather"])
    for input_ in inputs:
        if input_.name in barred and family.form and family.tool_parser:
            choice, name, meaning = barred[input_.name]
            text = family.form.render_constrained(meaning)
            yield CaseInput(name=name, text=text, tools=tools, tool_choice=choice)


def _strict_input(family: Family, input_: CaseInput, meaning: Meaning) -> CaseInput:
    """Makes the tools strict, so that a grammar restricts the arguments of a call to the schema."""
    changed = {
        "name": f"{input_.name}, strict",
        "tools": tuple({**tool, "function": {**tool["function"], "strict": True}} for tool in input_.tools),
        "tool_choice": "auto",
        "alternatives": tuple(family.form.render_near(meaning)) if family.form else (),
    }
    return input_.model_copy(update=changed)


def _called_and_another(meaning: Meaning) -> list[str]:
    """The names of the called functions and of `get_time`, which need not be called."""
    return sorted({"get_time", *(call.name for call in meaning.calls)})


def _tool_choices(case: MeaningCase) -> list[tuple[Topic, str]]:
    (name,) = case.calls[0]
    return [(Topic.REQUIRED, "required"), *([(Topic.NAMED, name)] if len(case.calls) == 1 else [])]


def _forced_input(
    family: Family, input_: CaseInput, meaning: Meaning, topic: Topic, choice: str
) -> CaseInput:
    texts = [render(family.dialect, meaning, constrained=True)]
    if family.form:
        texts = family.form.render_forced(meaning, named=topic is Topic.NAMED)
    changed = {
        "name": f"{input_.name}, {topic}",
        "text": texts[0],
        "tool_choice": choice,
        "alternatives": tuple(texts[1:]),
    }
    return input_.model_copy(update=changed)


def _load(family: Family, meanings: Meanings) -> CaseSet:
    inputs, _ = renderable(family, meanings)
    return CaseSet(
        family, "load", tuple(Case(input_, Topic.LOAD, Expected()) for input_ in inputs[:LOAD_CASES])
    )


def _chunks(family: Family, meanings: Meanings) -> CaseSet:
    divided = {case.name for case in meanings.cases if case.chunks}
    inputs, left_out = renderable(family, meanings)
    inputs = [input_ for input_ in inputs if input_.name in divided]
    cases = [Case(input_, Topic.SEGMENTATION, Expected()) for input_ in inputs]
    tokens = marker_tokens(family)
    for input_ in inputs:
        if input_.name in _SPELLED and any(token in input_.text for token in tokens):
            cases.append(_spelled(input_))
    marker_cases, _ = _markers_in_strings(family, meanings)
    cases += [Case(case.input, case.topic, Expected()) for case in marker_cases[:1]]
    return CaseSet(
        family, "chunks", tuple(cases), {name: reason for name, reason in left_out.items() if name in divided}
    )


def _spelled(input_: CaseInput) -> Case:
    """The case with markers encoded as ordinary tokens, as a tokenizer without special tokens does."""
    name = f"{input_.name}, markers spelled"
    changed = {"name": name, "markers_spelled": True, "deliveries": _SPELLED_DELIVERIES}
    return Case(input_.model_copy(update=changed), Topic.MARKERS_SPELLED, Expected())


def _malformed(family: Family, meanings: Meanings) -> CaseSet:
    from vllm_harness._regression.cases.malformed import malformed_texts

    cases = []
    for malformed in malformed_texts(family):
        input_ = CaseInput(
            name=malformed.name,
            text=malformed.text,
            tools=meanings.tools_offered(),
            deliveries=_TRUNCATED_DELIVERIES if malformed.truncated else (),
            truncated=malformed.truncated,
        )
        topic = Topic.TRUNCATED if malformed.truncated else Topic.MALFORMED
        expected = Expected(functions=malformed.functions, words=malformed.words, values=malformed.values)
        cases.append(Case(input_, topic, expected))
    return CaseSet(family, "malformed", tuple(cases))


def _marker_variants(family: Family, meanings: Meanings) -> CaseSet:
    """Texts that partly resemble a family's format; some also with every marker in ordinary tokens."""
    from vllm_harness._regression.cases.marker_variants import marker_variants

    cases, left_out = [], {}
    tools = meanings.tools_offered() if family.tool_parser else ()
    for variant in marker_variants(family):
        try:
            text = render(family.dialect, variant.meaning)
        except DialectError as error:
            left_out[variant.name] = error.message
            continue
        input_ = CaseInput(name=variant.name, text=text, tools=tools)
        case = _expecting(family, input_, Topic.LOOK_ALIKE, variant.meaning)
        cases.append(replace(case, essential=variant.essential))
        if variant.spelled and any(token in text for token in marker_tokens(family)):
            cases.append(_spelled(case.input))
    return CaseSet(family, "look-alikes", tuple(cases), left_out)


def _properties(family: Family, generation: GenerationPlan) -> CaseSet:
    from vllm_harness._regression.cases.properties import generate  # Hypothesis is slow to import

    meanings = generate(family, generation.budget, generation.seed)
    cases = (generated_case(family, meaning, f"property {number}") for number, meaning in enumerate(meanings))
    return CaseSet(family, "properties", tuple(cases))


def generated_case(
    family: Family, generated: GeneratedMeaning, name: str, chosen: tuple[Delivery, ...] = ()
) -> Case:
    """Returns the case for a generated meaning, in the chosen deliveries or, if empty, the group's."""
    return _expecting(family, generated.case_input(name, chosen), Topic.PROPERTY, generated.meaning)


def _cost_cases(family: Family, meanings: Meanings) -> CaseSet:
    cases: CaseSet = load(GROWING_CASES, "the group cost")(family, meanings)
    return cases


_MAKERS: dict[Group, Callable[[Family, Meanings], CaseSet]] = {
    "canonical": _canonical,
    "forced": _forced,
    "chunks": _chunks,
    "malformed": _malformed,
    "look-alikes": _marker_variants,
    "load": _load,
    "cost": _cost_cases,
}
