"""Metrics for Prometheus, and a counter of compilations."""

import threading
from collections.abc import Callable, Iterable

import jax
import prometheus_client as prometheus

from jaxatr.data import FACTS
from jaxatr.recognition.drift import Drift
from jaxatr.serving.drift import Seen

_COMPILED = "/jax/core/compile/backend_compile_duration"
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)


class _Compilations:
    """Counts the programs that this process compiles or loads from the compilation cache."""

    def __init__(self):
        self.count, self._lock = 0, threading.Lock()
        jax.monitoring.register_event_duration_secs_listener(self._listen)

    def _listen(self, event: str, duration_secs: float, **kwargs: str | int) -> None:
        del duration_secs, kwargs
        if event == _COMPILED:
            with self._lock:
                self.count += 1


_counted: _Compilations | None = None


def compilations() -> int:
    """Returns the number of programs compiled since the first call."""
    global _counted
    if _counted is None:
        _counted = _Compilations()
    return _counted.count


class Metrics:
    """The metrics of one console."""

    def __init__(self, waiting: Callable[[], int]):
        """Registers the metrics.

        Args:
          waiting: returns the number of waiting chips.
        """
        self.registry = prometheus.CollectorRegistry()
        names = ("route", "status")
        self._requests = prometheus.Counter(
            "jaxatr_requests", "Requests by route and status.", names, registry=self.registry
        )
        self._latency = prometheus.Histogram(
            "jaxatr_request_seconds",
            "Time from a request's head to the end of its response.",
            ("route",),
            buckets=_SECONDS,
            registry=self.registry,
        )
        self._images = prometheus.Counter(
            "jaxatr_images", "Images by result.", ("result",), registry=self.registry
        )
        self._scenes = prometheus.Counter(
            "jaxatr_scenes", "Scenes by result.", ("result",), registry=self.registry
        )
        self._targets = prometheus.Counter(
            "jaxatr_scene_targets", "Targets found in scenes.", registry=self.registry
        )
        self._batches = prometheus.Counter(
            "jaxatr_batches", "Batches by size.", ("size",), registry=self.registry
        )
        self._chips = prometheus.Counter(
            "jaxatr_batch_chips", "Chips in batches, without padding.", registry=self.registry
        )
        self._computed = prometheus.Counter(
            "jaxatr_compute_seconds", "Time spent computing batches.", registry=self.registry
        )
        gauge = prometheus.Gauge(
            "jaxatr_waiting_chips", "Chips waiting for a batch.", registry=self.registry
        )
        gauge.set_function(waiting)
        self._windows = prometheus.Counter(
            "jaxatr_drift_windows",
            "Windows of chips compared with the training's, by whether a drift was found.",
            ("source", "found"),
            registry=self.registry,
        )
        self._decided = prometheus.Counter(
            "jaxatr_decided_chips",
            "Chips by source and verdict of the run.",
            ("source", "verdict"),
            registry=self.registry,
        )
        self._named = prometheus.Counter(
            "jaxatr_named_chips", "Chips by the class named.", ("label",), registry=self.registry
        )
        self._scores = prometheus.Summary(
            "jaxatr_score", "Scores by source.", ("source",), registry=self.registry
        )
        self._facts = prometheus.Summary(
            "jaxatr_image_fact",
            "Facts of the images by source.",
            ("source", "fact"),
            registry=self.registry,
        )
        self._distance = prometheus.Gauge(
            "jaxatr_drift_distance",
            "Kolmogorov-Smirnov distance of a source's last window from the training.",
            ("source", "statistic"),
            registry=self.registry,
        )
        self._p_value = prometheus.Gauge(
            "jaxatr_drift_p_value",
            "P-value of that distance, corrected for the number of statistics.",
            ("source", "statistic"),
            registry=self.registry,
        )
        before = compilations()
        compiled = prometheus.Gauge(
            "jaxatr_compilations", "Programs compiled since the start.", registry=self.registry
        )
        compiled.set_function(lambda: compilations() - before)

    def request(self, route: str, status: int, seconds: float) -> None:
        """Counts a request."""
        self._requests.labels(route, str(status)).inc()
        self._latency.labels(route).observe(seconds)

    def images(self, used: int, refused: int) -> None:
        """Counts usable and unusable images."""
        self._images.labels("answered").inc(used)
        self._images.labels("refused").inc(refused)

    def scene(self, used: bool) -> None:
        """Counts a scene that can be used, or cannot."""
        self._scenes.labels("answered" if used else "refused").inc()

    def targets(self, count: int) -> None:
        """Counts the targets that were found in a scene."""
        self._targets.inc(count)

    def batch(self, size: int, count: int, seconds: float) -> None:
        """Counts a batch of ``count`` chips, padded to ``size``, and its seconds."""
        self._batches.labels(str(size)).inc()
        self._chips.inc(count)
        self._computed.inc(seconds)

    def source(self, source: str) -> None:
        """Starts the counters of a source at zero."""
        for verdict in ("known", "unknown"):
            self._decided.labels(source, verdict)
        for found in ("no", "yes"):
            self._windows.labels(source, found)

    def decided(self, source: str, chips: Iterable[Seen]) -> None:
        """Counts the chips of a source that were decided about."""
        for chip in chips:
            self._decided.labels(source, "unknown" if chip.unknown else "known").inc()
            self._named.labels(chip.label).inc()
            if chip.score is not None:
                self._scores.labels(source).observe(chip.score)
            for name, value in zip(FACTS, chip.facts.tolist(), strict=True):
                self._facts.labels(source, name).observe(value)

    def drift(self, source: str, last: Drift) -> None:
        """Records the comparison of a window of a source's chips."""
        self._windows.labels(source, "yes" if last.found else "no").inc()
        for one in last.shifts:
            self._distance.labels(source, one.name).set(one.distance)
            self._p_value.labels(source, one.name).set(one.p_value)

    def text(self) -> bytes:
        """Returns the metrics in Prometheus's text format."""
        return prometheus.generate_latest(self.registry)


CONTENT_TYPE = prometheus.CONTENT_TYPE_LATEST
