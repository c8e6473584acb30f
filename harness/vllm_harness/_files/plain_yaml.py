"""YAML as people write it: in the given order, and a value that occurs twice in full twice."""

from __future__ import annotations

from typing import Any

import yaml


class _PlainDumper(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:
        return True


def plain_yaml(data: object, **layout: Any) -> str:
    """Data as YAML without aliases; `layout` is PyYAML's."""
    text: str = yaml.dump(data, Dumper=_PlainDumper, sort_keys=False, **layout)
    return text
