"""Parts of earlier answers in the requests that follow: `{steps[0].body.id}`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import jmespath

from vllm_harness.protocol.core.events import Json

REFERENCE = re.compile(r"\{(steps\[.+?\][^{}]*)\}")


def filled(value: Any, answers: Sequence[Json]) -> Any:
    """A JSON value whose texts name parts of earlier answers, with these in their place."""
    if isinstance(value, Mapping):
        return {key: filled(each, answers) for key, each in value.items()}
    if isinstance(value, list):
        return [filled(each, answers) for each in value]
    if not isinstance(value, str):
        return value
    if whole := REFERENCE.fullmatch(value):
        return jmespath.search(whole[1], {"steps": list(answers)})
    return REFERENCE.sub(lambda match: str(jmespath.search(match[1], {"steps": list(answers)})), value)
