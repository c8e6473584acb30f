"""Tests properties that all dialects share."""

from __future__ import annotations

import pytest

from vllm_harness._scripted.dialects import DialectError, load_dialects, render
from vllm_harness._scripted.meaning import Meaning


def test_each_dialect_has_a_source() -> None:
    for name, dialect in load_dialects().items():
        assert dialect.name == name
        assert dialect.source


def test_every_dialect_can_write_a_plain_text() -> None:
    assert all("Hello." in render(name, Meaning.of("Hello.")) for name in load_dialects())


def test_an_unknown_dialect_names_the_nearest() -> None:
    with pytest.raises(DialectError, match="unknown dialect 'hermess'") as raised:
        render("hermess", Meaning.of("Hello."))
    assert "'hermes'" in raised.value.hint
