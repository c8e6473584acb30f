"""Writes YAML as a person would: with keys in the given order, and without aliases for repeated values."""

from __future__ import annotations

from typing import Any

import yaml


class _PlainDumper(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:
        return True


def plain_yaml(data: object, **layout: Any) -> str:
    """Formats data as YAML without aliases; `layout` is passed to `yaml.dump`."""
    text: str = yaml.dump(data, Dumper=_PlainDumper, sort_keys=False, **layout)
    return text
