"""All defects that are known, by their ids: the package's own, and those of a project's folder."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any

from packaging.version import InvalidVersion, Version

from vllm_harness._defects.entry import Defect
from vllm_harness._errors import UsageError
from vllm_harness._files.located_yaml import Location, read_yaml
from vllm_harness._files.strict import keys_of
from vllm_harness._protocol.known import KnownDeviation

ENTRIES = Path(__file__).with_name("entries")
ENGINE = "the parser engine"
"""How a text calls what the parsers of `vllm/parser` share, which entries name as the parser `engine`."""
COMMON = "common"
"""Folder beside that of the entries, with the texts that several are made from."""
Defects = Mapping[str, Defect]


class DefectsError(UsageError):
    """A file of the registry is wrong, or an id is unknown; file, line and key are named."""


def load_defects(folder: Path | None = None) -> Defects:
    """The defects of the package, and of a further folder.

    Args:
        folder: with a file `ID.yaml` for each defect.

    Raises:
        DefectsError: naming file, line and key.
    """
    return _loaded(folder)


@cache
def _loaded(folder: Path | None) -> Defects:
    if folder is not None:
        return _with({**_loaded(None)}, folder)
    return _with({}, ENTRIES)


def _with(found: dict[str, Defect], folder: Path) -> Defects:
    """The defects with those of a folder."""
    if not folder.is_dir():
        raise DefectsError(
            f"there is no folder {folder} of defects", hint="name a folder with a file ID.yaml for each"
        )
    for path in sorted(folder.glob("*.yaml")):
        defect = _read(path)
        if defect.id in found:
            raise DefectsError(f"{path}:1: id: {defect.id} is an entry already", hint="choose another id")
        found[defect.id] = defect
    return found


def find(wanted: str, defects: Defects) -> Defect:
    """The defect of an id. Raises DefectsError with the nearest ids otherwise."""
    if wanted in defects:
        return defects[wanted]
    near = get_close_matches(wanted.replace("#", "-"), defects, n=3, cutoff=0.5)
    raise DefectsError(
        f"no defect has the id {wanted!r}",
        hint=f"did you mean {', '.join(near)}?" if near else "`vllm-harness defects` lists all ids",
    )


def known_deviations(model: str, version: str, defects: Defects | None = None) -> tuple[KnownDeviation, ...]:
    """The findings of the validator that are known of a model entry on a version of vLLM.

    Args:
        model: name of the entry, empty for what any of them shows.
        version: such as `0.32.0`.
        defects: by default the package's.
    """
    every: Iterable[Defect] = (load_defects() if defects is None else defects).values()
    of_vllm = (defect for defect in every if not defect.product)
    return tuple(known for defect in of_vllm for known in defect.known_deviations(version, model))


def gateway_deviations(product: str, defects: Defects | None = None) -> tuple[KnownDeviation, ...]:
    """The findings that are known of a gateway, for whatever vLLM is behind it.

    Args:
        product: name and version, such as `litellm==1.106.12`; empty: nothing is known.
        defects: by default the package's.

    Raises:
        DefectsError: no version is given, or no entry has this product.
    """
    if not product:
        return ()
    name, _, version = product.partition("==")
    every = (load_defects() if defects is None else defects).values()
    entries = [defect for defect in every if defect.product == name]
    if not entries:
        names = ", ".join(sorted({defect.product for defect in every if defect.product}))
        raise DefectsError(f"no entry is about a gateway {name!r}", hint=f"known are {names or 'none'}")
    if not _is_version(version):
        raise DefectsError(f"{product!r} names no version", hint=f"write it as {name}==1.2.3")
    found = (known for entry in entries for known in entry.known_deviations(version))
    return tuple(known.model_copy(update={"versions": ""}) for known in found)


def _is_version(text: str) -> bool:
    try:
        Version(text)
    except InvalidVersion:
        return False
    return True


def _read(path: Path) -> Defect:
    document = read_yaml(path)
    defect = document.validated(Defect, DefectsError, _keys_at, _with_common_text(document.data, path))
    if defect.id != path.stem:
        raise DefectsError(f"{path}:{document.line(('id',))}: id: {defect.id} is not the name of the file")
    return defect


def _with_common_text(entry: Any, path: Path) -> Any:
    """The entry with what the text says that it is like, and it does not say itself."""
    if not isinstance(entry, dict) or "like" not in entry:
        return entry
    text = path.parent.parent / COMMON / f"{entry['like']}.yaml"
    if not text.is_file():
        raise DefectsError(f"{path}: like: there is no common text {text}", hint="name a file of that folder")
    parser = str(entry.get("parser", ""))
    return {**_named(_common_text(text), ENGINE if parser == "engine" else parser), **entry}


@cache
def _common_text(path: Path) -> dict[str, Any]:
    common = read_yaml(path).data
    if not isinstance(common, dict):
        raise DefectsError(f"{path}:1: a common text has keys of an entry")
    return common


def _named(value: Any, parser: str) -> Any:
    """A text, and those within a value, with the parser's name in its place."""
    if isinstance(value, dict):
        return {key: _named(each, parser) for key, each in value.items()}
    if isinstance(value, list):
        return [_named(each, parser) for each in value]
    return value.replace("{parser}", parser) if isinstance(value, str) else value


def _keys_at(location: Location) -> Collection[str]:
    """The keys of a mapping in an entry, for suggestions."""
    return keys_of(Defect, location)
