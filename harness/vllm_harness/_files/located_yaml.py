"""Reads YAML files strictly, and reports every problem with file, line and key."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable, Collection
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import TypeAdapter, ValidationError

from vllm_harness._errors import UsageError

MAX_BYTES = 2_000_000
MAX_DEPTH = 100
"""The maximum number of nesting levels; libyaml is recursive, and crashes at about ten thousand."""
_STARTS = "-?:[{"
"""Every YAML mapping and every YAML list contains at least one of these characters."""
_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
MAX_PARTS = 2_000_000
PART = 2**20
"""The number of bytes to read at a time."""

T = TypeVar("T")
Location = tuple[int | str, ...]
_TEXT_ERRORS = {"string_type", "model_type"}
_TYPE_ERRORS = {*_TEXT_ERRORS, "int_type", "bool_type"}


class YamlFileError(UsageError):
    """The file is missing, too large, not UTF-8, not valid YAML, or has a duplicate key."""


@dataclass(frozen=True)
class Document:
    """The data of a YAML file, and the position of each part."""

    path: Path
    data: Any
    root: yaml.Node

    def line(self, location: Location) -> int:
        """The line of a key or list item; if it is missing, the line of the innermost value that exists."""
        line: int = self.root.start_mark.line + 1
        node = self.root
        for part in location:
            child = _child(node, part)
            if child is not None:  # None for missing keys, and for the union tags that pydantic adds
                line, node = child
        return line

    def node(self, location: Location) -> yaml.Node | None:
        """The node of a key or list item; None if it is missing."""
        node = self.root
        for part in location:
            child = _child(node, part)
            if child is None:
                return None
            node = child[1]
        return node

    def located(
        self, error: ValidationError, keys_at: Callable[[Location], Collection[str]]
    ) -> list[tuple[Location, str]]:
        """The location and message of each problem; see `problems` for the arguments."""
        problems = []
        for problem in error.errors():
            kind, value, message = problem["type"], problem["input"], problem["msg"]
            location = self._written(problem["loc"], kind)
            node = self.node(location)
            if problem["loc"][-1:] == ("[key]",):
                key = self._written_key(location, value)
                location, message = (*location, key), message + _as_read(key, value)
            else:
                message = _message(kind, message, location, keys_at)
                if kind in _TYPE_ERRORS and isinstance(node, yaml.ScalarNode):
                    message += _as_read(node.value, value, kind in _TEXT_ERRORS)
            problems.append((location, message))
        return problems

    def validated(
        self,
        kind: type[T] | TypeAdapter[T],
        error: type[UsageError] = UsageError,
        keys_at: Callable[[Location], Collection[str]] = lambda location: (),
        data: Any = None,
    ) -> T:
        """Validates the data as a pydantic model, or as another type that pydantic supports.

        Args:
            kind: the type, or a pydantic TypeAdapter for it.
            error: the class of the error to raise.
            keys_at: see `problems`.
            data: data to validate instead of the document's, with the same locations.

        Raises:
            UsageError: the data is invalid; the class is `error`, the message has file, line and key.
        """
        adapter = kind if isinstance(kind, TypeAdapter) else TypeAdapter(kind)
        try:
            return adapter.validate_python(self.data if data is None else data)
        except ValidationError as invalid:
            raise error(self.problems(invalid, keys_at)) from invalid

    def problems(self, error: ValidationError, keys_at: Callable[[Location], Collection[str]]) -> str:
        """Formats the problems in a pydantic error, one per line: `file:line: key: message`.

        Args:
            error: the error from validating this document's data.
            keys_at: returns the keys that are allowed at a location, for suggestions; empty if unknown.
        """
        return "\n".join(self.problem(*located) for located in self.located(error, keys_at))

    def problem(self, location: Location, message: str) -> str:
        """Formats a problem at a location in the document as a line: `file:line: key: message`."""
        return f"{self.path}:{self.line(location)}: {'.'.join(map(str, location))}: {message}"

    def check_version(self, key: str, version: int, error: type[UsageError], hint: str) -> None:
        """Raises an error unless the document states the given version of its format.

        Args:
            key: the key under which the document states the version.
            version: the version that the harness reads.
            error: the class of the error to raise.
            hint: the hint to show if the key is missing.
        """
        if not isinstance(self.data, dict) or key not in self.data:
            raise error(f"{self.path}:1: {key}: the version of the format is missing", hint=hint)
        found = self.data[key]
        if found is True or found != version:
            message = self.problem((key,), f"version {found!r} of the format is unknown")
            raise error(message, hint=f"this harness reads version {version}")

    def _written(self, location: Location, kind: str) -> Location:
        """A location without the union tags that pydantic inserts between the keys."""
        parts = location[:-2] if location[-1:] == ("[key]",) else location
        written: Location = ()
        for number, part in enumerate(parts, start=1):
            missing = kind == "missing" and number == len(parts)
            if missing or self.node((*written, part)) is not None:
                written = (*written, part)
        return written

    def _written_key(self, location: Location, key: Any) -> str:
        """A mapping's key as it is written in the file, such as `yes` for True."""
        node = self.node(location)
        pairs = node.value if isinstance(node, yaml.MappingNode) else []
        names = (str(key_node.value) for key_node, _ in pairs)
        return next((name for name in names if yaml.safe_load(name) == key), str(key))


