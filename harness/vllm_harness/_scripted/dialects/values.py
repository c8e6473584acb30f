"""Notations for the arguments of a call: JSON, XML-like elements, Python and others."""

from __future__ import annotations

import json
import keyword
import re
import unicodedata
from string import Template
from typing import Annotated, Any, ClassVar, Literal

from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass

from vllm_harness._scripted.dialects.dialect import OTHER_NAME, DialectError, refuse_markers
from vllm_harness._scripted.meaning import ToolCall

_STRICT = ConfigDict(extra="forbid")
_TYPES = {bool: "boolean", type(None): "null", str: "string", dict: "object", list: "array"}


@dataclass(frozen=True, config=_STRICT)
class Json:
    """Arguments as a JSON object; malformed arguments are written unchanged."""

    notation: Literal["json"] = "json"
    end: ClassVar[str] = ""

    def __call__(self, call: ToolCall, dialect: str) -> str:
        return call.arguments_json


@dataclass(frozen=True, config=_STRICT)
class Parameters:
    """Each argument as an element: a string is written unchanged, any other value as JSON.

    Attributes:
        string: the template of a string argument, with `$key`, `$value`, `$type`.
        other: the template of an argument of any other type; by default `string`.
        between: the string between two elements.
        cdata: whether a value that contains `<`, `&` or a newline is written as a CDATA section.
    """

    string: str
    other: str | None = None
    between: str = ""
    cdata: bool = False
    notation: Literal["parameters"] = "parameters"

    @property
    def end(self) -> str:
        """The string that ends a value."""
        return _follows(self.string, "$value")

    def __call__(self, call: ToolCall, dialect: str) -> str:
        return self.between.join(
            self._element(key, value, dialect) for key, value in _mapping(call, dialect).items()
        )

    def _element(self, key: str, value: Any, dialect: str) -> str:
        template = self.string if isinstance(value, str) else self.other or self.string
        written = value if isinstance(value, str) else _json(value)
        if self.cdata and re.search("[<&\n]", written):
            refuse_markers(written, ("]]>",), dialect)
            written = f"<![CDATA[{written}]]>"
        else:
            refuse_markers(written, (_follows(template, "$value"),), dialect)
        refuse_markers(key, (_follows(template, "$key")[0],), dialect)
        return Template(template).substitute(key=key, value=written, type=_TYPES.get(type(value), "number"))


@dataclass(frozen=True, config=_STRICT)
class _Marked:
    mark: str

    @property
    def end(self) -> str:
        """The string that ends a value."""
        return self.mark


@dataclass(frozen=True, config=_STRICT)
class Elements(_Marked):
    """Each argument as an element named after the argument; objects and arrays become nested elements.

    Attributes:
        mark: the string before every tag.
    """

    notation: Literal["elements"] = "elements"

    def __call__(self, call: ToolCall, dialect: str) -> str:
        return self._inner(_mapping(call, dialect), dialect)

    def _inner(self, value: Any, dialect: str) -> str:
        if isinstance(value, dict):
            return "".join(self._element(key, inner, dialect) for key, inner in value.items())
        if isinstance(value, list):
            return "".join(self._element("item", inner, dialect) for inner in value)
        written = value if isinstance(value, str) else _json(value)
        refuse_markers(written, (self.mark,), dialect)
        return written

    def _element(self, key: str, value: Any, dialect: str) -> str:
        if not re.fullmatch(r"[A-Za-z_][\w.-]*", key):
            raise DialectError(
                f"dialect {dialect} cannot write {key!r} as the name of an element", hint=OTHER_NAME
            )
        return f"{self.mark}<{key}>{self._inner(value, dialect)}{self.mark}</{key}>"


@dataclass(frozen=True, config=_STRICT)
class Quoted(_Marked):
    """Arguments as `key:value` pairs, with unquoted keys, and string values between two marks.

    Attributes:
        mark: the quotation mark, a single token.
    """

    notation: Literal["quoted"] = "quoted"

    def __call__(self, call: ToolCall, dialect: str) -> str:
        return self._pairs(_mapping(call, dialect), dialect)

    def _pairs(self, value: dict[str, Any], dialect: str) -> str:
        for key in value:
            if not re.fullmatch(r"[\w.-]+", key):
                raise DialectError(f"dialect {dialect} cannot write {key!r} as a bare key", hint=OTHER_NAME)
        return ",".join(f"{key}:{self._value(inner, dialect)}" for key, inner in value.items())

    def _value(self, value: Any, dialect: str) -> str:
        match value:
            case str():
                refuse_markers(value, (self.mark,), dialect)
                return f"{self.mark}{value}{self.mark}"
            case dict():
                return f"{{{self._pairs(value, dialect)}}}"
            case list():
                return f"[{','.join(self._value(inner, dialect) for inner in value)}]"
        return _json(value)


@dataclass(frozen=True, config=_STRICT)
class Python:
    """Arguments as keyword arguments of a Python call, with strings in double quotes."""

    notation: Literal["python"] = "python"
    end: ClassVar[str] = ""

    def __call__(self, call: ToolCall, dialect: str) -> str:
        arguments = _mapping(call, dialect)
        for key in arguments:
            stable = unicodedata.normalize("NFKC", key) == key  # Python normalizes identifiers
            if not key.isidentifier() or keyword.iskeyword(key) or not stable:
                raise DialectError(
                    f"dialect {dialect} cannot write {key!r} as a keyword argument", hint=OTHER_NAME
                )
        return ", ".join(f"{key}={_python(value)}" for key, value in arguments.items())


Arguments = Annotated[Json | Parameters | Elements | Quoted | Python, Field(discriminator="notation")]
"""Writes a call's arguments; it takes the call and the dialect's name and may raise DialectError."""


def _python(value: Any) -> str:
    match value:
        case str():
            return _json(value)  # every JSON string is a Python string
        case dict():
            return f"{{{', '.join(f'{_json(key)}: {_python(inner)}' for key, inner in value.items())}}}"
        case list():
            return f"[{', '.join(map(_python, value))}]"
    return repr(value)


def _mapping(call: ToolCall, dialect: str) -> dict[str, Any]:
    if isinstance(call.arguments, str):
        raise DialectError(
            f"dialect {dialect} does not write arguments as JSON, so it cannot write {call.arguments!r}",
            hint="give the arguments as a mapping, or script the raw text",
        )
    return call.arguments


def _follows(template: str, placeholder: str) -> str:
    """The marker after a placeholder, up to the next placeholder, without newlines around it."""
    return re.split(r"\$[a-z]+", template.partition(placeholder)[2])[0].strip("\n")


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
