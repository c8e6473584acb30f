"""Parses texts with vLLM's parser objects, without a server. Runs in the Python that has vLLM installed.

Each line of standard input is a JSON object `{"families": [...]}`: families with their parsers, tokenizer
folder, request fields and cases (see `vllm_harness._regression.engines.in_process`). The output is one JSON
object per answer, and an empty line after the answers to each line of input. The script calls vLLM's
parsers as vLLM's chat endpoint does, in vLLM 0.24 to 0.33.
"""

import inspect
import json
import os
import random
import signal
import sys
from collections.abc import Callable, Iterator
from functools import cached_property, lru_cache
from itertools import accumulate, pairwise
from traceback import extract_tb
from typing import Any

import xgrammar
from tokenizers.decoders import DecodeStream
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.parser import ParserManager
from vllm.reasoning import ReasoningParserManager
from vllm.tokenizers import get_tokenizer
from vllm.tool_parsers import ToolParserManager

HANG_S, SHORTEST_S = 10, 0.5
_hanging: list[float] = []  # each answer that hangs halves the limit, so that a broken parser ends soon
RANDOM_CUTS = 12
LONGEST_DELTA = 9
HELD = 8
"""The number of characters that vLLM holds back for a stop string of nine characters."""
SHOWN = 40
"""The number of characters to show before and after the position at which a grammar refuses a text."""

Spans = list[tuple[int, int]]
tokenizer_of = lru_cache(2)(get_tokenizer)


def _decoded(tokenizer: Any, ids: list[int], skip_special_tokens: bool) -> list[str]:
    """Returns the text that each token adds."""
    stream = DecodeStream(skip_special_tokens=skip_special_tokens)
    return [stream.step(tokenizer._tokenizer, number) or "" for number in ids]


def _request(family: dict[str, Any], case: dict[str, Any], stream: bool) -> ChatCompletionRequest:
    offered = {"tools": case["tools"]} if case["tools"] else {}
    choice = case["tool_choice"]
    if choice is not None:
        named = {"type": "function", "function": {"name": choice}}
        offered["tool_choice"] = choice if choice in ("none", "auto", "required") else named
    return ChatCompletionRequest(
        model="m",
        messages=[{"role": "user", "content": "Hi."}],
        stream=stream,
        **offered,
        **family["request"],
    )


class _Output:
    """The model's output: its tokens, and whether they include the token that ends the turn."""

    def __init__(self, tokenizer: Any, ids: list[int], ended: bool) -> None:
        self.tokenizer = tokenizer
        self.ids = ids
        self.ended = ended

    def texts(self, request: Any) -> list[str]:
        """Returns the text that each token adds; special tokens add text only if a parser requests it."""
        ids = self.ids[:-1] if self.ended else self.ids
        skipped = request.skip_special_tokens is not False  # vLLM 0.33.0: None if the request does not set it
        return [*_decoded(self.tokenizer, ids, skipped), *([""] if self.ended else [])]


def _whole(parser: Any, request: Any, output: _Output, prompt: list[int]) -> dict[str, Any]:
    if hasattr(parser, "set_prompt_token_ids"):
        parser.set_prompt_token_ids(prompt)
    reasoning, content, calls = parser.parse(
        "".join(output.texts(request)), request, enable_auto_tools=True, model_output_token_ids=output.ids
    )
    answered = [
        {"name": call.name, "arguments": call.arguments, "id": getattr(call, "id", None)}
        for call in calls or ()
    ]
    answer = {"reasoning": reasoning, "content": content, "calls": answered}
    if hasattr(parser, "count_reasoning_tokens"):
        answer["counted_reasoning"] = parser.count_reasoning_tokens(output.ids)
        answer["reasoning_tokens"] = len(output.tokenizer.encode(reasoning or "", add_special_tokens=False))
    return answer


def _streamed(
    parser: Any, request: Any, output: _Output, prompt: list[int], spans: Spans, held: int, steps: list[Any]
) -> dict[str, Any]:
    texts = _deltas(output.texts(request), spans, held)
    answer: dict[str, Any] = {"reasoning": "", "content": "", "calls": {}}
    for number, (start, end) in enumerate(spans):
        steps.append({"text": texts[number]})
        delta = parser.parse_delta(
            delta_text=texts[number],
            delta_token_ids=output.ids[start:end],
            request=request,
            prompt_token_ids=prompt,
            finished=number == len(spans) - 1,
        )
        if delta is not None:
            steps[-1] |= _add(answer, delta)
    return {**answer, "calls": [call for _, call in sorted(answer["calls"].items())]}


