"""Prints as JSON the chunks in which the running interpreter's vLLM delivers five outputs."""

import asyncio
import inspect
import json
from types import SimpleNamespace

import vllm_harness_deliveries as deliveries
import vllm_harness_uses as uses
from vllm.outputs import CompletionOutput, RequestOutput
from vllm.sampling_params import RequestOutputKind
from vllm.v1.engine.output_processor import OutputProcessor, RequestOutputCollector

(_, *parameters) = inspect.signature(OutputProcessor.add_request).parameters
assert parameters[:5] == ["request", "prompt", "parent_req", "request_index", "queue"], parameters
assert list(inspect.signature(RequestOutput.add).parameters)[1:] == ["next_output", "aggregate"]


def output(number: int) -> RequestOutput:
    """Returns the output of a step that generates one token; the fifth ends the answer."""
    completion = CompletionOutput(
        index=0,
        text="abcde"[number],
        token_ids=[number],
        cumulative_logprob=None,
        logprobs=None,
        finish_reason="stop" if number == 4 else None,
    )
    return RequestOutput(
        request_id="1",
        prompt="",
        prompt_token_ids=[0],
        prompt_logprobs=None,
        outputs=[completion],
        finished=number == 4,
    )


async def chunks() -> list[list[object]]:
    """Returns the text and the tokens of each chunk; the first is taken early, the rest at the end."""
    OutputProcessor.add_request = lambda *_: None
    deliveries.install()
    deliveries.deliver("1-1", deliveries.ServedDelivery("tokens_2", [[2, 2, 1]], by_choice=True))
    collector = RequestOutputCollector(RequestOutputKind.DELTA, "1")
    request = SimpleNamespace(sampling_params=SimpleNamespace(extra_args={uses.USE: "1-1"}))
    OutputProcessor.add_request(None, request, None, None, 0, collector)
    taken = []
    for number in range(5):
        collector.put(output(number))
        if number == 1:
            taken.append(await collector.get())
    while (chunk := collector.get_nowait()) is not None:
        taken.append(chunk)
    return [[chunk.outputs[0].text, list(chunk.outputs[0].token_ids)] for chunk in taken]


print(json.dumps(asyncio.run(chunks())))
