"""vLLM's demo tool server: the flags that select it, and its requirements."""

from __future__ import annotations

import pytest

from vllm_harness._errors import UsageError
from vllm_harness._server.demo_tools import SEARCH_KEY, demo_launch
from vllm_harness._server.flags import asks_for_demo


@pytest.mark.parametrize(
    ("args", "asks"),
    [
        (["--tool-server", "demo"], True),
        (["--tool-server=demo"], True),
        (["--tool_server=demo", "--seed", "1"], True),
        (["--tool-server", "127.0.0.1:9"], False),
        (["--tool-server", "demo", "--tool-server", "127.0.0.1:9"], False),
        (["--tool-server"], False),
        (["--served-model-name", "demo"], False),
    ],
)
def test_flags_that_name_it(args: list[str], asks: bool) -> None:
    assert asks_for_demo(args) == asks


def test_only_scripted_code_runs_on_this_machine() -> None:
    assert demo_launch(scripted=True)[1] == {"PYTHON_EXECUTION_BACKEND": "dangerously_use_uv"}
    assert demo_launch(scripted=False)[1] == {}


def test_a_search_needs_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(SEARCH_KEY, raising=False)
    with pytest.raises(UsageError, match=f"{SEARCH_KEY} is not set") as caught:
        demo_launch(scripted=True, search=True)
    assert "api.exa.ai" in str(caught.value)
    monkeypatch.setenv(SEARCH_KEY, "x")
    assert demo_launch(scripted=True, search=True) == demo_launch(scripted=True)
