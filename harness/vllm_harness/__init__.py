"""An integration harness for vLLM: launches real servers and checks what their clients see.

The names below are the public interface. Each is loaded when it is first used, so that importing the package
costs nothing; `vllm_harness.__version__` is the version of the package.

Launching servers and getting openai SDK clients; every error is a `HarnessError`, wrong use a `UsageError`:

    from vllm_harness import HarnessError, RemoteServer, ServerDied, ServerError, StartupError, StopFailed
    from vllm_harness import UsageError

    try:
        with RemoteServer("qwen3", lane="scripted", vllm="0.32.0") as server:
            server.script("Hello!")
            print(server.client().responses.create(model=server.model, input="Hi").output_text)
    except UsageError as error:
        print("wrong use:", error)
    except (StartupError, ServerDied, StopFailed) as error:
        print(error.message, *error.lines, error.log_path, sep="\\n")
    except ServerError as error:
        print("another error of a server:", error)
    except HarnessError as error:
        print(error.message, error.hint)

Servers that the harness did not start; `VllmServer` is the common type of these and its own servers:

    from vllm_harness import AttachedServer, Endpoint, ModelEntry, VllmServer, attach, load_models

    endpoint: Endpoint = attach("http://host:8000")
    entry: ModelEntry = load_models().get("qwen3")
    attached: VllmServer = AttachedServer(endpoint, entry, model="my-model")

Scripts for the scripted lane, given as a meaning or as a model family's raw text; one book for each client:

    from vllm_harness import Meaning, Raw, RemoteServer, Script, ScriptBook, ScriptError, ToolCall, When

    def scripted(server: RemoteServer) -> None:
        book = ScriptBook(server.endpoint, server.entry)
        weather = ToolCall("get_weather", {"city": "Paris"})
        book.script(reasoning="I need the weather.", calls=[weather], when=When(tools=("get_weather",)))
        book.script(Meaning.of("It is sunny."), when=When(tool_output="sunny"))
        broken: Script = book.script(Raw("<tool_call>never closed"))
        answer = book.client().responses.create(model=server.model, input="Weather in Paris?")
        try:
            book.verify()
        except ScriptError as error:
            print(broken.name, error)

Checking, without a server, what a client received over any of the APIs:

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

Validating an SDK stream while it is read:

    from openai import AsyncOpenAI, OpenAI

    from vllm_harness import Finding, ProtocolViolation, Severity, validate_stream_async, watch, watch_async

    def read(client: OpenAI) -> None:
        try:
            for event in watch(client.responses.create(model="m", input="Hi", stream=True)):
                print(event.type)
        except ProtocolViolation as violation:
            errors: list[Finding] = [item for item in violation.findings if item.severity is Severity.ERROR]
            print(*errors, sep="\\n")

    async def read_async(client: AsyncOpenAI) -> None:
        stream = await client.responses.create(model="m", input="Hi", stream=True)
        events = [event async for event in watch_async(stream, raises=False)]
        stream = await client.responses.create(model="m", input="Hi", stream=True)
        findings = await validate_stream_async(stream)

Tests that use the fixtures of the pytest plugin, with the type of each fixture:

    from openai import OpenAI

    from vllm_harness import BodyCheck, SameCheck, ScenarioRunner, ScriptWriter, StreamCheck, VllmServer
    from vllm_harness import expect_content, known_defect, skip

    @known_defect("vllm-46940")
    def test_usage(
        vllm_server: VllmServer, openai_client: OpenAI, script: ScriptWriter, check_body: BodyCheck
    ) -> None:
        script("Hello!")
        body = openai_client.responses.create(model=vllm_server.model, input="Hi")
        check_body(body)
        expect_content("hello" in body.output_text.lower(), f"a greeting, not {body.output_text!r}")
        if body.usage is None:
            skip("no-usage", "this server counts no tokens")

    def test_story(scenario: ScenarioRunner) -> None:
        scenario("story.yaml")

    def test_same(
        vllm_server: VllmServer, openai_client: OpenAI, check_stream: StreamCheck, check_same: SameCheck
    ) -> None:
        create = openai_client.responses.create
        events = list(create(model=vllm_server.model, input="Hi", temperature=0, stream=True))
        check_stream(events)
        check_same(events, create(model=vllm_server.model, input="Hi", temperature=0))
"""

import importlib as _importlib
import typing as _typing

if _typing.TYPE_CHECKING:
    from vllm_harness._configuration.model_entries import ModelEntry, load_models
    from vllm_harness._errors import HarnessError, UsageError
    from vllm_harness._exchange.endpoint import Endpoint, attach
    from vllm_harness._exchange.server import VllmServer
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
    from vllm_harness._scripted.book import Raw, Script, ScriptBook, ScriptError, When
    from vllm_harness._scripted.meaning import Meaning, ToolCall
    from vllm_harness._server.attached import AttachedServer
    from vllm_harness._server.errors import ServerDied, ServerError, StartupError, StopFailed
    from vllm_harness._server.remote import RemoteServer
    from vllm_harness._testing.checks import BodyCheck, SameCheck, StreamCheck
    from vllm_harness._testing.content import expect_content
    from vllm_harness._testing.fixtures import ScriptWriter
    from vllm_harness._testing.marks import known_defect
    from vllm_harness._testing.scenarios import ScenarioRunner
    from vllm_harness._testing.skips import skip

    __version__: str

__all__ = [
    "AttachedServer",
    "BodyCheck",
    "Endpoint",
    "Finding",
    "HarnessError",
    "KnownDeviation",
    "Meaning",
    "ModelEntry",
    "ProtocolViolation",
    "Raw",
    "RemoteServer",
    "SameCheck",
    "ScenarioRunner",
    "Script",
    "ScriptBook",
    "ScriptError",
    "ScriptWriter",
    "ServerDied",
    "ServerError",
    "Severity",
    "StartupError",
    "StopFailed",
    "StreamCheck",
    "ToolCall",
    "UsageError",
    "VllmServer",
    "When",
    "__version__",
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
    "_errors": ("HarnessError", "UsageError"),
    "_exchange.endpoint": ("Endpoint", "attach"),
    "_exchange.server": ("VllmServer",),
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
    "_scripted.book": ("Raw", "Script", "ScriptBook", "ScriptError", "When"),
    "_scripted.meaning": ("Meaning", "ToolCall"),
    "_server.attached": ("AttachedServer",),
    "_server.errors": ("ServerDied", "ServerError", "StartupError", "StopFailed"),
    "_server.remote": ("RemoteServer",),
    "_testing.checks": ("BodyCheck", "SameCheck", "StreamCheck"),
    "_testing.content": ("expect_content",),
    "_testing.fixtures": ("ScriptWriter",),
    "_testing.marks": ("known_defect",),
    "_testing.scenarios": ("ScenarioRunner",),
    "_testing.skips": ("skip",),
}
_HOMES = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> object:
    """Loads a name in `__all__` when it is first used. Raises AttributeError for any other name."""
    if name == "__version__":
        value: object = _importlib.import_module("importlib.metadata").version("vllm-harness")
    elif name in _HOMES:
        value = getattr(_importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Lists the public names, loaded or not, and the other globals of this module."""
    return sorted({*globals(), *__all__})
