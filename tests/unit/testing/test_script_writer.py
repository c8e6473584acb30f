"""The fixture `script` on a server that is not scripted."""

from __future__ import annotations

import warnings

import pytest

from vllm_harness._testing.fixtures import ScriptWriter


def test_a_delivery_on_a_server_that_is_not_scripted_is_reported() -> None:
    script = ScriptWriter(None)
    with pytest.warns(UserWarning, match="tokens_1 is not available: .* --vllm-books-url") as warned:
        assert script("Hello.", delivery="tokens_1") is None
    assert warned[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert script("Hello.") is None
