"""Compares actual answers with expected ones; the functions are pure and return mismatches.

vLLM may drop white space around reasoning and text; arguments must have the same JSON value.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from vllm_harness._extensions import CURVE_MISMATCHES, load
from vllm_harness._regression.cases.case import Case
from vllm_harness._regression.engines.answer import CaseAnswer, CaseCall
from vllm_harness._regression.results.mismatches import How, Mismatch, MismatchCode
from vllm_harness._scripted.meaning import Meaning

LONG_STRING, FEWEST_CHUNKS = 150, 5
"""A call with a string of at least `LONG_STRING` characters should arrive in `FEWEST_CHUNKS` or more."""
MARKER_TOKENS = 2
"""The largest accepted difference in reasoning tokens: the usage may include the markers."""
Mismatches = tuple[Mismatch, ...]
ExpectedCall = tuple[str | None, Any]
"""A call's name and arguments; arguments that are not valid JSON are kept as text."""
_TEXT_CODES = (
    MismatchCode.TEXT_LOST,
    MismatchCode.TEXT_UNEXPECTED,
    MismatchCode.TEXT_CUT,
    MismatchCode.TEXT_DIFFERS,
)
_OF_CALLS = (MismatchCode.FUNCTION_DIFFERS, MismatchCode.ARGUMENTS_DIFFER)
_REASONING_CODES = (
    MismatchCode.REASONING_LOST,
    MismatchCode.REASONING_UNEXPECTED,
    MismatchCode.REASONING_CUT,
    MismatchCode.REASONING_DIFFERS,
)


def judge(case: Case, answers: Sequence[CaseAnswer]) -> Iterator[tuple[CaseAnswer, Mismatches]]:
    """Yields each answer to a case with its mismatches.

    If the case has no expected meaning, the answers are compared with the first comparable answer, which is
    not streamed.
    """
    if case.input.grown:
        yield from ((answer, cost_mismatches(answer)) for answer in answers)
    elif case.expected.refused:
        yield from ((answer, unless_refused(answer)) for answer in answers)
    elif case.expected.meaning is not None:
        for answer in answers:
            ids = call_id_mismatches(case.input.call_ids, answer)
            yield answer, (*meaning_mismatches(case.expected.meaning, answer), *ids)
    else:
        yield from _judge_together(case, answers)


def _judge_together(case: Case, answers: Sequence[CaseAnswer]) -> Iterator[tuple[CaseAnswer, Mismatches]]:
    firsts: dict[object, CaseAnswer] = {}
    for answer in answers:
        if answer.is_refused:  # it is not a failure if the grammar keeps the model from generating the text
            yield answer, ()
            continue
        first = firsts.setdefault(_compared_within(case, answer), answer)
        rules = _rule_mismatches(case, answer)
        if first is answer:
            yield answer, (*_first_mismatches(case, answer), *rules)
        else:
            alone = delivery_mismatches(first, first) if _is_under_load(answer) else ()
            differing = delivery_mismatches(first, answer)
            yield answer, (*(mismatch for mismatch in differing if mismatch not in alone), *rules)


def expected_of(case: Case, answers: Sequence[CaseAnswer], answer: CaseAnswer) -> dict[str, object]:
    """Returns what should have come instead of an answer: the content of a message, or rules."""
    expected, key = case.expected, _compared_within(case, answer)
    if (meant := expected.meaning) is not None:
        calls = ((call.name, json.dumps(call.arguments, ensure_ascii=False)) for call in meant.calls)
        return message_of(meant.reasoning, meant.text, calls)
    alike = (each for each in answers if not each.is_refused and _compared_within(case, each) == key)
    first = next(alike, answer)
    if not (expected.refused or first is answer or first.error):
        return message_of(
            first.reasoning, first.content, [(each.name, each.arguments) for each in first.calls]
        )
    rules: dict[str, object] = {"calls": "none"} if not expected.calls_allowed else {}
    for name in ("functions", "words", "values"):
        rules |= {name: sorted(some)} if (some := getattr(expected, name)) else {}
    return rules or {"answer": "refused by the grammar" if expected.refused else "not empty, and no error"}


