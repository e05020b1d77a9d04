"""Workers that search the scenes of a shard; a part has a row for each target."""

import itertools
from dataclasses import replace
from functools import cached_property
from pathlib import Path

from jaxatr import runs
from jaxatr.batch import manifest
from jaxatr.batch.sources import Found
from jaxatr.batch.worker import Identity, Job, Worker, load
from jaxatr.data import Cell, reason_of
from jaxatr.data.scene_image import open_scene
from jaxatr.tasks.detection.decoding import Strip
from jaxatr.tasks.detection.finder import Finder
from jaxatr.tasks.detection.predictor import Detector
from jaxatr.training import Predictor
from jaxatr.training.networks import digest


class SceneWorker(Worker):
    """A detector, and perhaps a recogniser, that search the scenes of a job."""

    @cached_property
    def _predictors(self) -> tuple[Detector, Predictor | None]:
        detector, search = load(self._job), self._job.search
        if not isinstance(detector, Detector):
            raise ValueError(f"{self._job.workdirs[0]}: wanted the run of a detector")
        if search is None or not search.recognisers:
            return detector, None
        several = search.recognisers if len(search.recognisers) > 1 else search.recognisers[0]
        return detector, runs.load_predictor(several, **search.options)

    @cached_property
    def _finder(self) -> Finder:
        return Finder(*self._predictors)

    @cached_property
    def _identity(self) -> Identity:
        finder = self._finder
        both = [one for one in self._predictors if one is not None]
        run = digest([one.digest() for one in both])
        columns = {n: t for n, t in finder.columns().items() if n not in ("path", "error")}
        notes = dict.fromkeys(one.note for one in both if one.note)
        return Identity(run, {**columns, "map_x": float, "map_y": float}, "; ".join(notes))

    def _made(self, shard: manifest.Shard) -> tuple[list[dict[str, Cell]], int]:
        """Returns a row for each target and each unusable scene, and the number of the latter."""
        rows, failed = [], 0
        once, strips = self._once(shard)
        with self._scratch() as scratch:
            inputs = zip(
                self._found(once, scratch), self._job.sources_of(once), strips, strict=True
            )
            for (one, temporary), source, wanted in inputs:
                for strip in wanted:
                    found, error = self._search(one, strip)
                    failed += error is not None
                    found = found if error is None else [{"path": one.name, "error": error}]
                    rows += [row | self._origin(source) for row in found]
                if temporary:
                    Path(one.file).unlink(missing_ok=True)
        return rows, failed

    def _once(self, shard: manifest.Shard) -> tuple[manifest.Shard, list[list[Strip]]]:
        """Returns a shard with each scene once, and which of its strips the shard has."""
        count = 1 if self._job.search is None else self._job.search.strips
        places = itertools.count(shard.number * self._job.size)
        runs, strips = [], []
        for source, keys in shard.runs:
            scenes = [(key, [*same]) for key, same in itertools.groupby(keys)]
            runs.append((source, [key for key, _ in scenes]))
            strips += [[Strip(next(places) % count, count) for _ in same] for _, same in scenes]
        return replace(shard, runs=runs), strips

    @property
    def _has_facts(self) -> bool:
        """Chips of scenes are not measured."""
        return False

    def _search(self, one: Found, strip: Strip) -> tuple[list[dict[str, Cell]], str | None]:
        """Returns the rows of a strip's targets, and why the scene cannot be used."""
        try:
            if one.error is not None:
                raise one.error
            with open_scene(one.file, one.name) as scene:
                rows = self._finder.rows(scene, strip)
        except (ValueError, OSError, ImportError) as error:
            return [], reason_of(error, one.name, one.file)
        return [{"path": one.name, "error": None} | row for row in rows], None


def worker_of(job: Job) -> type[Worker]:
    """Returns the kind of worker that does a job."""
    return Worker if job.search is None else SceneWorker
