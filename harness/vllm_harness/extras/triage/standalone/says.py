"""A logits processor of vLLM that allows only the next token of a given text.

The variable REPRODUCE_SAYS names a file with the texts: `{"step": 7, "turns": [[token ids], ...]}`; the generations
of a step, which has a number of its own each time that it is sent, take the turns in order.
"""

import json
import os
from pathlib import Path

from vllm.v1.sample.logits_processor import LogitsProcessor


class Says(LogitsProcessor):
    def __init__(self, vllm_config, device, is_pin_memory):
        self.rows = {}
        self.step, self.used = None, 0

    def is_argmax_invariant(self):
        return False

    def update_state(self, batch_update):
        if batch_update is None:
            return
        for index in batch_update.removed:
            self.rows.pop(index, None)
        for index, _params, _prompt, output in batch_update.added:
            self.rows[index] = (self._next_turn(), output)
        for source, target, _direction in batch_update.moved:
            moving, displaced = self.rows.pop(source, None), self.rows.pop(target, None)
            if moving is not None:
                self.rows[target] = moving
            if displaced is not None:
                self.rows[source] = displaced

    def apply(self, logits):
        for index, (ids, output) in self.rows.items():
            if ids:
                token = ids[min(len(output), len(ids) - 1)]
                kept = logits[index][token].clone()
                logits[index].fill_(float("-inf"))
                logits[index][token] = kept
        return logits

    def _next_turn(self):
        says = json.loads(Path(os.environ["REPRODUCE_SAYS"]).read_text())
        if says["step"] != self.step:
            self.step, self.used = says["step"], 0
        turns = says["turns"]
        self.used += 1
        return turns[min(self.used, len(turns)) - 1] if turns else []