def _deltas(texts: list[str], spans: Spans, held: int) -> list[str]:
    """Returns the text of each chunk; `held` characters are delayed until the last, as for a stop string."""
    text = "".join(texts)
    lengths = list(accumulate(map(len, texts), initial=0))
    ends = [max(0, lengths[end] - held) for _, end in spans]
    return [text[start:end] for start, end in pairwise([0, *ends[:-1], len(text)])]


def _divisions(delivery: dict[str, Any], output: _Output) -> Iterator[Spans]:
    """Yields the divisions of the tokens into chunks that a delivery represents."""
    length = len(output.ids)
    last = length - 1 if output.ended else length
    ending = [(last, length)] if output.ended else []
    if delivery["shape"] == "every_cut":
        for place in range(1, last):
            yield [(0, place), (place, last), *ending]
    elif delivery["shape"] == "cut_at":
        yield [*pairwise([0, *(cut for cut in delivery["cuts"] if cut < last), last]), *ending]
    elif delivery["shape"] == "random_cuts":
        for seed in range(RANDOM_CUTS):
            sizes = random.Random(seed)
            ends = accumulate(sizes.randint(1, LONGEST_DELTA) for _ in range(length))
            edges = [0, *(end for end in ends if end < last), last]
            yield [*pairwise(edges), *ending]
    else:
        size = {"tokens": delivery["tokens"], "held_back": 1, "all": length}[delivery["shape"]]
        stop = length if delivery["with_end"] else last
        spans = [(start, min(start + size, stop)) for start in range(0, stop, size)]
        yield spans if delivery["with_end"] else spans + ending


def _add(answer: dict[str, Any], delta: Any) -> dict[str, Any]:
    answer["reasoning"] += delta.reasoning or ""
    answer["content"] += delta.content or ""
    calls = []
    for piece in delta.tool_calls or ():
        new = {"name": None, "arguments": "", "id": None, "chunks": 0, "index": piece.index}
        call = answer["calls"].setdefault(piece.index, new)
        call["id"] = call["id"] or piece.id
        function = piece.function
        if function is not None:
            call["name"] = call["name"] or function.name
            call["arguments"] += function.arguments or ""
            call["chunks"] += bool(function.arguments)
            calls.append({"index": piece.index, "name": function.name, "arguments": function.arguments or ""})
    return {"reasoning": delta.reasoning or "", "content": delta.content or "", "calls": calls}


def _grammar(params: Any) -> xgrammar.Grammar | None:
    """Returns the grammar for a request's structural tag or JSON schema; None if it has neither."""
    if params.structural_tag is not None:
        return xgrammar.Grammar.from_structural_tag(params.structural_tag)
    if params.json is not None:
        schema = params.json if isinstance(params.json, str) else json.dumps(params.json)
        return xgrammar.Grammar.from_json_schema(schema)
    return None


def _hangs(_signal: int, _frame: Any) -> None:
    _hanging.append(HANG_S)
    raise TimeoutError("no answer within the limit of CPU time")


def _error(error: Exception) -> dict[str, str]:
    frames = [frame for frame in extract_tb(error.__traceback__) if "/vllm/" in frame.filename]
    place = f"{frames[-1].filename.rpartition('/vllm/')[2]}:{frames[-1].lineno}" if frames else ""
    return {"code": type(error).__name__, "message": str(error), "place": place}


def _answer(case: dict[str, Any], parse: Callable[..., dict[str, Any]], *arguments: Any) -> dict[str, Any]:
    """Parses a case, and removes random call ids; an exception or a hang becomes the answer's error."""
    signal.setitimer(signal.ITIMER_PROF, max(HANG_S / 2 ** len(_hanging), SHORTEST_S))
    try:
        answer = parse(*arguments)
    except Exception as error:
        return {"error": _error(error)}
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    if not case["call_ids"]:
        _leave_out(answer, "id")
    return answer


def _leave_out(answer: dict[str, Any], field: str) -> None:
    for call in answer.get("calls", ()):
        call[field] = None


class _Refused(Exception):
    """The request's grammar refuses the text."""