def message_of(reasoning: str | None, content: str | None, calls: Iterable[Any]) -> dict[str, object]:
    """Returns the content of a message as examples show it, without empty texts."""
    texts = {name: text for name, text in (("reasoning", reasoning), ("content", content)) if text}
    return {**texts, "calls": [list(call) for call in calls]}


def _first_mismatches(case: Case, answer: CaseAnswer) -> Mismatches:
    """Mismatches of the answer that others are compared with; truncated text may give an empty answer."""
    may_be_empty = case.input.truncated or _is_under_load(answer)
    if may_be_empty and answer.error is None:
        return ()
    return (*loss_mismatches(answer), *word_mismatches(case.expected.words, answer))


def _rule_mismatches(case: Case, answer: CaseAnswer) -> Mismatches:
    expected = case.expected
    return (
        *function_mismatches(expected.functions, answer),
        *value_mismatches(expected.values, answer),
        *(() if expected.calls_allowed else forbidden_call_mismatches(answer)),
    )


def _is_under_load(answer: CaseAnswer) -> bool:
    return answer.delivery is not None and answer.delivery.load is not None


def _compared_within(case: Case, answer: CaseAnswer) -> object:
    """Returns a key; an answer is compared with the first answer that has the same key."""
    if answer.delivery is not None and answer.delivery.load is not None:
        return answer.delivery.api, answer.delivery.shape
    return answer.at if case.input.truncated else None


def meaning_mismatches(meaning: Meaning, answer: CaseAnswer) -> Mismatches:
    """Returns how an answer differs from the expected meaning."""
    if answer.error is not None:
        return (_error(answer),)
    calls: list[ExpectedCall] = [(call.name, call.arguments) for call in meaning.calls]
    mismatches = _message_mismatches(meaning.reasoning, meaning.text, calls, answer)
    return (*mismatches, *_pace_mismatches(answer))


def delivery_mismatches(first: CaseAnswer, other: CaseAnswer) -> Mismatches:
    """Returns how an answer differs from the answer in the first delivery."""
    if other.error is not None:
        return (_error(other),)
    if first.error is not None:
        return ()  # the first answer already reports the error
    calls: list[ExpectedCall] = [(call.name, _read(call.arguments)) for call in first.calls]
    return _message_mismatches(first.reasoning or "", first.content or "", calls, other)


def loss_mismatches(answer: CaseAnswer) -> Mismatches:
    """Returns mismatches that need no expected meaning: an error, an empty answer, or a wrong usage."""
    if answer.error is not None:
        return (_error(answer),)
    if (answer.reasoning or "").strip() or (answer.content or "").strip() or answer.calls:
        return tuple(_usage_mismatches(answer))
    return (Mismatch(MismatchCode.ANSWER_EMPTY),)


def function_mismatches(functions: Collection[str], answer: CaseAnswer) -> Mismatches:
    """Checks that calls name only these functions; an empty collection allows any function."""
    if functions and {call.name for call in answer.calls} - set(functions):
        return (Mismatch(MismatchCode.FUNCTION_DIFFERS),)
    return ()


def word_mismatches(words: Collection[str], answer: CaseAnswer) -> Mismatches:
    """Checks that an answer without calls contains all of these words."""
    if answer.error is not None or answer.calls:
        return ()
    message = f"{answer.reasoning or ''}{answer.content or ''}"
    return () if all(word in message for word in words) else (Mismatch(MismatchCode.WORDS_LOST),)


def value_mismatches(values: Collection[str], answer: CaseAnswer) -> Mismatches:
    """Checks that an answer with calls has all these values in its arguments, text or reasoning."""
    arguments = "".join(call.arguments for call in answer.calls)
    message = f"{answer.reasoning or ''}{answer.content or ''}{arguments}"
    if answer.calls and not all(value in message for value in values):
        return (Mismatch(MismatchCode.VALUES_LOST),)
    return ()


