"""Dialects: the inverse of the parsers. Each renders meaning into one family's native raw text."""

from __future__ import annotations

from difflib import get_close_matches
from functools import cache

from vllm_harness._scripted.dialects import harmony
from vllm_harness._scripted.dialects.dialect import Dialect, DialectError
from vllm_harness._scripted.dialects.form import Form
from vllm_harness._scripted.dialects.forms import load_forms
from vllm_harness._scripted.meaning import Meaning

__all__ = ["Dialect", "DialectError", "find_dialect", "load_dialects", "load_forms", "markers", "render"]


@cache
def load_dialects() -> dict[str, Dialect]:
    """All dialects by name: Harmony, which is code, and those that are data."""
    return {harmony.DIALECT.name: harmony.DIALECT} | {
        form.name: _of_form(form) for form in load_forms().values()
    }


def _of_form(form: Form) -> Dialect:
    thoughts, calls, frame = form.thoughts, form.calls, form.frame
    around_calls = calls.tokens or (calls.open.strip(), calls.marker.strip(), calls.close.strip())
    return Dialect(
        form.name,
        form.source,
        form.render,
        form.render_constrained,
        form.markers,
        ends=(frame.end_after_calls or frame.end, frame.end),
        thoughts=((thoughts.open or thoughts.tail).strip(), thoughts.close) if thoughts else None,
        calls=tuple(dict.fromkeys(filter(None, around_calls))),
        tokens=(*calls.tokens, *(thoughts.tokens if thoughts else ())),
        render_anyway=form.render_anyway,
    )


def find_dialect(name: str) -> Dialect:
    """A dialect by its name. Raises DialectError: there is none; its hint names the nearest, or all."""
    dialects = load_dialects()
    if name not in dialects:
        near = get_close_matches(name, dialects, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(dialects)}"
        raise DialectError(f"unknown dialect {name!r}", hint=hint)
    return dialects[name]


def markers(dialect: str) -> tuple[str, ...]:
    """The markers of a dialect. Raises DialectError: there is none of this name."""
    return find_dialect(dialect).markers


def render(dialect: str, meaning: Meaning, *, constrained: bool = False) -> str:
    """Raw text of one assistant turn, as a model of that dialect generates it, under a grammar or freely.

    Raises:
        DialectError: no such dialect, or the dialect cannot express the meaning.
    """
    chosen = find_dialect(dialect)
    return ((chosen.render_constrained if constrained else None) or chosen.render)(meaning)
