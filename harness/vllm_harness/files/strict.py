"""The base of what the harness reads from files: no unknown keys, and no change after reading."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class StrictModel(BaseModel):
    """A pydantic model that refuses unknown fields and is frozen."""

    model_config = ConfigDict(extra="forbid", frozen=True)
