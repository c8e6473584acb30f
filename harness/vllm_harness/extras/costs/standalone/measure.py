import json
import os
import tempfile
import time
import tracemalloc
from pathlib import Path

from tokenizers.decoders import DecodeStream
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.parser import ParserManager
from vllm.tokenizers import get_tokenizer
from vllm.tool_parsers import ToolParserManager

LONG_S, LIMIT_S = 0.5, 10.0


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
        **({"is_harmony": True} if HARMONY else {}),
    )
    print(f"the answer, {'token by token' if STREAMED else 'whole'}: {shown(LENGTHS[0])[:200]} ...")
    print("   tokens       CPU s   times the last   memory at most")
    last = 0.0
    for runs in LENGTHS:
        reading = Reading(parser_class, tokenizer, "".join(text * count for text, count in runs))
        seconds = reading.cpu_s()
        times = f"{seconds / last:.1f}" if last else ""
        memory = f"{reading.peak_bytes() / 1e6:.1f} MB" if seconds < LONG_S else ""
        print(f"{len(reading.ids):9,}  {seconds:10.4f}  {times:>15}  {memory:>15}", flush=True)
        if seconds > LIMIT_S:
            print(f"stopped: one answer took more than {LIMIT_S:g} s")
            break
        last = seconds
    print("\nEXPECTED: " + EXPECTED)
    print("ACTUAL:   " + ACTUAL)


class Reading:
    """A text to parse; each run uses new parsers."""

    def __init__(self, parser_class, tokenizer, text):
        self.parser_class, self.tokenizer = parser_class, tokenizer
        self.ids = tokenizer.encode(text, add_special_tokens=False)
        self.kwargs = REQUEST.get("chat_template_kwargs", {})
        self.request = ChatCompletionRequest(
            model="model",
            messages=[{"role": "user", "content": "Hi."}],
            stream=STREAMED,
            **({"tools": TOOLS} if TOOLS else {}),
            **REQUEST,
        )
        if HARMONY:
            self.prompt = tokenizer.encode("<|start|>assistant", add_special_tokens=False)
        else:
            self.prompt = tokenizer.apply_chat_template(
                self.request.messages,
                tools=TOOLS or None,
                add_generation_prompt=True,
                tokenize=True,
                return_dict=False,
                **self.kwargs,
            )

    def cpu_s(self):
        """Measures the CPU seconds; a short run is measured twice, and the smaller figure returned."""
        times = [self.run()]
        if times[0] < LONG_S:
            times.append(self.run())
        return min(times)

    def peak_bytes(self):
        """Measures the peak of the allocated memory, in bytes."""
        tracemalloc.start()
        try:
            self.run()
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    def run(self):
        parser = self.parser_class(self.tokenizer, self.request.tools, chat_template_kwargs=self.kwargs)
        request = parser.adjust_request(self.request)
        texts = decoded(self.tokenizer, self.ids, request.skip_special_tokens is not False)
        started = time.thread_time()
        try:
            (streamed if STREAMED else whole)(parser, request, texts, self.ids, self.prompt)
        except Exception as error:
            print(f"{len(self.ids):9,}  {type(error).__name__}: {error}")
        return time.thread_time() - started


def decoded(tokenizer, ids, skip_special_tokens):
    """The text of each token; the last token ends the turn and has no text."""
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
