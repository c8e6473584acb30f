"""JSON field types, with which the published shapes of the APIs are described."""

from __future__ import annotations

Types = tuple[type, ...]
Fields = tuple[tuple[str, Types], ...]

NULL = type(None)
STR: Types = (str,)
INT: Types = (int,)
BOOL: Types = (bool,)
LIST: Types = (list,)
DICT: Types = (dict,)
NUMBER: Types = (int, float)
