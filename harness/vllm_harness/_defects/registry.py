"""Loads the known defects: those of the package, and those of a project's folder."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
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
"""The name that texts use for the code shared by the parsers in `vllm/parser`; in entries, it is `engine`."""
COMMON = "common"
"""The name of the folder, next to the folder of entries, with text that several entries share."""
Defects = Mapping[str, Defect]


class DefectsError(UsageError):
    """A registry file is invalid (the message names file, line and key), or an id is unknown."""


class _Registry(Mapping[str, Defect]):
    """Entries by id; a file is read when its entry is first used."""

    def __init__(self, folders: Iterable[Path]) -> None:
        self._paths: dict[str, Path] = {}
        self._entries: dict[str, Defect] = {}
        for folder in folders:
            if not folder.is_dir():
                hint = "give a folder with a file ID.yaml for each defect"
                raise DefectsError(f"the folder {folder} does not exist", hint=hint)
            for path in sorted(folder.glob("*.yaml")):
                if path.stem in self._paths:
                    message = f"{path}:1: id: another entry has the id {path.stem}"
                    raise DefectsError(message, hint="choose another id")
                self._paths[path.stem] = path

    def __getitem__(self, id: str) -> Defect:
        if id not in self._entries:
            self._entries[id] = _read(self._paths[id])
        return self._entries[id]

    def __contains__(self, id: object) -> bool:
        return id in self._paths

    def __iter__(self) -> Iterator[str]:
        return iter(self._paths)

    def __len__(self) -> int:
        return len(self._paths)


@cache
def load_defects(folder: Path | None = None) -> Defects:
    """Loads the defects of the package and of an additional folder, by id.

    The package's entries are read when they are first used, the folder's entries immediately.

    Args:
        folder: a folder with a file `ID.yaml` for each defect.

    Raises:
        DefectsError: a file is invalid; the message names the file, the line and the key.
    """
    if folder is None:
        return _Registry([ENTRIES])
    registry = _Registry([ENTRIES, folder])
    for path in folder.glob("*.yaml"):
        registry[path.stem]
    return registry


def find(id: str, defects: Defects) -> Defect:
    """Finds a defect by its id. Raises DefectsError, which suggests similar ids, if there is none."""
    if id in defects:
        return defects[id]
    near = get_close_matches(id.replace("#", "-"), defects, n=3, cutoff=0.5)
    raise DefectsError(
        f"no defect has the id {id!r}",
        hint=f"did you mean {', '.join(near)}?" if near else "`vllm-harness defects` lists all ids",
    )


def known_deviations(model: str, version: str, defects: Defects | None = None) -> tuple[KnownDeviation, ...]:
    """Lists the known deviations of a model entry on a version of vLLM.

    Args:
        model: the name of the entry; empty for all entries.
        version: the version, such as `0.32.0`.
        defects: the defects; by default the package's.
    """
    every = (load_defects() if defects is None else defects).values()
    of_vllm = (defect for defect in every if not defect.product)
    return tuple(known for defect in of_vllm for known in defect.known_deviations(version, model))


def gateway_deviations(product: str, defects: Defects | None = None) -> tuple[KnownDeviation, ...]:
    """Lists the known deviations of a gateway, whichever vLLM is behind it.

    Args:
        product: its name and version, such as `litellm==1.106.12`; if empty, the list is empty.
        defects: the defects; by default the package's.

    Raises:
        DefectsError: the version is missing, or no entry has this product.
    """
    if not product:
        return ()
    name, _, version = product.partition("==")
    every = (load_defects() if defects is None else defects).values()
    entries = [defect for defect in every if defect.product == name]
    if not entries:
        names = ", ".join(sorted({defect.product for defect in every if defect.product}))
        raise DefectsError(
            f"no entry describes a gateway named {name!r}", hint=f"known gateways: {names or 'none'}"
        )
    if not _is_version(version):
        raise DefectsError(f"{product!r} lacks a version", hint=f"write it as {name}==1.2.3")
    deviations = (known for entry in entries for known in entry.known_deviations(version))
    return tuple(known.model_copy(update={"versions": ""}) for known in deviations)


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
        raise DefectsError(
            f"{path}:{document.line(('id',))}: id: {defect.id} differs from the name of the file"
        )
    return defect


def _with_common_text(entry: Any, path: Path) -> Any:
    """Adds the keys of the common file that an entry names under `like`."""
    if not isinstance(entry, dict) or "like" not in entry:
        return entry
    text = path.parent.parent / COMMON / f"{entry['like']}.yaml"
    if not text.is_file():
        raise DefectsError(
            f"{path}: like: the common file {text} does not exist", hint="name a file in that folder"
        )
    parser = str(entry.get("parser", ""))
    return {**_named(_common_text(text), ENGINE if parser == "engine" else parser), **entry}


@cache
def _common_text(path: Path) -> dict[str, Any]:
    common = read_yaml(path).data
    if not isinstance(common, dict):
        raise DefectsError(f"{path}:1: a common file must be a mapping with keys of an entry")
    return common


def _named(value: Any, parser: str) -> Any:
    """Replaces `{parser}` with the name of the parser in all strings of a value."""
    if isinstance(value, dict):
        return {key: _named(each, parser) for key, each in value.items()}
    if isinstance(value, list):
        return [_named(each, parser) for each in value]
    return value.replace("{parser}", parser) if isinstance(value, str) else value


def _keys_at(location: Location) -> Collection[str]:
    """Lists the keys of a mapping in an entry, for suggestions."""
    return keys_of(Defect, location)
