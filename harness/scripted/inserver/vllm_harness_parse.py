"""Drives vLLM's parser objects over given texts, without a server. Run by a server's interpreter.

Standard input has one JSON object: `{"families": [...]}`, each with parsers, tokenizer folder, request fields
and cases (`harness.scripted.in_process`). Standard output gets one JSON object a result. What this calls
is what vLLM's chat endpoint calls, in its order, for vLLM 0.24 to 0.33.
"""

import json
import os
import sys
from collections.abc import Iterator
from typing import Any

from tokenizers.decoders import DecodeStream
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.parser import ParserManager
from vllm.tokenizers import get_tokenizer


def _decoded(tokenizer: Any, ids: list[int], skip_special_tokens: bool) -> list[str]:
    """What each token adds to the text."""
    stream = DecodeStream(skip_special_tokens=skip_special_tokens)
    return [stream.step(tokenizer._tokenizer, number) or "" for number in ids]


def _request(family: dict[str, Any], case: dict[str, Any], stream: bool) -> ChatCompletionRequest:
    offered = {"tools": case["tools"]} if case["tools"] else {}
    return ChatCompletionRequest(
        model="m",
        messages=[{"role": "user", "content": "Hi."}],
        stream=stream,
        **offered,
        **{**family["request"], **case["request"]},
    )


def _new(parser_class: Any, tokenizer: Any, request: Any, kwargs: dict[str, Any]) -> tuple[Any, Any]:
    parser = parser_class(tokenizer, request.tools, chat_template_kwargs=kwargs)
    return parser, parser.adjust_request(request)


def _whole(parser: Any, request: Any, tokenizer: Any, ids: list[int], prompt: list[int]) -> dict[str, Any]:
    text = "".join(_decoded(tokenizer, ids[:-1], request.skip_special_tokens))
    if hasattr(parser, "set_prompt_token_ids"):
        parser.set_prompt_token_ids(prompt)
    reasoning, content, calls = parser.parse(
        text, request, enable_auto_tools=True, model_output_token_ids=ids
    )
    found = [{"name": call.name, "arguments": call.arguments} for call in calls or ()]
    return {"reasoning": reasoning, "content": content, "calls": found}


def _streamed(
    parser: Any, request: Any, tokenizer: Any, ids: list[int], prompt: list[int], size: int, bundled: bool
) -> dict[str, Any]:
    texts = [*_decoded(tokenizer, ids[:-1], request.skip_special_tokens), ""]
    size = size or len(ids)
    last = len(ids) if bundled else len(ids) - 1
    starts = list(range(0, last, size))
    spans = [(start, min(start + size, last)) for start in starts]
    if not bundled:
        spans.append((len(ids) - 1, len(ids)))
    answer: dict[str, Any] = {"reasoning": "", "content": "", "calls": {}}
    for number, (start, end) in enumerate(spans):
        delta = parser.parse_delta(
            delta_text="".join(texts[start:end]),
            delta_token_ids=ids[start:end],
            request=request,
            prompt_token_ids=prompt,
            finished=number == len(spans) - 1,
        )
        if delta is not None:
            _add(answer, delta)
    return {**answer, "calls": [call for _, call in sorted(answer["calls"].items())]}


def _add(answer: dict[str, Any], delta: Any) -> None:
    answer["reasoning"] += delta.reasoning or ""
    answer["content"] += delta.content or ""
    for piece in delta.tool_calls or ():
        call = answer["calls"].setdefault(piece.index, {"name": None, "arguments": ""})
        function = piece.function
        if function is not None:
            call["name"] = call["name"] or function.name
            call["arguments"] += function.arguments or ""


def _results(family: dict[str, Any]) -> Iterator[dict[str, Any]]:
    tokenizer = get_tokenizer(family["tokenizer"])
    kwargs = family["request"].get("chat_template_kwargs", {})
    parser_class = ParserManager.get_parser(
        tool_parser_name=family["tool_parser"],
        reasoning_parser_name=family["reasoning_parser"],
        enable_auto_tools=family["tool_parser"] is not None,
        model_name="m",
    )
    for case in family["cases"]:
        ids = tokenizer.encode(case["text"], add_special_tokens=False)
        prompt = tokenizer.apply_chat_template(
            [{"role": "user", "content": "Hi."}],
            tools=case["tools"] or None,
            add_generation_prompt=True,
            tokenize=True,
            return_dict=False,
            **kwargs,
        )
        for way in family["ways"]:
            place = {"family": family["name"], "case": case["name"], "way": way}
            try:
                request = _request(family, case, way != "whole")
                parser, request = _new(parser_class, tokenizer, request, kwargs)
                if way == "whole":
                    found = _whole(parser, request, tokenizer, ids, prompt)
                else:
                    size, _, bundled = way.partition("+")
                    found = _streamed(parser, request, tokenizer, ids, prompt, int(size), bool(bundled))
            except Exception as error:
                found = {"error": f"{type(error).__name__}: {error}"}
            yield {**place, "tokens": len(ids), **found}


def main() -> None:
    """Reads the jobs, writes the results; whatever vLLM prints goes to standard error."""
    answer = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    with answer:
        for family in json.load(sys.stdin)["families"]:
            try:
                for result in _results(family):
                    print(json.dumps(result), file=answer, flush=True)
            except Exception as error:
                refused = {"family": family["name"], "error": f"{type(error).__name__}: {error}"}
                print(json.dumps(refused), file=answer, flush=True)


if __name__ == "__main__":
    main()