def read_yaml(path: Path, *, max_bytes: int = MAX_BYTES) -> Document:
    """Reads one YAML document with safe tags only.

    Args:
        path: the file, which is decompressed if its name ends with `.gz`.
        max_bytes: the maximum size of the decompressed text.

    Raises:
        YamlFileError: the file cannot be read, or is invalid.
    """
    text = read_text(path, max_bytes=max_bytes)
    try:
        if sum(map(text.count, _STARTS)) > MAX_DEPTH:
            _refuse_deep(text, path)
        loader = _Loader(text)
        root = loader.get_single_node()
        if root is None:
            raise YamlFileError(f"{path}:1: the file is empty", hint="check that it is the file you mean")
        _refuse_duplicates(root, path)
        if "&" in text:
            _refuse_many_aliases(root, path)
        return Document(path, loader.construct_document(root), root)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else 1
        raise YamlFileError(
            f"{path}:{line}: {error.problem or error.context}", hint="fix the YAML at that line"
        ) from error
    except (yaml.YAMLError, ValueError) as error:
        raise YamlFileError(f"{path}: {error}") from error


def read_text(path: Path, *, max_bytes: int = MAX_BYTES) -> str:
    """Reads the text of a file, decompressed up to the limit if its name ends with `.gz`.

    Raises:
        YamlFileError: the file is missing, damaged, larger than `max_bytes`, or not UTF-8.
    """
    compressed = path.name.endswith(".gz")
    raw = b""
    try:
        with gzip.open(path) if compressed else path.open("rb") as file:
            while len(raw) <= max_bytes and (part := file.read(min(max_bytes + 1 - len(raw), PART))):
                raw += part
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        line = raw.count(b"\n") + 1
        raise YamlFileError(
            f"{path}:{line}: the compressed data is truncated or damaged: {error}", hint="get the file again"
        ) from error
    except OSError as error:
        raise YamlFileError(
            f"{path}: {error.strerror}", hint="check the path, and that this user may read the file"
        ) from error
    if len(raw) > max_bytes:
        unpacked = " when it is decompressed" if compressed else ""
        raise YamlFileError(
            f"{path}:1: more than {max_bytes} bytes{unpacked}", hint="check that it is the file you mean"
        )
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise YamlFileError(
            f"{path}:{line}: not UTF-8 at byte {error.start}", hint="save it as UTF-8"
        ) from error


def _refuse_deep(text: str, path: Path) -> None:
    depth = 0
    for event in yaml.parse(text, Loader=_Loader):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > MAX_DEPTH:
            line = event.start_mark.line + 1 if event.start_mark else 1
            raise YamlFileError(f"{path}:{line}: nested too deeply", hint="write it with fewer levels")


def _refuse_duplicates(root: yaml.Node, path: Path) -> None:
    seen: set[int] = set()  # an alias shares the node of its anchor, which needs only one visit
    pending = [root]
    while pending:
        node = pending.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, yaml.SequenceNode):
            pending += node.value
        elif isinstance(node, yaml.MappingNode):
            keys: set[str] = set()
            for key, value in node.value:
                name = str(key.value)
                if name in keys:
                    raise YamlFileError(
                        f"{path}:{key.start_mark.line + 1}: duplicate key {name!r}",
                        hint="keep one of the two",
                    )
                keys.add(name)
                pending.append(value)


def _refuse_many_aliases(root: yaml.Node, path: Path) -> None:
    """Refuses a document whose nested aliases expand to too many values."""
    sizes: dict[int, int] = {}

    def size(node: yaml.Node) -> int:
        if id(node) not in sizes:
            sizes[id(node)] = MAX_PARTS + 1  # in case the node contains itself
            sizes[id(node)] = 1 + sum(map(size, _children(node)))
        return sizes[id(node)]

    if size(root) > MAX_PARTS:
        raise YamlFileError(
            f"{path}:1: its aliases stand for more than {MAX_PARTS} values",
            hint="write it with fewer aliases",
        )


def _children(node: yaml.Node) -> list[yaml.Node]:
    if isinstance(node, yaml.SequenceNode):
        return list(node.value)
    if isinstance(node, yaml.MappingNode):
        return [part for pair in node.value for part in pair]
    return []


def _message(
    kind: str, message: str, location: Location, keys_at: Callable[[Location], Collection[str]]
) -> str:
    if kind == "model_type":
        return "Input should be a mapping"
    if kind != "extra_forbidden":
        return message.removeprefix("Value error, ")
    near = get_close_matches(str(location[-1]), keys_at(location[:-1]), n=1)
    return f"unknown key, did you mean {near[0]!r}?" if near else "unknown key"


def _as_read(written: str, value: Any, quotes: bool = True) -> str:
    """Explains how YAML reads an unquoted word that is not a string."""
    if isinstance(value, str):
        return ""
    names = {bool: str(value).lower(), type(None): "null", int: "a number", float: "a number"}
    read = names.get(type(value), f"a {type(value).__name__}")
    return f"; YAML reads {written} as {read}" + (f", so write '{written}' in quotes" if quotes else "")


def _child(node: yaml.Node, part: int | str) -> tuple[int, yaml.Node] | None:
    if isinstance(node, yaml.MappingNode):
        for key, value in reversed(node.value):  # keys merged by `<<` come before the mapping's own keys
            if key.value == str(part):
                return key.start_mark.line + 1, value
    if isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
        return node.value[part].start_mark.line + 1, node.value[part]
    return None
