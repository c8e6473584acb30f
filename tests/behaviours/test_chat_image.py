"""Images over Chat Completions: models that support images accept them, others refuse with a reason."""

from __future__ import annotations

import base64
import struct
import zlib
from typing import Any

import pytest

from tests.chat_api import Chat
from vllm_harness._testing.content import expect_content


def red_square(side: int = 32) -> str:
    """Returns a PNG as a data URL."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = b"".join(b"\0" + b"\xff\0\0" * side for _ in range(side))
    header = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    png = (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(rows))
        + chunk(b"IEND", b"")
    )
    return f"data:image/png;base64,{base64.b64encode(png).decode()}"


def about(url: str) -> list[Any]:
    """Returns a question about one image."""
    image = {"type": "image_url", "image_url": {"url": url}}
    return [{"role": "user", "content": [image, {"type": "text", "text": "Which colour is this? One word."}]}]


@pytest.mark.vllm_live
@pytest.mark.vllm_needs("image")
@pytest.mark.covers("VC-041")
def test_image(chat: Chat) -> None:
    answers = chat.both(about(red_square()), max_tokens=20)
    expect_content("red" in answers.output.content.lower(), f"red, not {answers.output.content!r}")


@pytest.mark.vllm_live
@pytest.mark.vllm_needs("image")
@pytest.mark.covers("VC-041")
def test_image_that_is_none(chat: Chat) -> None:
    broken = f"data:image/png;base64,{base64.b64encode(b'no image').decode()}"
    chat.refused({"messages": about(broken)}, "image")


@pytest.mark.covers("VC-041")
@pytest.mark.vllm_known_defect("harmony-drops-parts-without-text")
def test_image_is_read_or_refused(chat: Chat) -> None:
    if "image" in chat.server.entry.capabilities:
        chat.body(about(red_square()), max_tokens=5)
        return
    chat.refused({"messages": about(red_square()), "max_tokens": 5}, "image|multimodal|text")