def forbidden_call_mismatches(answer: CaseAnswer) -> Mismatches:
    """Checks that an answer has no calls, which its request forbids."""
    return (Mismatch(MismatchCode.CALL_FORBIDDEN),) if answer.calls else ()


def call_id_mismatches(ids: Sequence[str], answer: CaseAnswer) -> Mismatches:
    """Checks that call ids are unique and equal the expected ids, if any."""
    actual = [call.id for call in answer.calls]
    given = [call_id for call_id in actual if call_id is not None]
    mismatches = []
    if len(set(given)) < len(given):
        mismatches.append(Mismatch(MismatchCode.CALL_ID_REPEATED))
    if ids and len(ids) == len(actual) and list(ids) != actual:
        mismatches.append(Mismatch(MismatchCode.CALL_ID_DIFFERS))
    return tuple(mismatches)


def cost_mismatches(answer: CaseAnswer) -> Mismatches:
    """Returns mismatches in the cost of a growing answer; none if the grammar refuses the text."""
    if answer.is_refused:
        return ()
    if answer.error is not None:
        return (_error(answer),)
    if answer.curve is None:
        return ()
    mismatches: Mismatches = load(CURVE_MISMATCHES, "the cost of an answer")(answer.curve)
    return mismatches


def unless_refused(answer: CaseAnswer) -> Mismatches:
    """Returns a mismatch unless the request's grammar refused the text, as it should."""
    if answer.error is None:
        return (Mismatch(MismatchCode.GRAMMAR_NOT_ENFORCED),)
    return () if answer.is_refused else (_error(answer),)


def _error(answer: CaseAnswer) -> Mismatch:
    assert answer.error is not None
    return Mismatch(MismatchCode.ERROR, answer.error.code)


def _message_mismatches(
    reasoning: str, text: str, calls: Sequence[ExpectedCall], answer: CaseAnswer
) -> Mismatches:
    mismatches = [
        *_text_mismatches(_REASONING_CODES, reasoning, answer.reasoning or ""),
        *_text_mismatches(_TEXT_CODES, text, answer.content or ""),
        *_call_mismatches(calls, answer.calls),
        *_usage_mismatches(answer),
    ]
    return tuple(dict.fromkeys(mismatches))


def _text_mismatches(codes: Sequence[MismatchCode], expected: str, actual: str) -> list[Mismatch]:
    lost, unexpected, truncated, differs = codes
    expected, actual = expected.strip(), actual.strip()
    if actual == expected:
        return []
    if not actual:
        return [Mismatch(lost)]
    if not expected:
        return [Mismatch(unexpected)]
    return [Mismatch(truncated) if actual in expected else Mismatch(differs, how(expected, actual))]


def how(expected: str, actual: str) -> str:
    """Returns how a text differs, as a `How`; empty if no `How` describes the difference."""
    before, after = common_start(expected, actual), common_start(expected[::-1], actual[::-1])
    if len(actual) < len(expected) and before + after >= len(actual):
        return How.LOST
    if len(actual) > len(expected) and before + after >= len(expected):
        more = actual[before : before + len(actual) - len(expected)]
        return How.REPEATED if more in expected else How.LEAKED
    if expected in actual:
        return How.LEAKED
    return How.REORDERED if sorted(actual) == sorted(expected) else ""


def common_start(left: str, right: str) -> int:
    """Returns how many characters two texts have in common at their start."""
    pairs = enumerate(zip(left, right, strict=False))
    return next((place for place, (one, other) in pairs if one != other), min(len(left), len(right)))


def _usage_mismatches(answer: CaseAnswer) -> list[Mismatch]:
    """Checks that the usage counts the reasoning tokens, with or without the markers."""
    counted, actual = answer.counted_reasoning, answer.reasoning_tokens
    if counted is None:
        return []
    if counted == 0 and (answer.reasoning or "").strip():
        return [Mismatch(MismatchCode.REASONING_TOKENS_NOT_COUNTED)]
    if actual is None or abs(counted - actual) <= MARKER_TOKENS:
        return []
    return [Mismatch(MismatchCode.REASONING_TOKENS_MISCOUNTED)]


