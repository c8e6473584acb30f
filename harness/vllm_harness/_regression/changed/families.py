"""Finds the families whose parsers a change of vLLM's files can affect."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

from vllm_harness._regression.changed.imports import Import, ModuleSource, Package
from vllm_harness._scripted.families import Family

_REGISTRIES = {
    "vllm.tool_parsers": "_TOOL_PARSERS_TO_REGISTER",
    "vllm.reasoning": "_REASONING_PARSERS_TO_REGISTER",
}
"""The packages of the two kinds of parsers -> the table there that maps a name to a file and a class."""
_MANAGER = "vllm.parser.parser_manager"
_OF_ALL = (
    Import("vllm.parser.abstract_parser", "DelegatingParser"),
    Import("vllm.reasoning", "ReasoningParserManager"),
    Import("vllm.tool_parsers", "ToolParserManager"),
    Import("vllm.entrypoints.openai.chat_completion.protocol", "ChatCompletionRequest"),
    Import("vllm.tokenizers", "get_tokenizer"),
)
"""What the chat endpoint imports for any parser."""


def touched_families(
    package: Path, families: Iterable[Family], changed: Collection[str]
) -> tuple[Family, ...]:
    """The families whose parsers reach a changed file by static imports.

    Args:
        package: the folder of vLLM's package after the change.
        families: the families to choose from.
        changed: the changed files, as paths below the package.
    """
    sources = Package(package)
    composes_all = sources.file(_MANAGER) in changed
    return tuple(
        family
        for family in families
        if composes_all or not sources.reached(_imports(sources, family)).isdisjoint(changed)
    )


def _imports(package: Package, family: Family) -> Iterator[Import]:
    """The imports of a server for the parsers of a family."""
    yield from _OF_ALL
    names = dict(zip(_REGISTRIES, (family.tool_parser, family.reasoning_parser), strict=True))
    for registry, name in names.items():
        source = package.source(registry)
        table = source.constants.get(_REGISTRIES[registry]) if source else None
        if isinstance(table, dict) and name in table:
            file, parser = table[name]
            yield Import(f"{registry}.{file}", parser)
    if manager := package.source(_MANAGER):
        yield from _composed(manager, {name for name in names.values() if name})


def _composed(manager: ModuleSource, parsers: set[str]) -> Iterator[Import]:
    """The imports of the parser manager in branches whose conditions name one of these parsers."""
    for node in ast.walk(manager.tree):
        if isinstance(node, ast.If) and not parsers.isdisjoint(_texts(node.test, manager)):
            for statement in node.body:
                yield from manager.imports_in(statement)


def _texts(node: ast.AST, source: ModuleSource) -> Iterator[str]:
    """The strings of an expression, including the values of constants that it names."""
    for part in ast.walk(node):
        value: object = part.value if isinstance(part, ast.Constant) else None
        if isinstance(part, ast.Name):
            value = source.constants.get(part.id)
        if isinstance(value, str):
            yield value
