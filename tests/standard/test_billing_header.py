"""Claude Code's billing header is not in prompts of chat requests that a gateway made from Messages."""

from __future__ import annotations

import pytest

from tests.behaviours.test_messages_text import BILLING
from tests.chat_api import Chat
from vllm_harness._testing.fixtures import ScriptWriter

pytestmark = [pytest.mark.vllm_standard, pytest.mark.vllm_scripted]

TEXT = "Be brief."
FORMS = {
    "a line": f"{BILLING}\n{TEXT}",
    "a part": [{"type": "text", "text": BILLING}, {"type": "text", "text": TEXT}],
}


@pytest.mark.covers("VA-009")
@pytest.mark.parametrize("system", FORMS.values(), ids=FORMS.keys())
def test_header_is_left_out(system: object, chat: Chat, script: ScriptWriter) -> None:
    """The header changes with every request, so it would defeat prefix caching if it were in the prompt."""
    script("Fine.", times=2, name="fine", keep_prompt=True)
    for content in (TEXT, system):
        messages = [{"role": "system", "content": content}, {"role": "user", "content": "Hi"}]
        chat.body(messages=messages)
    without, with_header = script.prompts("fine")
    assert with_header == without
