"""JOB_JSON ANSWER_JSON: what transformers computes, on CPU, for `vllm-harness check-weights`.

Job: model (folder, or hub id with revision), prompts, text, dtypes, max_tokens. Answer: prompts and text as
token ids; for each prompt the greedy steps in float32, each with its best tokens; for each dtype the
log-probability of every token of the text. Runs in an interpreter that has torch and transformers; imports
nothing of the harness.
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
    """Computes the answer; one model in memory at a time."""
    source = {"pretrained_model_name_or_path": job["model"], "revision": job["revision"]}
    tokenizer = transformers.AutoTokenizer.from_pretrained(**source)
    prompts = [_prompt(tokenizer, prompt) for prompt in job["prompts"]]
    text = tokenizer(job["text"])["input_ids"]
    answer: dict[str, Any] = {"prompts": prompts, "text": text, "logprobs": {}}
    for dtype in job["dtypes"]:
        model = transformers.AutoModelForCausalLM.from_pretrained(
            **source, dtype=getattr(torch, dtype), attn_implementation="eager"
        ).eval()
        answer["logprobs"][dtype] = _along(model, text)
        if dtype == "float32":
            answer["greedy"] = [_greedy(model, tokenizer, ids, job["max_tokens"]) for ids in prompts]
        del model
        gc.collect()
    return answer


def _prompt(tokenizer: Any, prompt: str) -> list[int]:
    if not tokenizer.chat_template:
        return list(tokenizer(prompt)["input_ids"])
    messages = [{"role": "user", "content": prompt}]
    text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    return list(tokenizer(text, add_special_tokens=False)["input_ids"])


def _along(model: Any, ids: list[int]) -> list[float]:
    """The log-probability of each token after the first, given those before it."""
    logprobs = _logprobs(model(torch.tensor([ids])).logits[0, :-1])
    return [float(row[token]) for row, token in zip(logprobs, ids[1:], strict=True)]


def _greedy(model: Any, tokenizer: Any, ids: list[int], limit: int) -> list[list[dict[str, Any]]]:
    """The best tokens at each step of a greedy continuation, which ends with a token that ends a turn."""
    ends = model.generation_config.eos_token_id
    ends = set(ends if isinstance(ends, list) else [ends])
    steps: list[list[dict[str, Any]]] = []
    given, cache = ids, None
    while len(steps) < limit and (not steps or steps[-1][0]["token"] not in ends):
        output = model(torch.tensor([given]), past_key_values=cache, use_cache=True)
        best = _logprobs(output.logits[0, -1]).topk(BEST)
        steps.append(
            [
                {"token": int(token), "logprob": float(logprob), "text": tokenizer.decode([int(token)])}
                for logprob, token in zip(best.values, best.indices, strict=True)
            ]
        )
        given, cache = [steps[-1][0]["token"]], output.past_key_values
    return steps


def _logprobs(logits: torch.Tensor) -> torch.Tensor:
    exact = torch.float64 if logits.dtype == torch.float64 else torch.float32
    return torch.log_softmax(logits.to(exact), dim=-1)


if __name__ == "__main__":
    transformers.utils.logging.disable_progress_bar()
    with torch.inference_mode():
        given = json.loads(Path(sys.argv[1]).read_text())
        Path(sys.argv[2]).write_text(json.dumps(main(given)))
