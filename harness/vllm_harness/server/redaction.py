"""The values of secret variables and arguments, which must never be written to disk."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

SECRET_NAME = re.compile(
    r"TOKEN|(API|ACCESS|PRIVATE)_?KEY|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIAL", re.IGNORECASE
)
SECRET_FLAG = re.compile(r"^--(api-key|hf-token)$")
SHORTEST = 6


def secret_values(env: Mapping[str, str], argv: Sequence[str] = ()) -> list[str]:
    """Values to redact, the longest first, since a secret may contain another."""
    values = {value for name, value in env.items() if SECRET_NAME.search(name)}
    values |= _after_flags(argv)
    values |= {arg.split("=", 1)[1] for arg in argv if "=" in arg and SECRET_FLAG.match(arg.split("=", 1)[0])}
    return sorted(
        (v for v in values if len(v) >= SHORTEST and v.lower() not in {"false", "true"}),
        key=lambda v: (-len(v), v),
    )


def _after_flags(argv: Sequence[str]) -> set[str]:
    """Every value of a flag: `--api-key` takes several."""
    values: set[str] = set()
    secret = False
    for argument in argv:
        if argument.startswith("--"):
            secret = SECRET_FLAG.match(argument) is not None
        elif secret:
            values.add(argument)
    return values
