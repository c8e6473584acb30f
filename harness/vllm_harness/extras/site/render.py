"""Templates that write Markdown: whatever they are given is text, and shown as it is."""

from __future__ import annotations

import html
import json
import posixpath
import re
from collections.abc import Callable
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

_OF_MARKUP = re.compile(r"[&<>\"'\\`*_\[\]{}#|~^=!]")
"""What HTML or Markdown would read as markup, wherever it stands in a line."""
_AT_THE_BEGINNING = re.compile(r"^(?:\d+[.)](?!\d)|[-+:])")
_SIGN = re.compile(r"\D")
_BLANKS = re.compile(r"\s+")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ufffe\uffff]")
"""Control characters, and those that turn the direction of a text."""
Link = Callable[..., Markup]


def escaped(value: object) -> Markup:
    """A value as text of one line, in a paragraph, a cell or an attribute: nothing of it is markup."""
    if isinstance(value, Markup):
        return value
    text = _entities(_BLANKS.sub(" ", visible(str(value))), _OF_MARKUP)
    return Markup(_AT_THE_BEGINNING.sub(lambda match: _entities(match[0], _SIGN), text))


def paragraphs(text: str) -> Markup:
    """A text of several paragraphs, each escaped."""
    parts = (part for part in re.split(r"\n\s*\n", text) if part.strip())
    return Markup("\n\n".join(escaped(part.strip()) for part in parts))


def marked(text: str) -> Markup:
    """A sentence of the harness's own, in which backticks mean code."""
    parts = re.split(r"`([^`]+)`", text)
    return Markup("").join(code(part) if number % 2 else escaped(part) for number, part in enumerate(parts))


def code(text: object) -> Markup:
    """A text of one line in the type of code."""
    return Markup("<code>{}</code>").format(escaped(text))


def fenced(text: str, language: str = "text") -> Markup:
    """A text of several lines as a block of code, in a fence that it does not hold."""
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return Markup(f"{fence}{language}\n{visible(text)}\n{fence}")


def visible(text: str) -> str:
    """The text with control characters written out; a line end stays."""
    return _CONTROL.sub(lambda match: ascii(match[0])[1:-1], text.replace("\r\n", "\n"))


def _entities(text: str, pattern: re.Pattern[str]) -> str:
    return pattern.sub(lambda match: f"&#{ord(match[0])};", text)


def address(page: str) -> str:
    """The address of a page within the site: `defects/index.md` -> `defects/index.html`."""
    folder, name = posixpath.split(page)
    name = "index.md" if name == "README.md" else name
    return posixpath.join(folder, f"{name.removesuffix('.md')}.html" if name.endswith(".md") else name)


def link_from(page: str) -> Link:
    """What makes a link from a page to another page, or to a file, of the site.

    The link's text is escaped; `anchor` is the id of a part of the page, `title` says more of it.
    """

    def link(target: str, text: object, anchor: str = "", title: str = "", kind: str = "") -> Markup:
        path = posixpath.relpath(address(target), posixpath.dirname(page) or ".")
        href = Markup(f"{path}#{anchor}" if anchor else path)
        said = Markup(' title="{}"').format(escaped(title)) if title else ""
        classed = Markup(' class="{}"').format(escaped(kind)) if kind else ""
        return Markup('<a href="{}"{}{}>{}</a>').format(href, said, classed, escaped(text))

    return link


def anchor(name: str) -> Markup:
    """A part of a page that links can name, whatever its heading becomes."""
    return Markup('<a id="{}"></a>').format(Markup(name))


def sentence(text: str) -> Markup:
    """Words of the harness's own as a sentence, in which backticks mean code."""
    return marked(f"{text[:1].upper()}{text[1:]}.")


def front(text: str) -> Markup:
    """A value of a page's front matter: a text that stands in HTML as it is."""
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
    """A page: a template with its values."""
    link = link_from(page)
    return _ENVIRONMENT.get_template(template).render(link=link, page=page, **values)
