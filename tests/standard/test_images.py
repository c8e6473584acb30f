"""Images over Responses, Chat Completions and Messages, on a stand-in for a model with image input."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import openai
import pytest

from tests.own_server import OwnServer
from vllm_harness._configuration.model_entries import load_models
from vllm_harness._exchange.server import VllmServer
from vllm_harness._scenarios.format import Scenario
from vllm_harness._scenarios.images import image_host
from vllm_harness._scenarios.reading import find_scenario, read_scenario
from vllm_harness._scenarios.results import Conversation
from vllm_harness._scenarios.running import run, transports_of
from vllm_harness._scripted.book import ScriptBook

pytestmark = [
    pytest.mark.vllm_standard,
    pytest.mark.vllm_scripted,
    pytest.mark.vllm_model("qwen3"),
    pytest.mark.vllm_needs("responses", "store", "tools"),
    pytest.mark.timeout(400),
]

PNG = "data:image/png;base64,"
WIDE, TALL = "1x2", "2x1"
MANY_PIXELS = f"{PNG}iVBORw0KGgoAAAANSUhEUgAATiAAAE4gAQAAAADLC3uUAAAACUlEQVR42mMAAAABAAGxDbaTAAAAAElFTkSuQmCC"
"""A PNG whose header says that it has 20000 x 20000 pixels."""
UNSEEN = f"{PNG}iVBORw0KGgoAAAANSUhEUgAAAAgAAAAIAQAAAADsdIMmAAAADElEQVR42mP4z4ACAT/QB/lnLUmhAAAAAElFTkSuQmCC"
"""An image that no other test sends, so that the server has not seen it."""
SMALL = (
    f"{PNG}iVBORw0KGgoAAAANSUhEUgAAABAAAAAIAQAAAADYDUI6AAAADklEQVR42mP4/58BGwIAv1gP8dMhLvgAAAAASUVORK5CYII="
)
OVER = [["responses", "responses-history"], ["chat"], ["messages"]]
Held = Callable[..., list[Conversation]]
over_each = pytest.mark.parametrize("transports", OVER, ids=[names[0] for names in OVER])


@pytest.fixture
def server(own_server: OwnServer) -> VllmServer:
    """A server with a model that accepts images."""
    return own_server(["--enable-prompt-tokens-details"], entry=load_models().get("smolvlm-256m"))


@pytest.fixture
def held(server: VllmServer) -> Held:
    """Runs a scenario over several APIs, in bodies and streams; fails on any mismatch."""

    def hold(story: str | Scenario, transports: list[str]) -> list[Conversation]:
        scenario = story if isinstance(story, Scenario) else read_scenario(find_scenario(story))
        conversations = run(scenario, server, transports_of(transports))
        problems = [problem for each in conversations for problem in each.problems()]
        assert not problems, "\n".join(problems)
        return conversations

    return hold


def shown(prompt: str) -> list[str]:
    """Returns the images in a prompt in order, each as the rows and columns of its tiles."""
    last = re.findall(r"<row_(\d)_col_(\d)>(?:(?!<row_)[\s\S])*?<global-img>", prompt)
    return [f"{rows}x{columns}" for rows, columns in last]


def prompts(conversation: Conversation) -> list[list[str]]:
    """Returns the images in each turn's prompt."""
    return [shown(turn.prompt.text) for turn in conversation.turns if turn.prompt]


@pytest.mark.covers("VC-041", "VA-007", "VR-055", "OR-006", "AG-004")
@over_each
def test_images_over_turns(held: Held, transports: list[str]) -> None:
    """Each prompt contains the conversation's images in order, whether they are sent as data or by URL."""
    for conversation in held("images", transports):
        assert prompts(conversation) == [[WIDE], [WIDE, TALL], [WIDE, TALL], [TALL, WIDE]]


@pytest.mark.covers("VC-041", "VA-007", "VA-008", "AG-004")
@over_each
def test_image_in_a_tools_output(held: Held, transports: list[str]) -> None:
    for conversation in held("tool-images", transports):
        assert prompts(conversation) == [[], [WIDE], [WIDE], [WIDE, TALL]]


@pytest.mark.covers("VC-041", "VA-007", "VR-055")
@over_each
def test_data_that_is_not_an_image_is_refused(held: Held, transports: list[str]) -> None:
    """Bad base64, other data, and truncated, empty or mistyped images are refused; the next turn works."""
    for conversation in held("images-refused", transports):
        assert prompts(conversation) == [[WIDE], [WIDE, TALL]]


