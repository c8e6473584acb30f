"""A cheaper LM head for stand-ins on CPU, whose logits are noise that scripts ignore.

vLLM's head has a row for each token, and multiplying by it took a quarter of the engine's time.
Here the logits depend only on the direction of the hidden state's first coordinates: they differ at each
position, and are the same for the same prompt. Runs inside the server and imports nothing from the harness.

vLLM's attention uses AMX without asking the kernel, and relies on oneDNN, which asks when it packs a matrix
of more than 1 MiB (a stand-in has only the head) or multiplies more than four tokens. So this module asks, or
a first prompt of up to four tokens would be an illegal instruction.
"""

from __future__ import annotations

import torch
from torch.nn.functional import normalize
from vllm.model_executor.layers.vocab_parallel_embedding import UnquantizedEmbeddingMethod

COORDINATES = 2
ROWS = 64  # multiplied at once, so that the logprobs of a long prompt take no more memory than in vLLM


def shorten() -> None:
    """Makes vLLM use the cheaper head for every model that it loads from now on."""
    UnquantizedEmbeddingMethod.process_weights_after_loading = _shorten


def _shorten(method: UnquantizedEmbeddingMethod, layer: torch.nn.Module) -> None:
    torch.cpu._init_amx()  # False on a processor without AMX
    columns = layer.weight[:, :COORDINATES].t().float()
    # dummy weights are so small that all tokens would have the same probability
    columns = (columns / columns.std()).contiguous()

    def logits_of(rows: torch.Tensor) -> torch.Tensor:
        return (normalize(rows[:, :COORDINATES].float(), dim=-1) @ columns).to(rows.dtype)

    def multiply(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        return logits_of(x) if len(x) <= ROWS else torch.cat([logits_of(rows) for rows in x.split(ROWS)])

    layer.cpu_linear = multiply
