"""Renders Markdown pages from templates; every value is escaped as text."""

from __future__ import annotations

import html
import json
import posixpath
import re
from collections.abc import Callable
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

_MARKUP = re.compile(r"[&<>\"'\\`*_\[\]{}#|~^=!]")
"""The characters that HTML or Markdown may treat as markup anywhere in a line."""
_MARKUP_AT_START = re.compile(r"^(?:\d+[.)](?!\d)|[-+:])")
_SIGN = re.compile(r"\D")
_BLANKS = re.compile(r"\s+")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ufffe\uffff]")
"""Control characters, and characters that change the direction of text."""
Link = Callable[..., Markup]


def escaped(value: object) -> Markup:
    """Escapes a value as one line of text for a paragraph, a table cell or an attribute."""
    if isinstance(value, Markup):
        return value
    text = _entities(_BLANKS.sub(" ", visible(str(value))), _MARKUP)
    return Markup(_MARKUP_AT_START.sub(lambda match: _entities(match[0], _SIGN), text))


def paragraphs(text: str) -> Markup:
    """Escapes text that consists of several paragraphs."""
    parts = (part for part in re.split(r"\n\s*\n", text) if part.strip())
    return Markup("\n\n".join(escaped(part.strip()) for part in parts))


def marked(text: str) -> Markup:
    """Escapes a sentence written for the harness, in which backticks mark code."""
    parts = re.split(r"`([^`]+)`", text)
    return Markup("").join(code(part) if number % 2 else escaped(part) for number, part in enumerate(parts))


def code(text: object) -> Markup:
    """Formats one line of text as code."""
    return Markup("<code>{}</code>").format(escaped(text))


def fenced(text: str, language: str = "text") -> Markup:
    """Formats text as a code block, with a fence longer than any in the text."""
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return Markup(f"{fence}{language}\n{visible(text)}\n{fence}")


def visible(text: str) -> str:
    """Replaces control characters in a text with escape sequences; line ends are kept."""
    return _CONTROL.sub(lambda match: ascii(match[0])[1:-1], text.replace("\r\n", "\n"))


def _entities(text: str, pattern: re.Pattern[str]) -> str:
    return pattern.sub(lambda match: f"&#{ord(match[0])};", text)


def address(page: str) -> str:
    """The address of a page within the site: `defects/index.md` -> `defects/index.html`."""
    folder, name = posixpath.split(page)
    name = "index.md" if name == "README.md" else name
    return posixpath.join(folder, f"{name.removesuffix('.md')}.html" if name.endswith(".md") else name)


def link_from(page: str) -> Link:
    """Returns a function that makes links from a page to other pages and files of the site.

    The text of a link is escaped. `anchor` is the id of a part of the page, `title` the tooltip, `kind` the
    CSS class.
    """

    def link(target: str, text: object, anchor: str = "", title: str = "", kind: str = "") -> Markup:
        path = posixpath.relpath(address(target), posixpath.dirname(page) or ".")
        href = Markup(f"{path}#{anchor}" if anchor else path)
        title_ = Markup(' title="{}"').format(escaped(title)) if title else ""
        class_ = Markup(' class="{}"').format(escaped(kind)) if kind else ""
        return Markup('<a href="{}"{}{}>{}</a>').format(href, title_, class_, escaped(text))

    return link


def anchor(name: str) -> Markup:
    """An anchor for links that does not depend on the text of the heading."""
    return Markup('<a id="{}"></a>').format(Markup(name))


def sentence(text: str) -> Markup:
    """Capitalizes the first letter of a phrase and adds a full stop; backticks mark code."""
    return marked(f"{text[:1].upper()}{text[1:]}.")


def front(text: str) -> Markup:
    """Formats text as a value in a page's front matter, escaped for HTML."""
    return Markup(json.dumps(html.escape(" ".join(visible(text).split())), ensure_ascii=False))


def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("vllm_harness.extras.site"),
        autoescape=True,
        finalize=escaped,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {
        "paragraphs": paragraphs,
        "code": code,
        "fenced": fenced,
        "marked": marked,
        "sentence": sentence,
        "front": front,
    }
    environment.globals["anchor"] = anchor
    return environment


_ENVIRONMENT = _environment()


def rendered(template: str, page: str, values: dict[str, Any]) -> str:
    """Renders a page from a template and the values for it."""
    link = link_from(page)
    return _ENVIRONMENT.get_template(template).render(link=link, page=page, **values)
