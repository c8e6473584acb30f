import json
import os
import tempfile
import time
from pathlib import Path

from tokenizers.decoders import DecodeStream
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.parser import ParserManager
from vllm.tokenizers import get_tokenizer
from vllm.tool_parsers import ToolParserManager

LIMIT_S = 10.0


def main():
    with tempfile.TemporaryDirectory(prefix="reproduce-") as folder:
        for name, content in FILES.items():
            path = Path(folder) / name
            path.parent.mkdir(exist_ok=True)
            path.write_text(content if isinstance(content, str) else json.dumps(content, ensure_ascii=False))
        if PLUGIN:
            ToolParserManager.import_tool_parser(str(Path(folder) / PLUGIN))
        tokenizer = get_tokenizer(TOKENIZER or str(Path(folder) / "model"))
    parser_class = ParserManager.get_parser(
        tool_parser_name=TOOL_PARSER,
        reasoning_parser_name=REASONING_PARSER,
        enable_auto_tools=TOOL_PARSER is not None,
        model_name="model",
    )
    print(f"the answer, {'token by token' if STREAMED else 'whole'}: {shown(LENGTHS[0])[:200]} ...")
    print("   tokens       CPU s    times the last")
    last = 0.0
    for runs in LENGTHS:
        tokens, seconds = measure(parser_class, tokenizer, "".join(text * count for text, count in runs))
        print(f"{tokens:9,}  {seconds:10.4f}    {f'{seconds / last:6.1f}' if last else ''}", flush=True)
        if seconds > LIMIT_S:
            print(f"it ends here, after more than {LIMIT_S:g} s for one answer")
            break
        last = seconds
    print("\nEXPECTED: " + EXPECTED)
    print("ACTUAL:   " + ACTUAL)


def measure(parser_class, tokenizer, text):
    """How many tokens a text has, and the CPU seconds that the parsers take to read it, the least of two."""
    request = ChatCompletionRequest(
        model="model",
        messages=[{"role": "user", "content": "Hi."}],
        stream=STREAMED,
        **({"tools": TOOLS} if TOOLS else {}),
        **REQUEST,
    )
    kwargs = REQUEST.get("chat_template_kwargs", {})
    prompt = tokenizer.apply_chat_template(
        request.messages,
        tools=TOOLS or None,
        add_generation_prompt=True,
        tokenize=True,
        return_dict=False,
        **kwargs,
    )
    ids = tokenizer.encode(text, add_special_tokens=False)
    taken = []
    for _ in range(2):
        parser = parser_class(tokenizer, request.tools, chat_template_kwargs=kwargs)
        adjusted = parser.adjust_request(request)
        texts = decoded(tokenizer, ids, adjusted.skip_special_tokens is not False)
        started = time.thread_time()
        try:
            (streamed if STREAMED else whole)(parser, adjusted, texts, ids, prompt)
        except Exception as error:
            print(f"{len(ids):9,}  {type(error).__name__}: {error}")
        taken.append(time.thread_time() - started)
        if taken[-1] > 1:
            break
    return len(ids), min(taken)


def decoded(tokenizer, ids, skip_special_tokens):
    """What each token adds to the text; the last ends the turn and adds nothing."""
    stream = DecodeStream(skip_special_tokens=skip_special_tokens)
    return [stream.step(tokenizer._tokenizer, number) or "" for number in ids[:-1]] + [""]


def streamed(parser, request, texts, ids, prompt):
    for number, (text, token) in enumerate(zip(texts, ids, strict=True), start=1):
        parser.parse_delta(
            delta_text=text,
            delta_token_ids=[token],
            request=request,
            prompt_token_ids=prompt,
            finished=number == len(ids),
        )


def whole(parser, request, texts, ids, prompt):
    if hasattr(parser, "set_prompt_token_ids"):
        parser.set_prompt_token_ids(prompt)
    parser.parse("".join(texts), request, enable_auto_tools=True, model_output_token_ids=ids)
    if hasattr(parser, "count_reasoning_tokens"):
        parser.count_reasoning_tokens(ids)


def shown(runs):
    return " ".join(f"{text!r}" if count == 1 else f"{text!r} x {count}" for text, count in runs)


if __name__ == "__main__":
    main()
