"""Dialects, the inverse of vLLM's parsers: each renders a meaning as one model family's raw text."""

from __future__ import annotations

from difflib import get_close_matches
from functools import cache

from vllm_harness._scripted.dialects import harmony
from vllm_harness._scripted.dialects.dialect import Dialect, DialectError
from vllm_harness._scripted.dialects.form import Form, load_forms
from vllm_harness._scripted.meaning import Meaning

__all__ = ["Dialect", "DialectError", "find_dialect", "load_dialects", "load_forms", "render"]


@cache
def load_dialects() -> dict[str, Dialect]:
    """All dialects by name: Harmony, which is defined by code, and those defined by data files."""
    return {harmony.DIALECT.name: harmony.DIALECT} | {
        form.name: _of_form(form) for form in load_forms().values()
    }


def _of_form(form: Form) -> Dialect:
    reasoning, calls, frame = form.reasoning, form.calls, form.frame
    around_calls = calls.tokens or (calls.open.strip(), calls.marker.strip(), calls.close.strip())
    return Dialect(
        form.name,
        form.source,
        form.render,
        form.render_constrained,
        form.markers,
        ends=(frame.end_after_calls or frame.end, frame.end),
        reasoning=((reasoning.open or reasoning.tail).strip(), reasoning.close) if reasoning else None,
        calls=tuple(dict.fromkeys(filter(None, around_calls))),
        tokens=(*calls.tokens, *(reasoning.tokens if reasoning else ())),
        render_anyway=form.render_anyway,
    )


def find_dialect(name: str) -> Dialect:
    """Looks up a dialect. Raises DialectError if the name is unknown; the hint suggests similar names."""
    dialects = load_dialects()
    if name not in dialects:
        near = get_close_matches(name, dialects, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"use one of {', '.join(dialects)}"
        raise DialectError(f"unknown dialect {name!r}", hint=hint)
    return dialects[name]


def render(dialect: str, meaning: Meaning, *, constrained: bool = False) -> str:
    """Renders an assistant turn as the raw text that a model of the dialect generates.

    Args:
        constrained: whether a grammar constrains the model.

    Raises:
        DialectError: the dialect is unknown or cannot express the meaning.
    """
    chosen = find_dialect(dialect)
    return ((chosen.render_constrained if constrained else None) or chosen.render)(meaning)