class NotDriven(Exception):
    """This script cannot call vLLM's parsers; the name of the class is the error's code."""


class _Family:
    """The parsers of one family; new parser objects are made for each answer."""

    def __init__(self, number: int, family: dict[str, Any]) -> None:
        if "VH_COVERAGE" in os.environ:
            sys.modules["coverage"].Coverage.current().switch_context(family["name"])
        if family["missing"]:
            raise FileNotFoundError(family["missing"])
        if family["plugin"]:
            ToolParserManager.import_tool_parser(family["plugin"])
        os.environ.update(family["env"])
        if family["harmony"]:
            from vllm.entrypoints.openai.parser.harmony_utils import get_encoding

            get_encoding()  # loads the encoding, as a server does at startup
        self.number = number
        self.family = family
        self.tokenizer = tokenizer_of(family["tokenizer"])
        self.kwargs = family["request"].get("chat_template_kwargs", {})
        self.parser_class = ParserManager.get_parser(
            tool_parser_name=family["tool_parser"],
            reasoning_parser_name=family["reasoning_parser"],
            enable_auto_tools=family["tool_parser"] is not None,
            model_name="m",
            **({"is_harmony": True} if family["harmony"] else {}),
        )
        try:
            called = inspect.signature(self.parser_class.parse)
            called.bind(None, "", None, enable_auto_tools=True, model_output_token_ids=[])
        except (AttributeError, TypeError) as error:
            raise NotDriven(str(error)) from error

    @cached_property
    def _compiler(self) -> xgrammar.GrammarCompiler:
        return xgrammar.GrammarCompiler(xgrammar.TokenizerInfo.from_huggingface(self.tokenizer))

    def answers(self, case: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """Yields the answers to one case in all its deliveries."""
        prompt = self._prompt(case)
        place = {"family": self.family["name"], "case_set": self.number, "case": case["name"]}
        try:
            case, alternative = self._accepted(case, prompt)
        except Exception as error:
            code = "grammar_refused" if isinstance(error, _Refused) else "grammar_not_made"
            failure = {"code": code, "message": str(error)}
            yield from (
                {**place, "delivery": delivery["code"], "error": failure} for delivery in case["deliveries"]
            )
            return
        for output in self._outputs(case):
            for delivery in case["deliveries"]:
                for at, answer in self._outcomes(case, delivery, output, prompt):
                    at = at if output.ended else len(output.ids)
                    measured = {"delivery": delivery["code"], "at": at, "tokens": len(output.ids)}
                    yield {**place, **alternative, **measured, **answer}

    def _accepted(self, case: dict[str, Any], prompt: list[int]) -> tuple[dict[str, Any], dict[str, str]]:
        """Returns the case with the first text that the grammar accepts; also the text if it is another."""
        constrained = case["tool_choice"] is not None and self._new(case, stream=False)[1].structured_outputs
        grammar = _grammar(constrained) if constrained else None
        if grammar is None:
            return case, {}
        compiled = self._compiler.compile_grammar(grammar)
        refusals = []
        for text in dict.fromkeys((case["text"], *case["alternatives"])):
            refusal = self._refusal(compiled, text, prompt)
            if refusal is None:
                if text == case["text"]:
                    return case, {}
                return {**case, "text": text, "pieces": [text]}, {"alternative": text}
            refusals.append(refusal)
        raise _Refused(refusals[0])

    def _refusal(self, compiled: xgrammar.CompiledGrammar, text: str, prompt: list[int]) -> str | None:
        """Describes the position at which a grammar refuses a text; None if the grammar accepts the text."""
        ids = self.tokenizer.encode(text, add_special_tokens=False)
        matcher = xgrammar.GrammarMatcher(compiled)
        for place in range(self._constrained_from(ids, prompt), len(ids)):
            if not matcher.accept_token(ids[place]):
                before, after = (self.tokenizer.decode(part) for part in (ids[:place], ids[place:]))
                return f"{after[:SHOWN]!r} after {before[-SHOWN:]!r}"
        return None

    def _constrained_from(self, ids: list[int], prompt: list[int]) -> int:
        """Returns the index of the first token that the grammar constrains: the first after the reasoning."""
        if self.family["reasoning_parser"] is None:
            return 0
        kind = ReasoningParserManager.get_reasoning_parser(self.family["reasoning_parser"])
        reasoner = kind(self.tokenizer, chat_template_kwargs=self.kwargs)
        if reasoner.is_reasoning_end(prompt):
            return 0
        if getattr(reasoner, "reasoning_end_token_ids", None) and hasattr(reasoner, "find_reasoning_end"):
            end = reasoner.find_reasoning_end(ids)
            return int(end.offset) if end.implicit else int(end.offset) + 1
        for place, number in enumerate(ids):
            if reasoner.is_reasoning_end_streaming([*prompt, *ids[: place + 1]], [number]):
                return place + 1
        return len(ids)

    def _prompt(self, case: dict[str, Any]) -> list[int]:
        if self.family["harmony"]:  # Harmony's parser reads nothing else of the prompt
            return list(self.tokenizer.encode("<|start|>assistant", add_special_tokens=False))
        prompt: list[int] = self.tokenizer.apply_chat_template(
            [{"role": "user", "content": case["user_message"] or "Hi."}],
            tools=case["tools"] or None,
            add_generation_prompt=True,
            tokenize=True,
            return_dict=False,
            **self.kwargs,
        )
        return prompt

    def _outputs(self, case: dict[str, Any]) -> list[_Output]:
        ids = [
            number
            for piece in case["pieces"]
            for number in self.tokenizer.encode(piece, add_special_tokens=False)
        ]
        if case["markers_spelled"]:
            ids = [*self._spelled(ids[:-1]), ids[-1]]
        if not case["truncated"]:
            return [_Output(self.tokenizer, ids, ended=True)]
        return [_Output(self.tokenizer, ids[:length], ended=False) for length in range(1, len(ids))]

    def _spelled(self, ids: list[int]) -> list[int]:
        """Replaces each added token with ordinary tokens for its text."""
        added = {number: text for text, number in self.tokenizer.get_added_vocab().items()}
        model = self.tokenizer._tokenizer.model
        pre = self.tokenizer._tokenizer.pre_tokenizer
        spelled: list[int] = []
        for number in ids:
            if number in added:
                text = added[number]
                pieces = [piece for piece, _ in pre.pre_tokenize_str(text)] if pre else [text]
                spelled += [token.id for piece in pieces for token in model.tokenize(piece)]
            else:
                spelled.append(number)
        return spelled

    def _outcomes(
        self, case: dict[str, Any], delivery: dict[str, Any], output: _Output, prompt: list[int]
    ) -> Iterator[tuple[int | None, dict[str, Any]]]:
        if delivery["shape"] == "whole":
            yield None, _answer(case, _whole, *self._new(case, stream=False), output, prompt)
            return
        several = delivery["shape"] in ("every_cut", "random_cuts")
        held = HELD if delivery["shape"] == "held_back" else 0
        seen = set()
        for number, spans in enumerate(_divisions(delivery, output), start=1):
            steps: list[Any] = []
            parsers = self._new(case, stream=True)
            answer = _answer(case, _streamed, *parsers, output, prompt, spans, held, steps)
            if several:
                _leave_out(answer, "chunks")
            serialized = json.dumps(answer)
            if serialized not in seen:
                seen.add(serialized)
                traced = {"steps": steps} if self.family.get("traced") else {}
                yield number if several else None, {**answer, **traced}

    def _new(self, case: dict[str, Any], stream: bool) -> tuple[Any, Any]:
        request = _request(self.family, case, stream)
        parser = self.parser_class(self.tokenizer, request.tools, chat_template_kwargs=self.kwargs)
        return parser, parser.adjust_request(request)


def main() -> None:
    """Reads families and writes answers; redirects everything that vLLM prints to standard error."""
    output = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    signal.signal(signal.SIGPROF, _hangs)
    with output:
        for line in sys.stdin:
            for number, family in enumerate(json.loads(line)["families"]):
                for answer in _answers(number, family):
                    print(json.dumps(answer), file=output)
                output.flush()
            print(file=output, flush=True)


def _answers(number: int, family: dict[str, Any]) -> Iterator[dict[str, Any]]:
    try:
        parsers = _Family(number, family)
        for case in family["cases"]:
            yield from parsers.answers(case)
    except Exception as error:
        yield {"family": family["name"], "case_set": number, "error": _error(error)}


if __name__ == "__main__":
    main()
