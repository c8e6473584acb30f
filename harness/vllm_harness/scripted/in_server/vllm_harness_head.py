"""A stand-in's LM head on CPU: what it says is noise that no script heeds, so it computes little of it.

It has a row for each token of the tokenizer, and multiplying them was a quarter of the engine's time. Here
the logits are those of the direction of the hidden state's first coordinates: they differ at each position,
and are the same for the same prompt. Runs inside the server, imports nothing of the harness.
"""

from __future__ import annotations

import torch
from torch.nn.functional import normalize
from vllm.model_executor.layers.vocab_parallel_embedding import UnquantizedEmbeddingMethod

COORDINATES = 2
ROWS = 64  # at a time, so that the logprobs of a long prompt take no more memory than vLLM's own


def shorten() -> None:
    """Shortens every head that is loaded from now on."""
    UnquantizedEmbeddingMethod.process_weights_after_loading = _shorten


def _shorten(method: UnquantizedEmbeddingMethod, layer: torch.nn.Module) -> None:
    kept = layer.weight[:, :COORDINATES].t().float()
    kept = (
        kept / kept.std()
    ).contiguous()  # dummy weights are so small that all tokens would be equally likely

    def logits(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        parts = [
            (normalize(part[:, :COORDINATES].float(), dim=-1) @ kept).to(x.dtype) for part in x.split(ROWS)
        ]
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    layer.cpu_linear = logits
