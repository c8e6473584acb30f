"""Tests of a model whose answers vary."""

from pathlib import Path

from vllm_harness import expect_content

TRIES = Path("tries")


def ask(client, model, **more):
    chat = client.chat.completions.create(
        model=model, messages=[{"role": "user", "content": "Name a colour."}], max_tokens=8, **more
    )
    return chat.choices[0].message.content


def test_the_third_try_is_right(vllm_server, openai_client):
    ask(openai_client, vllm_server.model)
    tries = len(TRIES.read_text()) if TRIES.exists() else 0
    TRIES.write_text("x" * (tries + 1))
    expect_content(tries >= 2, f"a third try, not number {tries + 1}")


def test_any_answer(vllm_server, openai_client):
    with Path("answers").open("a") as answers:
        answers.write(repr(ask(openai_client, vllm_server.model)) + "\n")


def test_a_protocol_error_is_not_retried(vllm_server):
    with Path("wrong").open("a") as wrong:
        wrong.write("x")
    raise AssertionError("wrong")
