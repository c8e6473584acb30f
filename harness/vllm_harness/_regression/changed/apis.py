"""The HTTP APIs whose code a change of vLLM's files can have touched, for the suites that test them."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from vllm_harness._regression.changed.imports import Import, Package, is_below


@dataclass(frozen=True)
class ApiCode:
    """An API of vLLM's, and what tests it.

    Attributes:
        name: for reading.
        package: with its code.
        tests: pattern of the files that test no other API.
    """

    name: str
    package: str
    tests: str


APIS = (
    ApiCode("Responses", "vllm.entrypoints.openai.responses", "test_responses*.py"),
    ApiCode("Chat Completions", "vllm.entrypoints.openai.chat_completion", "test_chat*.py"),
    ApiCode("Messages", "vllm.entrypoints.anthropic", "test_messages*.py"),
)
_PACKAGES = tuple(api.package for api in APIS)
_NO_API_RUNS = (
    *("vllm.entrypoints.generate.api_router", "vllm.entrypoints.generate.factories"),
    *("vllm.entrypoints.launchers", "vllm.entrypoints.scale_out", "vllm.entrypoints.cohere"),
)
"""What imports the code of APIs only to mount them, or for an API of its own."""


def touched_apis(package: Path, changed: Collection[str]) -> tuple[ApiCode, ...]:
    """The APIs whose packages have, or import, a changed file.

    All of them where a changed file stands in no API's package, or is imported by code that all share.

    Args:
        package: the folder of vLLM's package after the change.
        changed: files, by their paths below the package.
    """
    sources = Package(package, _PACKAGES)
    modules = {api: list(sources.modules(api.package)) for api in APIS}
    own = {sources.file(module) for each in modules.values() for module in each}
    if not set(changed) <= own - sources.reached(_shared(sources)):
        return APIS
    reached = {api: sources.reached(map(Import, modules[api])) for api in APIS}
    return tuple(api for api in APIS if not reached[api].isdisjoint(changed))


def _shared(sources: Package) -> Iterator[Import]:
    """The code of APIs that modules beside them import."""
    words = [package.rpartition(".")[2] for package in _PACKAGES]
    for module in sources.modules("vllm"):
        if not is_below(module, (*_PACKAGES, *_NO_API_RUNS)) and sources.names_any(module, words):
            source = sources.source(module)
            yield from (
                each for each in (source.imports if source else ()) if is_below(each.module, _PACKAGES)
            )
