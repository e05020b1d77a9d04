"""Monitoring of a run in the field: what has changed in its predictions, since when, and where."""

import datetime
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np

from jaxatr import metrics
from jaxatr.recognition.drift import LEVEL, WORDS
from jaxatr.recognition.prediction import UNKNOWN
from jaxatr.recognition.sighted_tables import STATISTICS, Sighted, values_of
from jaxatr.typing import Bool, Float, Int

HOUR, DAY = "hour", "day"
SECONDS = {HOUR: 3600, DAY: 86_400}
"""Lengths of the periods that predictions are compared by."""

REFERENCE = 200
"""Number of the first chips that later ones are compared with, at least, in whole periods."""

FEWEST = 20
"""Least number of chips of a source or of a class that is compared by itself."""

MOST_SOURCES, MOST_CLASSES = 50, 50
"""Largest numbers of sources and classes that are compared, the most frequent ones."""

_THRESHOLDS = 10  # largest number of changes of the threshold that are said
_DAYS = 3  # from which periods are days by default

_LEVELS = (0.1, 0.25, 0.5, 0.75, 0.9)  # quantiles at which samples are compared in words
_HALF_MOVED = 0.25  # further share of values beyond the earlier median, if half of them have moved

_COUNTED = {"unusable": "inputs", "class": "accepted chips"}  # else chips; by the first word

_PAST = {"are": "were", "have": "had", "show": "showed", "score": "scored"}


class Finding(NamedTuple):
    """A change.

    Attributes:
      source: the source in which it was found; empty for all together.
      statistic: what has changed: ``"score"``, a fact of images, ``"unknown"``, ``"unusable"``, or
        ``"class NAME"``.
      first, last: start of its first and of its last period, in seconds since 1970.
      lasts: whether it lasts to the end.
      sentence: the change in words.
      p_value: of the test that found it, corrected for all tests of the run.
    """

    source: str
    statistic: str
    first: int
    last: int
    lasts: bool
    sentence: str
    p_value: float


class Outlook(NamedTuple):
    """The changes in the predictions of a run.

    Attributes:
      run: the run, as its tables name it; may be empty.
      rows: its predictions.
      by: length of the periods, ``"hour"`` or ``"day"``.
      findings: the changes, those of all sources together first.
      facts: sentences about what needs no test: sources without chips, other thresholds.
      summary: a sentence about what was compared.
      looks: number of tests.
    """

    run: str
    rows: Sighted
    by: str
    findings: list[Finding]
    facts: list[str]
    summary: str
    looks: int


Words: TypeAlias = Callable[[Bool[np.ndarray, " n"], bool, bool], str]
"""Says what has changed in some rows: which rows, whether values are higher, whether it lasts."""


class _Series(NamedTuple):
    """One statistic of a group of rows, compared with one reference.

    Attributes:
      statistic: see :class:`Finding`.
      scan: the comparisons.
      periods: number of each period that is compared.
      words: describes a change.
    """

    statistic: str
    scan: metrics.Scan
    periods: Int[np.ndarray, " t"]
    words: Words


def look(
    rows: Sighted,
    *,
    by: str | None = None,
    reference: Mapping[str, Float[np.ndarray, " n"]] | None = None,
    level: float = LEVEL,
) -> Outlook:
    """Looks for changes in the predictions of one run.

    The share of unknown chips and of unusable inputs, the classes of the accepted chips, the score
    and the facts of the images are compared with those of the first periods that have
    :data:`REFERENCE` chips (at most half of the periods); score and facts also with a reference.
    Every run of consecutive periods is compared, in all sources together and in each. The
    probability that any change is found is at most the level if nothing has changed and chips are
    independent of one another.

    Args:
      rows: predictions of one run.
      by: length of the periods; by default days, or hours if there are fewer than three days.
      reference: values of the statistics in the training, see
        :class:`jaxatr.recognition.drift.Reference`; None for none.
      level: the level of all tests together.
    """
    by = by or (DAY if np.ptp(rows.time) >= _DAYS * SECONDS[DAY] else HOUR)
    sources = rows.texts(rows.source)
    groups = [_Group(rows, "", by)]
    if len(sources) > 1:
        for source in sources[:MOST_SOURCES]:
            groups.append(_Group(rows.where(rows.source == rows.code(source)), source, by))
    compared = [(group, one) for group in groups for one in group.series(reference or {})]
    looks = sum(one.scan.looks for _, one in compared)
    findings = [
        group.finding(one, change, looks)
        for group, one in compared
        for change in metrics.changes(one.scan, level, looks)
    ]
    run = rows.texts(rows.run)[0]
    summary = groups[0].summary(len(sources), looks, level, bool(findings))
    facts = [*_silent(groups), *itertools.islice(_thresholds(rows, by), _THRESHOLDS)]
    return Outlook(run, rows, by, findings, facts, summary, looks)


