"""Computes the reference for `vllm-harness weights` with transformers on CPU. Usage: JOB_JSON ANSWER_JSON.

The job contains `model` (a folder, or a hub id with `revision`), `prompts`, `text`, `dtypes`, `max_tokens`.
The answer contains the prompts and the text as token ids; for each prompt, the greedy steps in float32, each
with its best tokens; and for each dtype, the log-probability of every token of the text but the first. Runs
in an interpreter that has torch and transformers, without the harness.
"""

from __future__ import annotations

import gc
import json
import sys
from pathlib import Path
from typing import Any

import torch
import transformers  # type: ignore[import-not-found]

BEST = 10


def main(job: dict[str, Any]) -> dict[str, Any]:
    """Computes the answer for a job, with one model in memory at a time."""
    source = {"pretrained_model_name_or_path": job["model"], "revision": job["revision"]}
    tokenizer = transformers.AutoTokenizer.from_pretrained(**source)
    prompts = [_prompt(tokenizer, prompt) for prompt in job["prompts"]]
    text = tokenizer(job["text"])["input_ids"]
    answer: dict[str, Any] = {"prompts": prompts, "text": text, "logprobs": {}}
    for dtype in job["dtypes"]:
        model = transformers.AutoModelForCausalLM.from_pretrained(
            **source, dtype=getattr(torch, dtype), attn_implementation="eager"
        ).eval()
        answer["logprobs"][dtype] = _logprobs_along(model, text)
        if dtype == "float32":
            answer["greedy"] = _greedy(model, tokenizer, prompts, job["max_tokens"])
        del model
        gc.collect()
    return answer


def _prompt(tokenizer: Any, prompt: str) -> list[int]:
    if not tokenizer.chat_template:
        return list(tokenizer(prompt)["input_ids"])
    messages = [{"role": "user", "content": prompt}]
    text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    return list(tokenizer(text, add_special_tokens=False)["input_ids"])


def _logprobs_along(model: Any, ids: list[int]) -> list[float]:
    """The log-probability of each token after the first, given the tokens before it."""
    logprobs = _logprobs(model(torch.tensor([ids])).logits[0, :-1])
    return [float(row[token]) for row, token in zip(logprobs, ids[1:], strict=True)]


def _greedy(
    model: Any, tokenizer: Any, prompts: list[list[int]], limit: int
) -> list[list[list[dict[str, Any]]]]:
    """The best tokens at each step of each prompt's greedy continuation, with the token that ends it."""
    tokenizer.padding_side, tokenizer.pad_token = "left", tokenizer.pad_token or tokenizer.eos_token
    generated = model.generate(
        **tokenizer.pad({"input_ids": prompts}, return_tensors="pt"),
        max_new_tokens=limit,
        do_sample=False,
        repetition_penalty=1.0,
        return_dict_in_generate=True,
        output_logits=True,
    )
    ends = model.generation_config.eos_token_id
    ends = set(ends if isinstance(ends, list) else [ends])
    best = _logprobs(torch.stack(generated.logits, dim=1)).topk(BEST)
    return [
        _steps(tokenizer, tokens, logprobs, ends)
        for tokens, logprobs in zip(best.indices.tolist(), best.values.tolist(), strict=True)
    ]


def _steps(
    tokenizer: Any, tokens: list[list[int]], logprobs: list[list[float]], ends: set[int]
) -> list[list[dict[str, Any]]]:
    steps: list[list[dict[str, Any]]] = []
    for row in zip(tokens, logprobs, strict=True):
        steps.append(
            [
                {"token": token, "logprob": logprob, "text": tokenizer.decode([token])}
                for token, logprob in zip(*row, strict=True)
            ]
        )
        if row[0][0] in ends:
            break
    return steps


def _logprobs(logits: torch.Tensor) -> torch.Tensor:
    exact = torch.float64 if logits.dtype == torch.float64 else torch.float32
    return torch.log_softmax(logits.to(exact), dim=-1)


if __name__ == "__main__":
    transformers.utils.logging.disable_progress_bar()
    with torch.inference_mode():
        job = json.loads(Path(sys.argv[1]).read_text())
        Path(sys.argv[2]).write_text(json.dumps(main(job)))
