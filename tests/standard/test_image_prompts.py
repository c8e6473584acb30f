"""Prompts with images have, over each API, the tokens that the model's template and processor specify."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from tests.apis import PATHS, Api, Json
from tests.own_server import OwnServer
from tests.standard.conversation import template_of, token_ids
from vllm_harness._configuration.model_entries import load_models
from vllm_harness._scripted.book import ScriptBook
from vllm_harness._server.remote import RemoteServer

pytestmark = [
    pytest.mark.vllm_standard,
    pytest.mark.vllm_scripted,
    pytest.mark.vllm_model("qwen3"),
    pytest.mark.vllm_needs("responses", "chat", "messages"),
    pytest.mark.timeout(400),
]

WIDE = "iVBORw0KGgoAAAANSUhEUgAAAEAAAAAgAQAAAACK5kMpAAAADUlEQVR42mNgGAX4AAABIAAB88VDdwAAAABJRU5ErkJggg=="
TALL = "iVBORw0KGgoAAAANSUhEUgAAACAAAABAAQAAAABT9UgDAAAADUlEQVR42mNgGAWUAAABQAAB9wSuxgAAAABJRU5ErkJggg=="
TILES: Mapping[str, tuple[int, int]] = {WIDE: (1, 2), TALL: (2, 1)}
"""PNGs of 64 x 32 and 32 x 64 pixels, with the number of rows and columns of tiles of 32 x 32 pixels."""
SEQUENCE = 4
"""The number of placeholders per tile: the processor's `image_seq_len`."""
CASES: Mapping[str, tuple[str, ...]] = {
    "an image after words": ("What is this?", WIDE),
    "an image before words": (TALL, "What is this?"),
    "images between words": ("Is", WIDE, "wider than", TALL, "or not?"),
    "the same image twice": ("Compare", WIDE, WIDE),
    "an image alone": (TALL,),
}


def expanded(image: str) -> str:
    """Returns the text for an image: its tiles row by row, then the whole image, all as placeholders.

    Source: transformers, models/idefics3/processing_idefics3.py, `_prompt_split_image`.
    """
    around, tile = "<fake_token_around_image>", "<image>" * SEQUENCE
    rows, columns = TILES[image]
    tiles = [
        "".join(f"{around}<row_{row}_col_{column}>{tile}" for column in range(1, columns + 1)) + "\n"
        for row in range(1, rows + 1)
    ]
    return f"{''.join(tiles)}\n{around}<global-img>{tile}{around}"


def expected(server: RemoteServer, parts: Sequence[str]) -> list[int]:
    """Returns the expected prompt: the template's text with each image marker expanded."""
    content = [{"type": "image"} if part in TILES else {"type": "text", "text": part} for part in parts]
    rendered = template_of(server.entry).render(
        messages=[{"role": "user", "content": content}], add_generation_prompt=True
    )
    first, *others = rendered.split("<image>")
    images = [part for part in parts if part in TILES]
    assert len(others) == len(images)
    text = first + "".join(expanded(image) + rest for image, rest in zip(images, others, strict=True))
    return token_ids(server, text)


def request(api: Api, parts: Sequence[str]) -> Json:
    """Returns a request that has a user message with these parts."""
    content = [_image(api, part) if part in TILES else _text(api, part) for part in parts]
    asked = [{"role": "user", "content": content}]
    return {"input": asked} if api == "responses" else {"messages": asked, "max_tokens": 50}


def _text(api: Api, text: str) -> Json:
    return {"type": "input_text" if api == "responses" else "text", "text": text}


def _image(api: Api, data: str) -> Json:
    url = f"data:image/png;base64,{data}"
    match api:
        case "responses":
            return {"type": "input_image", "image_url": url}  # `detail` is omitted; it has a default value
        case "chat":
            return {"type": "image_url", "image_url": {"url": url}}
        case _:
            return {
                "type": "image",
                "source": {"type": "base64", "media_type": "image/png", "data": data},
            }


def prompt(server: RemoteServer, api: Api, parts: Sequence[str]) -> tuple[list[int], int]:
    """Returns the token ids that the engine received, and the number of prompt tokens in the usage."""
    book = ScriptBook(server.endpoint, server.entry)
    written = book.script("A banner.", keep_prompt=True)
    answer = book.endpoint.post(PATHS[api], json={"model": server.model, **request(api, parts)})
    assert answer.status_code == 200, answer.text
    (ids,) = book.prompts(written.name)
    book.verify()
    book.close()
    usage = answer.json()["usage"]
    return ids, usage["prompt_tokens" if api == "chat" else "input_tokens"]


@pytest.mark.covers("VC-041", "VA-007", "VR-055", "OR-006")
def test_prompts_with_images(own_server: OwnServer) -> None:
    """Each API makes the expected tokens, for images that are new to the server and for repeated images."""
    server = own_server(entry=load_models().get("smolvlm-256m"))
    apis: tuple[Api, ...] = ("responses", "chat", "messages")
    wrong = []
    for name, parts in CASES.items():
        ids = expected(server, parts)
        for api in (*apis, apis[0]):
            got, counted = prompt(server, api, parts)
            if got != ids:
                wrong.append(f"{api}, {name}: {ids} by the template, {got} got")
            if counted != len(ids):
                wrong.append(f"{api}, {name}: usage has {counted} tokens of input, not {len(ids)}")
    assert not wrong, "\n".join(wrong)
