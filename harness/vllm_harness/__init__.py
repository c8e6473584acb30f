"""vLLM integration harness: launches real vLLM servers and checks what their clients see.

What a user needs has a short import; each name is loaded when it is first used, so that this import is free.

Servers with clients of the openai SDK; every error is a `HarnessError`, and wrong use a `UsageError`:

    from vllm_harness import AttachedServer, HarnessError, ModelEntry, RemoteServer, UsageError
    from vllm_harness import attach, load_models

    try:
        with RemoteServer("qwen3", lane="scripted", vllm="0.32.0") as server:
            server.script("Hello!")
            print(server.client().responses.create(model=server.model, input="Hi").output_text)
    except UsageError as error:
        print("wrong use:", error)
    except HarnessError as error:
        print(error.message, error.hint)

    entry: ModelEntry = load_models().get("qwen3")
    attached = AttachedServer(attach("http://host:8000"), entry, model="my-model")

Scripts of the scripted lane, as meaning or as a family's native text, one book of rules for each client:

    from vllm_harness import Meaning, Raw, RemoteServer, ScriptBook, ToolCall, When

    def scripted(server: RemoteServer) -> None:
        book = ScriptBook(server.endpoint, server.entry)
        weather = ToolCall("get_weather", {"city": "Paris"})
        book.script(reasoning="I need the weather.", calls=[weather], when=When(tools=("get_weather",)))
        book.script(Meaning.of("It is sunny."), when=When(tool_output="sunny"))
        book.script(Raw("<tool_call>never closed"))
        answer = book.client().responses.create(model=server.model, input="Weather in Paris?")

Checks of what a client received, of any of the APIs, without a server:

>>> from vllm_harness import KnownDeviation, apply_known, compare_stream, parse_sse
>>> from vllm_harness import validate_body, validate_stream
>>> error = {"message": "no such model", "type": "NotFoundError", "param": None, "code": 404}
>>> validate_body({"error": error})
[]
>>> chunk = b'data: {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": []}'
>>> findings = validate_stream(parse_sse([chunk, b"\\n\\n"]), api="chat")
>>> "SE107" in {finding.code for finding in findings}  # `validate explain SE107`: the stream has no end
True
>>> known = KnownDeviation(code="SE107", reference="vllm#46940", versions="<0.26", note="the end is missing")
>>> [finding.known for finding in apply_known(findings, [known], "0.24.0") if finding.code == "SE107"]
['vllm#46940']
>>> compare_stream([])
[]

A stream of the SDK that is checked while it is read:

    from openai import AsyncOpenAI, OpenAI

    from vllm_harness import Finding, ProtocolViolation, Severity, validate_stream_async, watch, watch_async

    def read(client: OpenAI) -> None:
        try:
            for event in watch(client.responses.create(model="m", input="Hi", stream=True)):
                print(event.type)
        except ProtocolViolation as violation:
            errors: list[Finding] = [each for each in violation.findings if each.severity is Severity.ERROR]
            print(*errors, sep="\\n")

    async def read_async(client: AsyncOpenAI) -> None:
        stream = await client.responses.create(model="m", input="Hi", stream=True)
        events = [event async for event in watch_async(stream, raises=False)]
        stream = await client.responses.create(model="m", input="Hi", stream=True)
        findings = await validate_stream_async(stream)

Tests with the fixtures of the pytest plugin:

    from vllm_harness import ScriptWriter, expect_content, known_defect, skip

    @known_defect("vllm-46940")
    def test_usage(vllm_server, openai_client, script: ScriptWriter, check_body) -> None:
        script("Hello!")
        body = openai_client.responses.create(model=vllm_server.model, input="Hi")
        check_body(body)
        expect_content("hello" in body.output_text.lower(), f"a greeting, not {body.output_text!r}")
        if body.usage is None:
            skip("no-usage", "this server counts no tokens")
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vllm_harness._configuration.model_entries import ModelEntry, load_models
    from vllm_harness._errors import HarnessError, UsageError
    from vllm_harness._exchange.endpoint import attach
    from vllm_harness._protocol import (
        Finding,
        KnownDeviation,
        ProtocolViolation,
        Severity,
        apply_known,
        compare_stream,
        parse_sse,
        validate_body,
        validate_stream,
        validate_stream_async,
        watch,
        watch_async,
    )
    from vllm_harness._scripted.book import Raw, ScriptBook, When
    from vllm_harness._scripted.meaning import Meaning, ToolCall
    from vllm_harness._server.attached import AttachedServer
    from vllm_harness._server.remote import RemoteServer
    from vllm_harness._testing.content import expect_content
    from vllm_harness._testing.fixtures import ScriptWriter
    from vllm_harness._testing.marks import known_defect
    from vllm_harness._testing.skips import skip

__all__ = [
    "AttachedServer",
    "Finding",
    "HarnessError",
    "KnownDeviation",
    "Meaning",
    "ModelEntry",
    "ProtocolViolation",
    "Raw",
    "RemoteServer",
    "ScriptBook",
    "ScriptWriter",
    "Severity",
    "ToolCall",
    "UsageError",
    "When",
    "apply_known",
    "attach",
    "compare_stream",
    "expect_content",
    "known_defect",
    "load_models",
    "parse_sse",
    "skip",
    "validate_body",
    "validate_stream",
    "validate_stream_async",
    "watch",
    "watch_async",
]

_MODULES = {
    "_configuration.model_entries": ("ModelEntry", "load_models"),
    "_exchange.endpoint": ("attach",),
    "_errors": ("HarnessError", "UsageError"),
    "_protocol": (
        "Finding",
        "KnownDeviation",
        "ProtocolViolation",
        "Severity",
        "apply_known",
        "compare_stream",
        "parse_sse",
        "validate_body",
        "validate_stream",
        "validate_stream_async",
        "watch",
        "watch_async",
    ),
    "_scripted.book": ("Raw", "ScriptBook", "When"),
    "_scripted.meaning": ("Meaning", "ToolCall"),
    "_server.attached": ("AttachedServer",),
    "_server.remote": ("RemoteServer",),
    "_testing.content": ("expect_content",),
    "_testing.fixtures": ("ScriptWriter",),
    "_testing.marks": ("known_defect",),
    "_testing.skips": ("skip",),
}
_HOMES = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> object:
    """A name of `__all__`, loaded by its first use. Raises AttributeError for any other."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """The names of the short import among the rest."""
    return sorted({*globals(), *__all__})
