"""The changes in a release: what got better and what got worse."""

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
    """A feature of a family that fails in different cases than before.

    Attributes:
        family, feature: the name of the family, and the feature.
        before, after: the results on the earlier and on the later release.
        fixed: the number of cases that failed and now pass.
        broken: the number of cases that passed and now fail.
    """

    family: str
    feature: Feature
    before: FeatureResult
    after: FeatureResult
    fixed: int
    broken: int


@dataclass(frozen=True)
class Changes:
    """The changes in a release, compared with the previous one.

    Attributes:
        since: the previous release that was measured on servers; None if there is none.
        gone: the defects that servers of the previous release show, but servers of this one do not.
        new: the defects that servers of this release show, but servers of the previous one do not.
        runs_since: the previous release for which there is a parser regression run; None if there is none.
        turned: the features of which different cases fail than before.
        families_gone, families_new: the families whose parsers this release cannot make, or only now can.
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
        """The features of which more cases pass than before."""
        return tuple(change for change in self.turned if change.fixed > change.broken)

    @property
    def worse(self) -> tuple[FeatureChange, ...]:
        """The features of which no more cases pass than before, and some now fail."""
        return tuple(change for change in self.turned if change.fixed <= change.broken)


def changes_of(site: Site, version: str) -> Changes:
    """The changes in a release, according to measurements on servers and to runs."""
    measured = sorted(map(Version, site.measured.versions))
    earlier = [each for each in measured if each < Version(version)]
    since = earlier[-1] if earlier and Version(version) in measured else None
    gone, new = [], []
    for defect in site.table.defects.values():
        verdicts = site.verdicts(defect)
        if since is not None:
            before_after = verdicts.get(since), verdicts.get(Version(version))
            gone += [defect] if before_after == ("reproduced", "fixed") else []
            new += [defect] if before_after == ("fixed", "reproduced") else []
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
    """The features that changed, judged by the cases that ran on both releases."""
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


def _lost(site: Site, can: Column, cannot: Column) -> Iterator[str]:
    """The names of the families whose parsers one release can make, but the other cannot."""
    for family in site.shown_families:
        measured = site.table.families[family.name]
        pair = measured.get(can), measured.get(cannot)
        if pair[0] and pair[1] and pair[1].start_error and not pair[0].start_error:
            yield family.name
