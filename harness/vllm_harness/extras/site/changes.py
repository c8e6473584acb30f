"""What got better and what got worse from one release to the next."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from packaging.version import Version

from vllm_harness._defects.entry import Defect
from vllm_harness.extras.site.features import Feature
from vllm_harness.extras.site.site import Site, ordered
from vllm_harness.extras.site.table import Column, FeatureResult


@dataclass(frozen=True)
class FeatureChange:
    """A feature of a family whose failures are not the same cases.

    Attributes:
        family, feature: which.
        before, after: how it stood, and stands.
        fixed, broken: how many cases pass that failed, and the other way.
    """

    family: str
    feature: Feature
    before: FeatureResult
    after: FeatureResult
    fixed: int
    broken: int


@dataclass(frozen=True)
class Changes:
    """What a release changed.

    Attributes:
        since: the release before that servers were measured of; None: the first.
        gone, new: defects that servers of this release do not show and those of the one before do, and the
            other way.
        runs_since: the release before that was run; None: the first.
        turned: features whose cases turned.
        families_gone, families_new: whose parsers can no longer be made, or could not be before.
    """

    since: str | None
    gone: tuple[Defect, ...]
    new: tuple[Defect, ...]
    runs_since: Column | None
    turned: tuple[FeatureChange, ...]
    families_gone: tuple[str, ...]
    families_new: tuple[str, ...]

    @property
    def better(self) -> tuple[FeatureChange, ...]:
        """Where more cases pass."""
        return tuple(each for each in self.turned if each.fixed > each.broken)

    @property
    def worse(self) -> tuple[FeatureChange, ...]:
        """Where no more cases pass, and some fail that did not."""
        return tuple(each for each in self.turned if each.fixed <= each.broken)


def changes_of(site: Site, version: str) -> Changes:
    """What a release changed, by the registry and by runs."""
    measured = sorted(map(Version, site.measured.versions))
    earlier = [each for each in measured if each < Version(version)]
    since = earlier[-1] if earlier and Version(version) in measured else None
    gone, new = [], []
    for defect in site.table.defects.values():
        verdicts = site.verdicts(defect)
        if since is not None:
            turn = verdicts.get(since), verdicts.get(Version(version))
            gone += [defect] if turn == ("reproduced", "fixed") else []
            new += [defect] if turn == ("fixed", "reproduced") else []
    column = Column(version)
    older = [each for each in site.table.columns if each.frontend == "python" and each.order < column.order]
    before = older[-1] if older and column in site.table.columns else None
    return Changes(
        None if since is None else str(since),
        ordered(iter(gone)),
        ordered(iter(new)),
        before,
        tuple(_turned(site, before, column)) if before else (),
        tuple(_lost(site, before, column)) if before else (),
        tuple(_lost(site, column, before)) if before else (),
    )


def _turned(site: Site, before: Column, after: Column) -> Iterator[FeatureChange]:
    """Of the cases that ran on both."""
    for family in site.shown_families:
        measured = site.table.families[family.name]
        if before not in measured or after not in measured:
            continue
        for feature in site.table.features:
            old, new = (measured[each].features.get(feature) for each in (before, after))
            if old is None or new is None:
                continue
            fixed = len(old.failed & (new.cases - new.failed))
            broken = len(new.failed & (old.cases - old.failed))
            if fixed or broken:
                yield FeatureChange(family.name, feature, old, new, fixed, broken)


def _lost(site: Site, there: Column, not_here: Column) -> Iterator[str]:
    for family in site.shown_families:
        measured = site.table.families[family.name]
        pair = measured.get(there), measured.get(not_here)
        if pair[0] and pair[1] and pair[1].start_error and not pair[0].start_error:
            yield family.name