def _pace_mismatches(answer: CaseAnswer) -> list[Mismatch]:
    """Checks that a long string that was generated token by token did not arrive in too few chunks."""
    if answer.delivery is None or not answer.delivery.of_single_tokens:
        return []
    held_back = any(
        call.chunks is not None and call.chunks < FEWEST_CHUNKS and _is_long(call) for call in answer.calls
    )
    return [Mismatch(MismatchCode.ARGUMENTS_NOT_STREAMED)] if held_back else []


def _is_long(call: CaseCall) -> bool:
    arguments = _read(call.arguments)
    values = arguments.values() if isinstance(arguments, dict) else ()
    return any(isinstance(value, str) and len(value) >= LONG_STRING for value in values)


def _call_mismatches(expected: Sequence[ExpectedCall], actual: Sequence[CaseCall]) -> list[Mismatch]:
    mismatches = []
    if len(actual) < len(expected):
        mismatches.append(Mismatch(MismatchCode.CALL_LOST))
    elif len(actual) > len(expected):
        repeated = expected and all(any(_is_call(known, call) for known in expected) for call in actual)
        mismatches.append(Mismatch(MismatchCode.CALL_EXTRA, How.REPEATED if repeated else ""))
    numbered = all(call.index in (None, position) for position, call in enumerate(actual))
    if len(actual) >= len(expected) and not numbered:
        mismatches.append(Mismatch(MismatchCode.CALL_INDEX_DIFFERS))
    for expected_call, call in zip(expected, actual, strict=False):
        mismatches += _one_call_mismatches(expected_call, call)
    if not _is_reordered(expected, actual):
        return mismatches
    return [
        replace(mismatch, detail=How.REORDERED) if mismatch.code in _OF_CALLS else mismatch
        for mismatch in mismatches
    ]


def _is_reordered(expected: Sequence[ExpectedCall], actual: Sequence[CaseCall]) -> bool:
    """Whether the actual calls are the expected calls in another order."""
    remaining = list(actual)
    for expected_call in expected:
        same = next((call for call in remaining if _is_call(expected_call, call)), None)
        if same is None:
            return False
        remaining.remove(same)
    in_order = all(_is_call(*pair) for pair in zip(expected, actual, strict=False))
    return not remaining and not in_order


def _is_call(expected: ExpectedCall, actual: CaseCall) -> bool:
    return not _one_call_mismatches(expected, actual)


def _one_call_mismatches(expected: ExpectedCall, call: CaseCall) -> list[Mismatch]:
    name, arguments = expected
    if call.name is None and name is not None:
        return [Mismatch(MismatchCode.CALL_UNNAMED)]
    if call.name != name:
        return [Mismatch(MismatchCode.FUNCTION_DIFFERS)]
    actual = _read(call.arguments)
    if isinstance(actual, str) and not isinstance(arguments, str):
        return [Mismatch(MismatchCode.ARGUMENTS_NOT_JSON)]
    if not isinstance(actual, dict) and isinstance(arguments, dict):
        return [Mismatch(MismatchCode.ARGUMENTS_NOT_OBJECT)]
    if _is_same(actual, arguments):
        return []
    texts = (json.dumps(value, ensure_ascii=False, sort_keys=True) for value in (arguments, actual))
    return [Mismatch(MismatchCode.ARGUMENTS_DIFFER, how(*texts))]


def _read(arguments: str) -> Any:
    """Returns the arguments parsed as JSON; unchanged if they are not valid JSON, or are a JSON string."""
    try:
        value = json.loads(arguments)
    except ValueError:
        return arguments
    return arguments if isinstance(value, str) else value


def _is_same(left: object, right: object) -> bool:
    """Whether two JSON values are equal: 1 and true differ, 1 and 1.0 do not."""
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(_is_same(left[key], right[key]) for key in left)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(_is_same, left, right))
    return left == right
