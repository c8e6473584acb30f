"""An async test under pytest-asyncio's strict mode."""

import pytest


@pytest.mark.asyncio
async def test_the_agent_streams(vllm_server, async_openai_client, script):
    script("Hello!")
    stream = await async_openai_client.responses.create(model=vllm_server.model, input="Hi", stream=True)
    assert [event.type async for event in stream][-1] == "response.completed"
