"""The chunks of a delivery, and the collector that holds them."""

from __future__ import annotations

import asyncio
import importlib
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from vllm_harness._server.launch import IN_SERVER

TEXTS = ["ab", "c", "", "def", "g", "<end>"]


@pytest.fixture
def deliveries(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The module, imported as a server imports it."""
    monkeypatch.syspath_prepend(str(IN_SERVER))
    return importlib.import_module("vllm_harness_deliveries")


@pytest.mark.parametrize(
    ("code", "sizes"),
    [
        ("tokens_1", [1, 1, 1, 1, 1, 1]),
        ("held_back", [1, 1, 1, 1, 1, 1]),
        ("tokens_2", [2, 2, 1, 1]),
        ("tokens_4_with_end", [4, 2]),
        ("all", [5, 1]),
        ("all_with_end", [6]),
        ("cut_at_1_4", [1, 3, 1, 1]),
        ("cut_at_1_4_with_end", [1, 3, 2]),
        ("cut_at_9", [5, 1]),
        ("cut_at", [5, 1]),
        ("cut_after_1", [1, 4, 1]),
        ("cut_after_3_5", [2, 2, 1, 1]),
        ("cut_after_99", [5, 1]),
    ],
)
def test_chunks_of_a_code(deliveries: ModuleType, code: str, sizes: list[int]) -> None:
    assert deliveries.sizes_of(code, TEXTS) == sizes


@pytest.mark.parametrize("code", ["", "whole", "every_cut", "tokens_x", "chat:tokens_1", "list_1"])
def test_an_unknown_code_is_refused(deliveries: ModuleType, code: str) -> None:
    with pytest.raises(deliveries.DeliveryError, match="is not a delivery"):
        deliveries.sizes_of(code, TEXTS)


class Output:
    """An output of the engine for one choice, which merges with the next as vLLM's `RequestOutput` does."""

    def __init__(self, tokens: list[int], *, choice: int = 0, ends: bool = False) -> None:
        reason = "stop" if ends else None
        self.outputs = [SimpleNamespace(index=choice, token_ids=tokens, finish_reason=reason)]

    def add(self, other: Output, aggregate: bool) -> None:
        assert aggregate
        self.outputs[0].token_ids = [*self.outputs[0].token_ids, *other.outputs[0].token_ids]


class Collector:
    """The interface of vLLM's `RequestOutputCollector`, without a merge: a second output is an error."""

    exact: Any

    def __init__(self) -> None:
        self.aggregate, self.ready = True, asyncio.Event()
        self.output: Any = None

    def put(self, output: Any) -> None:
        assert self.output is None
        self.output = output
        self.ready.set()

    async def get(self) -> Any:
        await self.ready.wait()
        return self.get_nowait()

    def get_nowait(self) -> Any:
        output, self.output = self.output, None
        self.ready.clear()
        return output


class Processor:
    """The part of vLLM's `OutputProcessor` that a delivery uses."""

    def add_request(self, *_: Any) -> None:
        """Registers a request."""


@pytest.fixture
def collector(deliveries: ModuleType, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Returns a function that makes the collector of a request with this delivery."""
    kind, owner = type("Kind", (Collector,), {}), type("Owner", (Processor,), {})
    module = SimpleNamespace(RequestOutputCollector=kind, OutputProcessor=owner)
    monkeypatch.setattr(deliveries.importlib, "import_module", lambda _: module)
    deliveries.install()

    def make(code: str, lengths: list[int], choices: int = 1) -> tuple[Any, Any]:
        sizes = [deliveries.sizes_of(code, [""] * length) for length in lengths]
        delivery = deliveries.ServedDelivery(code, sizes, by_choice=True)
        deliveries.deliver("1-1", delivery)
        request = SimpleNamespace(sampling_params=SimpleNamespace(extra_args={"harness_use": "1-1"}))
        collector = kind()
        for choice in range(choices):
            owner().add_request(request, None, None, choice, collector)
        return collector, delivery

    return make


def taken(collector: Any) -> list[list[int]]:
    """Takes the chunks that are ready."""
    chunks = []
    while (output := collector.get_nowait()) is not None:
        chunks.append(list(output.outputs[0].token_ids))
    return chunks


def test_outputs_are_merged_into_the_chunks(collector: Any) -> None:
    """The chunks do not depend on when they are taken."""
    late, delivery = collector("cut_at_1_4", [6])
    for token in range(6):
        late.put(Output([token], ends=token == 5))
    assert taken(late) == [[0], [1, 2, 3], [4], [5]]
    assert delivery.report() == {"code": "cut_at_1_4", "chunks": [[1, 3, 1, 1]], "held": True}
    early, _ = collector("cut_at_1_4", [6])
    chunks = []
    for token in range(6):
        early.put(Output([token], ends=token == 5))
        chunks += taken(early)
    assert chunks == [[0], [1, 2, 3], [4], [5]]


def test_an_answer_that_ends_early_ends_its_chunk(collector: Any) -> None:
    ended, delivery = collector("all", [9])
    ended.put(Output([1]))
    ended.put(Output([2], ends=True))
    assert taken(ended) == [[1, 2]]
    assert delivery.report()["held"]


def test_each_choice_has_its_own_chunks(collector: Any) -> None:
    both, delivery = collector("tokens_2", [4, 4], choices=2)
    for token in range(4):
        for choice in range(2):
            both.put(Output([token], choice=choice, ends=token == 3))
    taken(both)
    assert delivery.report()["chunks"] == [[2, 1, 1], [2, 1, 1]]


def test_an_error_is_not_delayed(collector: Any) -> None:
    failed, _ = collector("all", [9])
    failed.put(Output([1]))
    failed.put(RuntimeError("the engine died"))
    assert isinstance(failed.output, RuntimeError)


def test_several_tokens_a_step_are_not_held(collector: Any) -> None:
    """An output of the engine cannot be divided, so the report says what vLLM took."""
    fast, delivery = collector("tokens_1", [4])
    for tokens in ([0, 1], [2, 3]):
        fast.put(Output(tokens, ends=tokens[-1] == 3))
    taken(fast)
    assert delivery.report() == {"code": "tokens_1", "chunks": [[2, 2]], "held": False}


def test_nothing_taken_is_not_held(collector: Any) -> None:
    _, delivery = collector("tokens_1", [4])
    assert not delivery.report()["held"]
