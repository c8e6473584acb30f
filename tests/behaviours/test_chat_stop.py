"""Stop strings and stop tokens: where generation stops, how much of them is shown, and what is refused."""

from __future__ import annotations

from typing import Any

import openai
import pytest

from tests.behaviours.stop_strings import AND_ON
from tests.chat_api import CUTS, FREE, PARIS, Chat
from vllm_harness._testing.fixtures import ScriptWriter

TEXT = "alpha beta gamma delta epsilon"
LONG = TEXT + AND_ON
SHOWN = pytest.mark.vllm_known_defect("vllm-52599")
# text is held back but its tokens are not, so a stream's counts depend on its chunks; see the last test
COUNTED = ("reasoning_tokens",)


@pytest.mark.vllm_scripted
@pytest.mark.covers("VC-035", "VT-012")
@pytest.mark.parametrize("tokens", [1, 3, 1000])
@pytest.mark.parametrize("stop", ["gamma", ["nowhere", "gamma"], [" gam"]], ids=["text", "list", "part"])
@SHOWN
def test_stop_string(stop: Any, tokens: int, chat: Chat, script: ScriptWriter) -> None:
    """The text ends before the stop string, none of which is shown; finish_reason and stop_reason are set."""
    script(LONG, times=2, expect="truncated")
    answers = chat.both(but=COUNTED, stop=stop, stream_interval=tokens)
    assert answers.output.content.strip() == "alpha beta"
    assert answers.output.finish == "stop"
    wanted = "gamma" if "gamma" in stop else " gam"
    assert answers.body.choices[0].stop_reason == wanted  # type: ignore[attr-defined]


@pytest.mark.vllm_scripted
@pytest.mark.covers("VC-035")
@pytest.mark.parametrize("tokens", [1, 3, 1000])
def test_stop_string_is_shown_on_demand(tokens: int, chat: Chat, script: ScriptWriter) -> None:
    script(LONG, times=2, expect="truncated")
    answers = chat.both(but=COUNTED, stop=["gamma"], include_stop_str_in_output=True, stream_interval=tokens)
    assert answers.output.content.strip() == "alpha beta gamma"
    assert answers.output.finish == "stop"


@pytest.mark.vllm_scripted
@pytest.mark.covers("VC-035")
@SHOWN
def test_first_of_several_stop_strings(chat: Chat, script: ScriptWriter) -> None:
    script(LONG, times=2, expect="truncated")
    answers = chat.both(but=COUNTED, stop=["delta", "beta"])
    assert answers.output.content.strip() == "alpha"


@pytest.mark.vllm_scripted
@pytest.mark.covers("VC-035")
def test_stop_string_that_begins_and_does_not_come(chat: Chat, script: ScriptWriter) -> None:
    """Text that starts like a stop string is held back, then shown whole."""
    script(TEXT, times=2)
    answers = chat.both(but=COUNTED, stop=["gamma delta zeta", "epsilonx"])
    assert answers.output.content.strip() == TEXT
    assert answers.output.finish == "stop"


@pytest.mark.vllm_scripted
@pytest.mark.vllm_needs("reasoning")
@pytest.mark.covers("VC-035", "VT-016")
@SHOWN
def test_stop_string_in_the_thoughts(chat: Chat, script: ScriptWriter) -> None:
    """If a stop string occurs in the reasoning, the text before it is still returned as reasoning."""
    script("Never said.", reasoning=f"first halt{AND_ON}", times=2, expect="truncated")
    answers = chat.both(but=COUNTED, stop=["halt"])
    assert answers.output.reasoning.strip() == "first"
    assert answers.output.content == ""
    assert answers.output.finish == "stop"


@pytest.mark.vllm_scripted
@pytest.mark.covers("VC-035")
@pytest.mark.parametrize("tokens", [1, 1000])
def test_stop_token(tokens: int, chat: Chat, script: ScriptWriter) -> None:
    """Generation ends at the stop token, and stop_reason contains its id."""
    written = script(LONG, times=2, expect="truncated")
    assert written is not None
    token = chat.tokens(" gamma")[0]
    assert token in written.takes[0]
    answers = chat.both(stop_token_ids=[token], return_token_ids=True, stream_interval=tokens)
    assert answers.output.finish == "stop"
    assert answers.body.choices[0].stop_reason == token  # type: ignore[attr-defined]
    ids: list[int] = answers.body.choices[0].token_ids  # type: ignore[attr-defined]
    assert ids == list(written.takes[0][: written.takes[0].index(token) + 1])
    assert answers.output.content.strip() in ("alpha beta", "alpha beta gamma")


@pytest.mark.vllm_scripted
@pytest.mark.vllm_needs("tools")
@pytest.mark.covers("VC-035")
def test_stop_tokens_of_the_model_hold_beside_the_clients(chat: Chat, script: ScriptWriter) -> None:
    """The client's stop tokens are added to the model's own end tokens (`<|call|>`, `<|im_end|>`)."""
    script(calls=[PARIS], constrained=True, times=2)
    answers = chat.both(tools=[FREE], stop_token_ids=[chat.tokens(" never")[0]])
    assert answers.output.arguments == [PARIS.arguments]
    assert answers.output.finish == "tool_calls"


@pytest.mark.vllm_scripted
@pytest.mark.covers("VC-035")
def test_nothing_stops_before_min_tokens(chat: Chat, script: ScriptWriter) -> None:
    """min_tokens forbids the token that ends the turn, so a script that ends earlier is refused."""
    script("Hi.", expect="refused")
    with pytest.raises(openai.APIError, match="was refused at token"):
        chat.body(min_tokens=200, max_tokens=300)


@pytest.mark.covers("VC-035", "VC-027")
@pytest.mark.parametrize(
    ("request_", "pattern"),
    [
        ({"stop": ["a", "b", "c", "d", "e"]}, "stop"),
        ({"stop": [""]}, "stop"),
        ({"stop": 5}, "stop"),
        ({"stop": [5]}, "stop"),
        ({"stop_token_ids": ["x"]}, "stop_token_ids"),
        ({"stop_token_ids": 5}, "stop_token_ids"),
        ({"min_tokens": -1}, "min_tokens"),
        ({"min_tokens": 9, "max_tokens": 3}, "min_tokens"),
    ],
)
def test_wrong_stops_are_refused(request_: dict[str, Any], pattern: str, chat: Chat) -> None:
    chat.refused(request_, pattern)


@pytest.mark.covers("VC-035")
@pytest.mark.parametrize("stop", [None, [], "never-to-be-seen"])
def test_stop_that_stops_nothing(stop: Any, chat: Chat, script: ScriptWriter) -> None:
    script("Rain in Rome.", times=2)
    answers = chat.both(but=COUNTED, stop=stop, max_tokens=20)
    if script.exact:
        assert answers.output.content.strip() == "Rain in Rome."


@pytest.mark.vllm_scripted
@pytest.mark.vllm_needs("reasoning")
@pytest.mark.covers("VC-035", "VT-016")
@pytest.mark.vllm_known_defect("reasoning-tokens-stream-beside-stop-string")
def test_thoughts_count_the_same_beside_a_stop_string(chat: Chat, script: ScriptWriter) -> None:
    """The count must not depend on the chunks, whose sizes depend on how fast the client reads."""
    script("Rain in Rome.", times=2 * len(CUTS))
    for tokens in CUTS:
        chat.both(stop="never-to-be-seen", stream_interval=tokens)