@pytest.mark.covers("VC-041")
@pytest.mark.parametrize("transports", OVER[:2], ids=["responses", "chat"])
def test_image_missing_on_its_host(held: Held, transports: list[str]) -> None:
    """vLLM requests the image, and reports the host's 404 as a client error."""
    with image_host() as host:
        held(one_refused(host.address("/none.png"), http=422), transports)
        assert host.requested


@pytest.mark.covers("VC-041")
@pytest.mark.vllm_known_defect("image-of-too-many-pixels-is-a-server-error")
@pytest.mark.parametrize("transports", OVER[:2], ids=["responses", "chat"])
def test_image_with_too_many_pixels(held: Held, transports: list[str]) -> None:
    held(one_refused(MANY_PIXELS, http=400), transports)


@pytest.mark.covers("VC-041", "VA-007", "VR-055")
@pytest.mark.parametrize(
    "transports",
    [*OVER[:2], pytest.param(OVER[2], marks=pytest.mark.vllm_known_defect("vllm-57997"))],
    ids=[names[0] for names in OVER],
)
def test_more_images_than_the_server_accepts(own_server: OwnServer, transports: list[str]) -> None:
    """A flag limits the number of images; a request with too many images gets a client error."""
    limit = ["--limit-mm-per-prompt", '{"image": 1}']
    server = own_server(limit, entry=load_models().get("smolvlm-256m"))
    for conversation in run(one_refused(UNSEEN, UNSEEN, http=400), server, transports_of(transports)):
        problems = list(conversation.problems())
        assert not problems, "\n".join(problems)


@pytest.mark.covers("VC-025", "VC-041")
def test_tokens_of_an_image_are_counted(server: VllmServer) -> None:
    """Body and stream count the same number of image tokens, at most what the image adds to the prompt."""
    text, image = {"type": "text", "text": "Hi"}, {"type": "image_url", "image_url": {"url": SMALL}}
    book = ScriptBook(server.endpoint, server.entry)
    book.script("A banner.", times=3)

    def usage(*parts: Any, **more: Any) -> Any:
        messages: Any = [{"role": "user", "content": list(parts)}]
        answer: Any = book.client().chat.completions.create(model=server.model, messages=messages, **more)
        return [*answer][-1].usage if more else answer.usage

    without = usage(text).prompt_tokens
    body, stream = usage(text, image), usage(text, image, stream=True, stream_options={"include_usage": True})
    counted = body.prompt_tokens_details.multimodal_tokens
    assert 0 < counted["image"] <= body.prompt_tokens - without
    assert stream.prompt_tokens_details.multimodal_tokens == counted
    book.verify()
    book.close()


def one_refused(*images: str, **expect: int) -> Scenario:
    """Returns a scenario with one turn whose images the server must refuse."""
    user = [{"text": "What is this?"}, *({"image": image} for image in images)]
    turn = {"name": "refused", "user": user, "expect": {"status": "refused", **expect}, "say": "never said"}
    return Scenario.model_validate({"scenario": 1, "turns": [turn]})


@pytest.mark.covers("VC-041")
@pytest.mark.vllm_known_defect("vllm-46354")
def test_image_of_a_refused_request_is_accepted_afterwards(server: VllmServer) -> None:
    """An image in a request that was refused for another reason can be sent again."""
    asked = [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": UNSEEN}}]}]
    book = ScriptBook(server.endpoint, server.entry)
    try:
        book.script("A banner.", times=None)
        create: Any = book.client(timeout=60, max_retries=0).chat.completions.create
        with pytest.raises(openai.BadRequestError):
            create(model=server.model, messages=asked, max_tokens=5, extra_body={"min_tokens": 6})
        assert create(model=server.model, messages=asked).choices[0].message.content == "A banner."
    finally:
        book.close()


@pytest.mark.covers("VC-041")
def test_known_image_can_be_sent_by_uuid_alone(server: VllmServer) -> None:
    """vLLM's `uuid` can replace an image that was sent before; an unknown `uuid` is refused."""
    book = ScriptBook(server.endpoint, server.entry)
    try:
        book.script("A banner.", times=None)
        create: Any = book.client(timeout=60, max_retries=0).chat.completions.create

        def asked(image: Any, uuid: str) -> Any:
            part = {"type": "image_url", "image_url": image, "uuid": uuid}
            return create(model=server.model, messages=[{"role": "user", "content": [part]}])

        whole, named = asked({"url": SMALL}, "banner"), asked(None, "banner")
        assert named.choices[0].message.content == "A banner."
        assert named.usage.prompt_tokens == whole.usage.prompt_tokens
        with pytest.raises(openai.BadRequestError):
            asked(None, "never sent")
    finally:
        book.close()
