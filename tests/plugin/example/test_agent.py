"""Tests of another project, which uses the fixtures of the installed harness."""


def test_the_agent_gets_its_answer(vllm_server, openai_client, script):
    script("The capital of France is Paris.")
    answer = openai_client.responses.create(model=vllm_server.model, input="What is the capital of France?")
    assert "Paris" in answer.output_text


async def test_the_agent_streams(vllm_server, async_openai_client, script):
    script("Hello!")
    stream = await async_openai_client.responses.create(model=vllm_server.model, input="Hi", stream=True)
    assert [event.type async for event in stream][-1] == "response.completed"


def test_an_unused_script_fails(script):
    script("never requested")
