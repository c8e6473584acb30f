"""Dialects: the inverse of the parsers. Each renders meaning into one family's native raw text."""

from __future__ import annotations

from difflib import get_close_matches

from vllm_harness.scripted.dialects import harmony
from vllm_harness.scripted.dialects.dialect import Dialect, DialectError
from vllm_harness.scripted.dialects.table import FORMS
from vllm_harness.scripted.meaning import Meaning

__all__ = ["DIALECTS", "FORMS", "Dialect", "DialectError", "render"]

DIALECTS: dict[str, Dialect] = {harmony.DIALECT.name: harmony.DIALECT} | {
    form.name: Dialect(form.name, form.source, form.render, form.render_constrained) for form in FORMS
}


def render(dialect: str, meaning: Meaning, *, constrained: bool = False) -> str:
    """Raw text of one assistant turn, as a model of that dialect generates it, under a grammar or freely.

    Raises:
        DialectError: no such dialect, or the dialect cannot say it.
    """
    if dialect not in DIALECTS:
        near = get_close_matches(dialect, DIALECTS, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(DIALECTS)}"
        raise DialectError(f"unknown dialect {dialect!r}", hint=hint)
    chosen = DIALECTS[dialect]
    return ((chosen.render_constrained if constrained else None) or chosen.render)(meaning)
