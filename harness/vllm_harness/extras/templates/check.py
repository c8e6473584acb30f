"""Holds each family's dialect to its template: the result of a family, with all its differences."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

from vllm_harness._environments import assets
from vllm_harness._scripted.dialects import Dialect, find_dialect
from vllm_harness._scripted.dialects.form import Form
from vllm_harness._scripted.families import Family
from vllm_harness._scripted.synthetic import PAD, tokens_of
from vllm_harness._terminal.status import Progress, quiet
from vllm_harness.extras.templates.chat_template import ChatTemplateError
from vllm_harness.extras.templates.comparison import Comparison, NewDifference, shapes_of
from vllm_harness.extras.templates.conversations import drawn, plain
from vllm_harness.extras.templates.pairs import (
    NamedDifference,
    Pair,
    file_of,
    load_pairs,
    proves,
    template_of,
)

DRAWS = 300
"""The number of turns that are drawn for each dialect."""
_MOST_SHOWN = 5


@dataclass(frozen=True)
class FoundDifference:
    """A difference between a dialect and its template.

    Attributes:
        name: its name; one without a reason has none in pairs.yaml, and is named by what differs.
        reason: why the dialect stays as it is; empty if the difference is new.
        line: the line of the template; None if it is not known.
        turns: the number of turns that have it.
        fault: whether the template is at fault, not the dialect.
    """

    name: str
    reason: str
    line: int | None
    turns: int
    fault: bool = False


@dataclass(frozen=True)
class DialectCheck:
    """What the comparison of a dialect with its template found.

    Attributes:
        family, dialect: the family, and the dialect of its turns.
        template, model, provenance: the template, whose it is and who published it; None if there is none.
        turns: the number of turns compared.
        differences: the named differences, then new ones.
        spelled: the dialect's markers that the family's real tokenizer, if it is in the cache, spells in
            several tokens: a parser that looks for one token does not find them.
    """

    family: str
    dialect: str
    template: str | None = None
    model: str | None = None
    provenance: str | None = None
    turns: int = 0
    differences: tuple[FoundDifference, ...] = ()
    spelled: tuple[str, ...] = ()

    @property
    def new(self) -> tuple[FoundDifference, ...]:
        """The differences without a reason."""
        return tuple(difference for difference in self.differences if not difference.reason)

    @property
    def verified(self) -> bool:
        """Whether a template of the vendor, or a copy of it, writes what the dialect renders."""
        return proves(self.provenance) and not self.new

    def as_json(self) -> dict[str, Any]:
        """The result as a JSON object."""
        return asdict(self) | {"verified": self.verified}


def checked(
    families: Sequence[Family], template: Path | None = None, draws: int = DRAWS, progress: Progress = quiet
) -> list[DialectCheck]:
    """Compares the dialects of families with their templates.

    Args:
        template: a template to use for all of them, instead of those in pairs.yaml.
        draws: the number of turns to draw for each dialect.
        progress: receives a line for each asset that is fetched.

    Raises:
        AssetError: a template is not in the cache, and cannot be fetched.
    """
    known: dict[str, DialectCheck] = {}
    results = []
    for family in families:
        pair = load_pairs().get(family.dialect)
        if template is not None:
            pair = _users_pair(family, pair, template)
        if pair is None:
            results.append(DialectCheck(family.name, family.dialect, spelled=spelled_markers(family)))
            continue
        if family.dialect not in known:
            path = template or file_of(pair, progress)
            known[family.dialect] = check_dialect(
                find_dialect(family.dialect), family.form, pair, path, draws
            )
        results.append(_of_family(known[family.dialect], family))
    return results


def _users_pair(family: Family, pair: Pair | None, template: Path) -> Pair:
    settings = {"variables": pair.variables, "given": pair.given} if pair else {"variables": family.kwargs}
    return Pair.model_validate(
        {"template": str(template), "model": family.model, "provenance": "yours", **settings}
    )


def _of_family(check: DialectCheck, family: Family) -> DialectCheck:
    return replace(check, family=family.name, spelled=spelled_markers(family))


def spelled_markers(family: Family) -> tuple[str, ...]:
    """The markers of a family's dialect that are no single tokens of its real tokenizer."""
    fetched = assets.cached(family.tokenizer) if family.tokenizer else None
    if fetched is None or family.form is None:
        return ()
    tokenizer = json.loads((fetched.folder / "tokenizer.json").read_text())
    known = {token["content"] for token in tokenizer["added_tokens"]} | tokenizer["model"]["vocab"].keys()
    return tuple(token.text for token in tokens_of(family.form) if token.text not in known | {PAD})


def check_dialect(
    dialect: Dialect, form: Form | None, pair: Pair, path: Path, draws: int = DRAWS
) -> DialectCheck:
    """Compares a dialect with the template in a file, in turns of every shape that it can express."""
    found: list[FoundDifference] = []
    compared = 0
    try:
        comparison = Comparison(dialect, form, template_of(pair, dialect, path), pair.differences)
    except ChatTemplateError as error:
        found.append(FoundDifference(f"the template raises: {error}", "", None, 0))
    else:
        shapes = shapes_of(dialect)
        turns = [*map(plain, shapes), *islice(drawn(dialect.name, shapes), draws)]
        compared = len(turns)
        mismatches = [comparison.of_prompt(), *map(comparison.of_turn, turns)]
        found += _named(pair.differences, comparison, path)
        found += _unnamed([mismatch for mismatch in mismatches if mismatch])
    return DialectCheck(
        dialect.name, dialect.name, pair.template, pair.model, pair.provenance, compared, tuple(found)
    )


def _named(
    differences: Sequence[NamedDifference], comparison: Comparison, path: Path
) -> list[FoundDifference]:
    lines = path.read_text().splitlines() if path.suffix in (".jinja", ".py") else []
    found = []
    for each in differences:
        turns = comparison.met[each.name]
        line = next((number for number, line in enumerate(lines, 1) if each.line and each.line in line), None)
        if not turns:
            found.append(FoundDifference(f"{each.name}: no turn has this difference any more", "", line, 0))
        elif each.line and line is None:
            missing = f"{each.name}: the template has no line with {each.line!r} any more"
            found.append(FoundDifference(missing, "", None, turns))
        else:
            found.append(FoundDifference(each.name, each.reason, line, turns, each.fault))
    return found


def _unnamed(mismatches: Sequence[NewDifference]) -> list[FoundDifference]:
    """Differences without a name: one for each place in the template or, if that is unknown, each shape."""
    places: dict[tuple[int | None, str], list[NewDifference]] = {}
    for mismatch in mismatches:
        places.setdefault((mismatch.line, "" if mismatch.line else mismatch.shape), []).append(mismatch)
    found = []
    for (line, _), group in list(places.items())[:_MOST_SHOWN]:
        ours, theirs = group[0].excerpts
        name = f"{group[0].shape}: the dialect writes {ours!r}, the template {theirs!r}"
        found.append(FoundDifference(name, "", line, len(group)))
    return found
