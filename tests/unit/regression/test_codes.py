"""The serial forms of deliveries and mismatches, which results and baselines store."""

from __future__ import annotations

from typing import Any

import pytest

from vllm_harness._exchange.delivery import Api, Chunking, Concurrency, Delivery, delivery_of, like_in_process
from vllm_harness._regression.engines.plan import DELIVERIES
from vllm_harness._regression.results.mismatches import How, Mismatch, MismatchCode


def test_a_delivery_is_parsed_from_its_code() -> None:
    groups = [group for by_group in DELIVERIES.values() for group in by_group.values()]
    used = {delivery for group in groups for delivery in group}
    for delivery in (*used, Delivery(Chunking.CUT_AT, cuts=(3, 7)), Delivery(Chunking.CUT_AT)):
        assert Delivery.parse(delivery.code) == delivery
    together = Delivery(Chunking.WHOLE, api=Api.CHAT, load=Concurrency.TOGETHER)
    assert Delivery.parse("chat:whole:together") == together


@pytest.mark.parametrize("code", ["", "tokens", "tokens_1_2", "whole_3", "cut_at_3,7", "chat", "smtp:whole"])
def test_an_invalid_delivery_is_rejected(code: str) -> None:
    with pytest.raises(ValueError, match="is not a delivery"):
        Delivery.parse(code)


@pytest.mark.parametrize(
    ("served", "like"),
    [
        ("chat:whole", "whole"),
        ("responses:tokens_1", "tokens_1"),
        ("chat:all_with_end", "all_with_end"),
        ("chat:whole:alone", "whole"),
        ("chat:tokens_1:together", "chat:tokens_1:together"),
        ("chat:whole:together", "chat:whole:together"),
    ],
)
def test_a_delivery_over_http_is_like_one_in_process(served: str, like: str) -> None:
    assert like_in_process(Delivery.parse(served)).code == like


@pytest.mark.parametrize(
    ("value", "code"),
    [([1, 4, 2], "cut_at_1_5_7"), ("cut_after_12", "cut_after_12"), (Delivery(Chunking.ALL), "all")],
)
def test_a_delivery_is_given_as_a_code_or_as_sizes(value: Any, code: str) -> None:
    assert delivery_of(value).code == code


@pytest.mark.parametrize("value", [[], [1, 0], [1, "2"]])
def test_sizes_are_positive_numbers(value: Any) -> None:
    with pytest.raises(ValueError, match="numbers of tokens in chunks"):
        delivery_of(value)


def test_chunks_end_around_a_marker() -> None:
    assert Delivery.around("<x>", "<x>ab<x>c").code == "cut_after_3_5_8"


def test_every_mismatch_has_a_title() -> None:
    assert all(Mismatch(code).title for code in MismatchCode)
    assert Mismatch(MismatchCode.TEXT_DIFFERS, How.LEAKED).title == "the text differs: leaked"


def test_a_mismatch_is_parsed_from_its_code() -> None:
    leaked = Mismatch(MismatchCode.TEXT_DIFFERS, How.LEAKED)
    for mismatch in (Mismatch(MismatchCode.CALL_LOST), Mismatch(MismatchCode.ERROR, "TypeError"), leaked):
        assert Mismatch.parse(str(mismatch)) == mismatch


@pytest.mark.parametrize(
    "serial", ["", "call lost", "error", "call_lost:TypeError", "text_differs:gone", "call_lost:leaked"]
)
def test_an_invalid_mismatch_is_rejected(serial: str) -> None:
    with pytest.raises(ValueError, match=r"is not a mismatch|not a valid MismatchCode"):
        Mismatch.parse(serial)


def test_a_mismatch_without_detail_covers_every_detail() -> None:
    differs, leaked = Mismatch.parse("text_differs"), Mismatch.parse("text_differs:leaked")
    assert differs.covers(leaked)
    assert leaked.covers(leaked)
    assert not leaked.covers(differs)
    assert not leaked.covers(Mismatch.parse("text_differs:lost"))
    assert not differs.covers(Mismatch.parse("text_lost"))
