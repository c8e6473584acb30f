"""Logits processor: allows only the next scripted token (vLLM's V1 extension point).

The processor never allows a token that vLLM forbids. If a grammar, a minimum length or a bias forbids the
scripted token, it leaves the logits unchanged and reports the refusal with the tokens that are allowed. The
middleware then ends the request, so the engine never sees a row without any allowed token. Runs inside the
server and imports nothing from the harness outside this folder.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

import torch
import vllm_harness_head as head
import vllm_harness_uses as uses
from vllm import SamplingParams
from vllm.v1.sample.logits_processor import BatchUpdate, LogitsProcessor, MoveDirectionality

SHOWN_ALLOWED = 16
KEPT_USES = 4096


class Generation:
    """A take of a script that the engine generates in a row of its batch.

    Args:
        ids: the tokens to generate; empty if the request has no script, or no take for this turn.
        output: vLLM's own list, which it extends, of the tokens generated so far.
        progress: reports the state of the generation.
    """

    def __init__(self, ids: list[int], output: list[int], progress: uses.GenerationProgress) -> None:
        self.ids = ids
        self.output = output
        self.progress = progress
        self.refused = False

    def narrow(self, row: torch.Tensor) -> None:
        """Allows only the next token; after the end of the script, only its last token (a stop token)."""
        position = len(self.output)
        if self.refused:
            return
        if not self.ids:
            self._refuse(position, None, row)
            return
        token = self.ids[min(position, len(self.ids) - 1)]
        logit = row[token].item()
        if not math.isfinite(logit):
            self._refuse(position, token, row)
            return
        row.fill_(float("-inf"))
        row[token] = logit
        self.progress.generated(position)

    def _refuse(self, position: int, token: int | None, row: torch.Tensor) -> None:
        self.refused = True
        allowed = torch.isfinite(row).nonzero().flatten()
        self.progress.refused(
            {
                "position": position,
                "length": len(self.ids),
                "token": token,
                "allowed": allowed[:SHOWN_ALLOWED].tolist(),
                "allowed_count": int(allowed.numel()),
            }
        )


class ScriptedLogits(LogitsProcessor):
    """Forces the token ids in the `vllm_xargs` of a request; refuses requests that no script matched."""

    @classmethod
    def validate_params(cls, sampling_params: SamplingParams) -> None:
        """Validates a request. If it raises ValueError, the API server answers HTTP 400 with the message."""
        args = sampling_params.extra_args or {}
        if reason := args.get(uses.NO_SCRIPT):
            raise ValueError(reason)
        if uses.USE in args and not uses.is_use(args[uses.USE]):
            raise ValueError(f"{uses.USE} is set by the harness")
        if uses.USE in args and sum(args.get(uses.LENGTHS, ())) != len(args.get(uses.IDS, ())):
            raise ValueError(f"the lengths in {uses.LENGTHS} do not add up to the length of {uses.IDS}")

    def __init__(self, vllm_config: Any, device: torch.device, is_pin_memory: bool) -> None:
        if device.type == "cpu":
            head.shorten()
        self.rows: dict[int, Generation] = {}
        self.turns: dict[str, list[int]] = {}

    def is_argmax_invariant(self) -> bool:
        """False, since the processor decides which token is sampled."""
        return False

    def update_state(self, batch_update: BatchUpdate | None) -> None:
        """Updates which request is in which row of the batch."""
        if batch_update is None:
            return
        for index in batch_update.removed:
            self.rows.pop(index, None)
        for index, params, prompt, output in batch_update.added:
            generation = self._admit(params, prompt, output)
            if generation is None:
                self.rows.pop(index, None)
            else:
                self.rows[index] = generation
        for source, target, direction in batch_update.moved:
            moving, displaced = self.rows.pop(source, None), self.rows.pop(target, None)
            if moving is not None:
                self.rows[target] = moving
            if displaced is not None and direction == MoveDirectionality.SWAP:
                self.rows[source] = displaced

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        """Allows only the scripted token in each scripted row; changes the logits in place."""
        for index, generation in self.rows.items():
            generation.narrow(logits[index])
        return logits

    def _admit(
        self, params: SamplingParams, prompt: list[int] | None, output: list[int]
    ) -> Generation | None:
        args = params.extra_args or {}
        use = args.get(uses.USE)
        if use is None or not uses.is_use(use):  # checked because it becomes the name of a folder
            return None
        takes = _split(args.get(uses.IDS, []), args.get(uses.LENGTHS, []))
        base = args.get(uses.SEED, 0)
        choice = (base if params.seed is None else params.seed) - base
        by_choice = bool(args.get(uses.BY_CHOICE))
        take = 0 if by_choice else self._turn(use, len(prompt or ()))
        index = min(choice, len(takes) - 1) if by_choice else take  # the last take is for all further choices
        ids = takes[index] if 0 <= index < len(takes) else []
        if args.get(uses.KEEP_PROMPT) and prompt is not None:
            uses.keep(use, take, choice, prompt, _sampling(params))
        return Generation(ids, output, uses.GenerationProgress(use, take, choice, len(ids)))

    def _turn(self, use: str, prompt_length: int) -> int:
        """The index of this generation in its request; generations differ in the lengths of their prompts."""
        seen = self.turns.setdefault(use, [])
        if prompt_length not in seen:
            seen.append(prompt_length)
        if len(self.turns) > KEPT_USES:
            self.turns.pop(next(iter(self.turns)))
        return seen.index(prompt_length)


def _sampling(params: SamplingParams) -> dict[str, Any]:
    """The sampling parameters that the engine received, without those that the harness added."""
    values = {name: getattr(params, name) for name in params.__struct_fields__ if not name.startswith("_")}
    extra = {key: value for key, value in (params.extra_args or {}).items() if key not in uses.ARGS}
    return {**values, "extra_args": extra}


def _split(ids: list[int], lengths: list[int]) -> list[list[int]]:
    remaining = map(int, ids)
    return [list(itertools.islice(remaining, length)) for length in lengths]