class _Group:
    """The rows of one source, or of all."""

    def __init__(self, rows: Sighted, source: str, by: str):
        self.rows, self.source, self.by = rows, source, by
        self.number = rows.time // SECONDS[by]
        self.periods, self.place = np.unique(self.number, return_inverse=True)
        usable = np.bincount(self.place[~rows.failed], minlength=len(self.periods))
        enough = int(np.searchsorted(np.cumsum(usable), REFERENCE)) + 1
        self.before = min(enough, len(self.periods) // 2)  # number of first periods
        self.when = self._span(0, self.before - 1) if self.before else ""

    def series(self, reference: Mapping[str, np.ndarray]) -> Iterator[_Series]:
        """Compares the statistics with those of the first periods, and with a reference."""
        rows, usable = self.rows, ~self.rows.failed
        unknown = usable & (rows.label == rows.code(UNKNOWN))
        accepted = usable & ~unknown
        yield from self._shares("unknown", unknown, usable, "unknown")
        if rows.failed.any():
            yield from self._shares("unusable", rows.failed, np.ones(len(usable), bool), "unusable")
        for name in rows.texts(rows.label[accepted])[:MOST_CLASSES]:
            named = accepted & (rows.label == rows.code(name))
            if named.sum() >= FEWEST:
                yield from self._shares(f"class {name}", named, accepted, f"named {name}")
        for name in STATISTICS:
            yield from self._values(name, None)
            if name in reference:
                yield from self._values(name, np.asarray(reference[name], np.float64))

    def _shares(
        self, name: str, hits: np.ndarray, among: np.ndarray, verb: str
    ) -> Iterator[_Series]:
        first, later = among & (self.place < self.before), among & (self.place >= self.before)
        if not first.any() or not later.any():
            return
        had = int(hits[first].sum()), int(first.sum())
        scan = metrics.scan_shares(had, hits[later], self.place[later] - self.before)
        counted = _COUNTED.get(name.split()[0], "chips")

        def words(chosen: np.ndarray, higher: bool, lasts: bool) -> str:
            del higher
            now, be = hits[chosen & among].mean(), "are" if lasts else "were"
            of_all = f"{_percent(now)} of the {counted} {be} {verb}"
            return f"{of_all}, {_percent(had[0] / had[1])} before ({self.when})"

        yield _Series(name, scan, self.periods[self.before :], words)

    def _values(self, name: str, training: np.ndarray | None) -> Iterator[_Series]:
        every = values_of(self.rows, name)
        there = ~np.isnan(every)
        skipped = self.before if training is None else 0
        base = every[there & (self.place < self.before)] if training is None else training
        compared = there & (self.place >= skipped)
        if len(base) < FEWEST or not compared.any():
            return
        scan = metrics.scan_values(base, every[compared], self.place[compared] - skipped)
        of_whom = f"before ({self.when})" if training is None else "in the training"
        than = " than in the training" if training is not None else ""

        def words(chosen: np.ndarray, higher: bool, lasts: bool) -> str:
            now, said = every[chosen & there], f"the chips {_changed(name, higher, lasts)}{than}"
            if (part := _beyond(now, base, higher=higher)) is None:
                of_half = f"the median {name} is {np.median(now):.4g}, {np.median(base):.4g}"
                return f"{said}: {of_half} {of_whom}"
            (edge, share, had), side = part, "above" if higher else "below"
            return f"{said}: {_percent(share)} are {side} {edge:.4g}, {_percent(had)} {of_whom}"

        yield _Series(name, scan, self.periods[skipped:], words)

    def finding(self, one: _Series, change: metrics.Change, looks: int) -> Finding:
        """Describes a change."""
        first, last = int(one.periods[change.first]), int(one.periods[change.last])
        lasts = last == int(self.periods[-1])
        dates = self._span(*np.searchsorted(self.periods, [first, last]).tolist(), lasts=lasts)
        chosen = (self.number >= first) & (self.number <= last)
        said = f"{dates}, {one.words(chosen, change.effect > 0, lasts)}."
        sentence = f"{self.source}: {said}" if self.source else said[:1].upper() + said[1:]
        length = SECONDS[self.by]
        p_value = min(1.0, looks * math.exp(change.log_p))
        return Finding(
            self.source, one.statistic, first * length, last * length, lasts, sentence, p_value
        )

    def _span(self, first: int, last: int, *, lasts: bool = False) -> str:
        """Names some of the periods, by their places."""
        begin, end = (date(int(self.periods[at]), self.by) for at in (first, last))
        if lasts:
            return f"since {begin}"
        return f"on {begin}" if begin == end else f"from {begin} to {end}"

    def summary(self, sources: int, looks: int, level: float, found: bool) -> str:
        """Says what was compared, and how often a change is found by chance."""
        chips, many = len(self.rows.time), len(self.periods)
        of = f"{chips} input{'' if chips == 1 else 's'} of {sources} source{'s' * (sources > 1)}"
        span = f"{of} {self._span(0, many - 1)}, by {self.by}"
        if not looks:
            return (
                f"Whether anything has changed cannot be told from {span}: at least two "
                f"{self.by}s with {FEWEST} chips each are needed."
            )
        alarm = f"{_percent(level)} of such pages find a change by chance"
        return f"{'Changes were' if found else 'No change was'} found in {span}; {alarm}."


def _silent(groups: Sequence[_Group]) -> Iterator[str]:
    """Says which sources have sent nothing for two periods or more."""
    end = int(groups[0].periods[-1])
    for group in groups[1:]:
        if (last := int(group.periods[-1])) < end - 1:
            yield f"{group.source}: nothing came after {date(last, group.by)}."


def _thresholds(rows: Sighted, by: str) -> Iterator[str]:
    """Says when the threshold of the score was changed, that of all classes or of one."""
    order = np.lexsort((rows.time, rows.nearest))
    order = order[~np.isnan(rows.threshold[order])]
    values, classes = rows.threshold[order], rows.nearest[order]
    changed = (values[1:] != values[:-1]) & (classes[1:] == classes[:-1])
    places = np.flatnonzero(changed) + 1
    now: dict[float, float] = {}  # what has been said, which holds for other classes too
    for at in places[np.argsort(rows.time[order[places]], kind="stable")].tolist():
        before, after = float(values[at - 1]), float(values[at])
        if now.get(before) == after:
            continue
        now[before] = after
        now.pop(after, None)
        when = date(int(rows.time[order[at]]) // SECONDS[by], by)
        yield f"The threshold was changed from {before:.6g} to {after:.6g} on {when}."


def _changed(name: str, higher: bool, lasts: bool) -> str:
    said = WORDS[name][higher]
    verb, _, rest = said.partition(" ")
    return said if lasts else f"{_PAST[verb]} {rest}"


def _beyond(
    now: Float[np.ndarray, " n"], base: Float[np.ndarray, " m"], *, higher: bool
) -> tuple[float, float, float] | None:
    """Finds where two samples differ most, unless at the median or by half of them.

    Args:
      now: the later values.
      base: the earlier ones.
      higher: whether the later ones are higher.

    Returns:
      A quantile of the earlier values, and the shares of later and of earlier values beyond it;
      None if the medians tell the difference.
    """
    edges = np.quantile(base, _LEVELS)
    shares, had = (
        np.mean(values > edges[:, None] if higher else values < edges[:, None], axis=1)
        for values in (now, base)
    )
    best, half = int(np.argmax(shares - had)), _LEVELS.index(0.5)
    if best == half or shares[half] - had[half] >= _HALF_MOVED:
        return None
    return float(edges[best]), float(shares[best]), float(had[best])


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %"


def date(number: int, by: str) -> str:
    """Returns the date of a period, in UTC, by its number since 1970; of an hour, also the hour."""
    at = datetime.datetime.fromtimestamp(number * SECONDS[by], datetime.UTC)
    return at.strftime("%Y-%m-%d" if by == DAY else "%Y-%m-%d %H:00")


class Period(NamedTuple):
    """The figures of a source in a period.

    Attributes:
      date: the period.
      source: the source.
      inputs: number of inputs.
      unusable: number of those that could not be used.
      unknown: number of unknown chips.
      medians: median of each statistic, by name; None where there is none.
    """

    date: str
    source: str
    inputs: int
    unusable: int
    unknown: int
    medians: dict[str, float | None]

    @property
    def unknown_share(self) -> float | None:
        """The share of unknown ones among the usable chips; None without any."""
        usable = self.inputs - self.unusable
        return self.unknown / usable if usable else None


def periods(rows: Sighted, by: str) -> list[Period]:
    """Returns the figures by period and source, in the order of time."""
    number = rows.time // SECONDS[by]
    unknown = ~rows.failed & (rows.label == rows.code(UNKNOWN))
    order = np.lexsort((rows.source, number))
    keys = np.stack([number, rows.source], axis=1)[order]
    starts = np.flatnonzero(np.any(np.diff(keys, axis=0, prepend=-1) != 0, axis=1))
    made = []
    for one in np.split(order, starts[1:]):
        some = rows.where(one)
        medians = {name: _median(values_of(some, name)) for name in STATISTICS}
        day, source = date(int(number[one[0]]), by), rows.names[rows.source[one[0]]]
        counts = len(one), int(some.failed.sum()), int(unknown[one].sum())
        made.append(Period(day, source, *counts, medians))
    return made


def _median(values: Float[np.ndarray, " n"]) -> float | None:
    values = values[~np.isnan(values)]
    return float(np.median(values)) if len(values) else None
