"""A run that is served: its engine, threads, marks and counts, without the web routes."""

import asyncio
import contextlib
import logging
import math
import os
import time
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Iterator,
    Mapping,
    Sequence,
)
from pathlib import Path
from typing import Any, TypeVar

from fastapi import Request
from starlette.exceptions import HTTPException

from jaxatr import data, training
from jaxatr.recognition import sightings
from jaxatr.recognition.prediction import UNKNOWN
from jaxatr.serving import metrics
from jaxatr.serving.batcher import Batcher
from jaxatr.serving.drift import Drifting, Seen
from jaxatr.serving.engine import Answer, Engine, RecogniserEngine
from jaxatr.serving.enrolment import Enroller
from jaxatr.serving.forms import FormError, files_of
from jaxatr.serving.intake import Read, Reader, Upload
from jaxatr.serving.labelling import Desk
from jaxatr.serving.marks import FILE, Marks
from jaxatr.serving.openapi import FORM, RAW
from jaxatr.serving.options import Options
from jaxatr.serving.page import Page
from jaxatr.serving.record import Record
from jaxatr.serving.scenes import Scenes
from jaxatr.serving.served_run import Wanted
from jaxatr.tasks.detection.predictor import Detector
from jaxatr.tasks.detection.recognised import framing_of

Result = TypeVar("Result")

_LOG = logging.getLogger(__name__)

_LEAST_SECONDS = 1.0  # for each of the threads to end, even when the time for requests is over


class Console:
    """A run that is served; :func:`jaxatr.serving.app.build_app` makes the application.

    Attributes:
      options: the options that it is served with.
      batcher: the batches and the thread that computes them.
      metrics: the counters for Prometheus.
      drift: compares the served chips with the training's.
      record: keeps the predictions; None for none.
      reader: decodes uploads.
      scenes: finds targets in scenes, and cuts out chips.
      marks: the users' marks on predictions.
      desk: the chips to label; None for none.
      page: the HTML page.
      label_page: the page on which they are labelled; None for none.
      enroller: enrols classes; None if the run cannot enrol any.
      idle: whether no thread is left after :meth:`running`; False if one did not end in time.
    """

    def __init__(
        self,
        engine: Engine,
        options: Options,
        wanted: Wanted | None = None,
        detector: Detector | None = None,
    ):
        """Sets up the console; :meth:`running` starts its threads.

        Args:
          engine: the engine, warmed up for the batch sizes.
          options: the options to serve with.
          wanted: the arguments that the engine was loaded with, for loading it again after an
            enrolment; None disables enrolment.
          detector: finds targets in scenes; None to decide about given boxes only.

        Raises:
          ValueError: the marks file is invalid, the record is not a ``.jsonl`` file, or see
            :class:`Desk`.
          OSError: the marks file cannot be read, or the record cannot be written.
        """
        self.options, limits = options, options.limits
        self.batcher = Batcher(
            engine,
            options.batches,
            most=limits.waiting,
            seconds=limits.answer_seconds,
            seen=lambda size, count, seconds: self.metrics.batch(size, count, seconds),
        )
        self.metrics = metrics.Metrics(lambda: self.batcher.waiting)
        self.drift = Drifting(engine.reference, self.metrics.drift)
        self.record = None
        if options.record:
            name = training.run_id(engine.run)
            self.record = Record(Path(options.record), name, engine.runtime)
        self.reader = Reader(engine.intake, most=limits.pixels)
        self.scenes = Scenes(self.reader.chip, framing_of(engine.run), limits, detector)
        self._ends = math.inf  # time at which the threads are no longer waited for
        self.idle = True
        self.marks = Marks(Path(options.marks or os.path.join(engine.run, FILE)))
        self.desk = self.label_page = None
        if options.label:
            labels = Path(options.labels) if options.labels else None
            where = {} if wanted is None else wanted.where
            self.desk = Desk(engine, Path(options.label), labels, where)
            self.label_page = Page("labelling", words=self.desk.words, name="…", served=True)
        self.page = Page("console")
        self.enroller = None
        if wanted is not None and isinstance(engine, RecogniserEngine):
            self.enroller = Enroller(engine, wanted, options.batches, self._replace)

    @property
    def engine(self) -> Engine:
        """The current engine; an enrolment replaces it."""
        assert isinstance(self.batcher.engine, Engine)
        return self.batcher.engine

    def _replace(self, engine: Engine) -> None:
        self.batcher.engine = engine
        self.drift.replace(engine.reference)

    @contextlib.asynccontextmanager
    async def running(self, app: object = None) -> AsyncIterator[None]:
        """Starts the threads, and stops them at exit: the lifespan of the ASGI application."""
        del app
        self.batcher.start()
        try:
            yield
        finally:
            self.stop()
            ended = [
                await asyncio.to_thread(end, max(_LEAST_SECONDS, self._ends - time.monotonic()))
                for end in (
                    *([] if self.enroller is None else [self.enroller.finish]),
                    self.batcher.stop,
                    self.reader.close,
                    self.scenes.close,
                )
            ]
            self.idle = all(ended)

    def stop(self) -> None:
        """Begins to stop: the work in progress gets ``drain_seconds`` from the first call on."""
        self._ends = min(self._ends, time.monotonic() + self.options.limits.drain_seconds)

    async def read(self, request: Request, *, predicted: bool = False) -> list[Read]:
        """Reads the files of a request; stops when the client disconnects.

        Args:
          request: the request.
          predicted: whether the files are to be predicted, so that the record also has those that
            cannot be used.

        Returns:
          For each file the chip, or the reason why it cannot be used.

        Raises:
          HTTPException: the body is neither a form nor an image, or has no file.
          Unusable: no file is a usable image.
          Busy: too many chips are waiting.
        """
        uploads = await self._uploads(request)
        self.batcher.check(len(uploads))  # before they are decoded
        read = await unless_gone(request, self.reader.read(uploads))
        used = sum(one.chip is not None for one in read)
        self.metrics.images(used, len(read) - used)
        if predicted and self.record is not None and used < len(read):
            source = source_of(request)
            unusable = [one for one in read if one.chip is None]
            rows = [self.record.row(o.name, source, None, error=o.error) for o in unusable]
            await asyncio.to_thread(self._write, rows)
        if not used:
            raise Unusable(read)
        return read

    @contextlib.asynccontextmanager
    async def scene(self, request: Request) -> AsyncIterator[Read]:
        """Reads the only file of a request as a scene, which takes a place until the exit.

        Raises:
          HTTPException: the body is neither a form nor an image, or has no file, or several.
          Unusable: the file is not a usable image.
          Busy: there is no place for another scene.
        """
        uploads = await self._uploads(request)
        if len(uploads) > 1:
            raise HTTPException(422, f"images: got {len(uploads)}, wanted one scene")
        with self.scenes.place():
            (scene,) = await unless_gone(request, self.reader.read(uploads, scenes=True))
            self.metrics.scene(scene.chip is not None)
            if scene.chip is None:
                raise Unusable([scene])
            yield scene

    async def _uploads(self, request: Request) -> list[Upload]:
        """Returns the files of a request.

        Raises:
          HTTPException: the body is neither a form nor an image, is compressed, or has no file.
        """
        kind = request.headers.get("content-type", "")
        plain = kind.partition(";")[0].strip().lower()
        is_form = plain == FORM
        if not is_form and not plain.startswith("image/") and plain != RAW[1]:
            raise HTTPException(415, f"got a body of {plain or 'no type'}, wanted a form, {FORM}")
        if (coding := request.headers.get("content-encoding", "identity")).lower() != "identity":
            raise HTTPException(415, f"got a body in the coding {coding}, wanted it as it is")
        body = await request.body()
        if is_form:
            try:
                uploads = files_of(body, kind, most=self.options.limits.images)
            except FormError as error:
                raise HTTPException(400, str(error)) from None
        else:
            uploads = [Upload("image", body)]
        if not uploads:
            raise HTTPException(422, "there is no file in the form")
        return uploads

    async def answers(
        self,
        request: Request,
        read: list[Read],
        *,
        neighbours: bool = False,
        scores: Collection[str] = (),
        watched: Sequence[bool] | None = None,
    ) -> list[tuple[Read, Answer | None]]:
        """Predicts uploads like :meth:`Batcher.answer`, unless the client disconnects.

        Args:
          request: the request.
          read: its chips.
          neighbours: whether to return the nearest training chips.
          scores: names of scores to decide by, in addition to the run's own.
          watched: which chips count for the drift; None for all.

        Returns:
          Each upload with its answer, or with None and the reason in ``error``.
        """
        chips = [one.chip for one in read if one.chip is not None]
        answers: Iterator[Answer | Exception] = iter(())
        if chips:
            work = self.batcher.answer(chips, neighbours=neighbours, scores=scores)
            answers = iter(await unless_gone(request, work))
        found: list[tuple[Read, Answer | None]] = []
        for one in read:
            answer = None if one.chip is None else next(answers)
            if isinstance(answer, Exception):
                _LOG.error("%s could not be predicted", one.name, exc_info=answer)
                found.append((one._replace(error="internal error: see the server's log"), None))
            else:
                found.append((one, answer))
        counted = [
            (one, answer)
            for (one, answer), counts in zip(found, watched or [True] * len(found), strict=True)
            if answer is not None and counts
        ]
        if counted:
            named = source_of(request)
            source = self.drift.known(named)
            if self.record is not None or self.drift.compares(source, len(counted)):
                await asyncio.to_thread(self._count, named, source, counted)
            else:  # it takes less time than to hand it to a thread
                self._count(named, source, counted)
        return found

    def _count(self, named: str, source: str, answered: Sequence[tuple[Read, Answer]]) -> None:
        """Records decided chips by the source that is named, and counts them by ``source``."""
        seen, rows = [], []
        for one, answer in answered:
            # The first verdict is by the score that decided then; an enrolment may have changed it.
            verdict = next(iter(answer.verdicts.values()))
            label = verdict["label"]
            about = answer.facts, verdict["score"], label, label == UNKNOWN
            seen.append(Seen(*about, answer.reference))
            if self.record is not None:
                rows.append(self.record.row(one.name, named, verdict, answer.facts))
        self.metrics.source(source)
        self.metrics.decided(source, seen)
        self.drift.add(source, seen)
        self._write(rows)

    def _write(self, rows: Sequence[Mapping[str, data.Cell]]) -> None:
        """Appends rows to the record; a full disk is logged, and the answers are still sent."""
        if self.record is None or not rows:
            return
        try:
            self.record.write(rows)
        except OSError as error:
            _LOG.error("%s: %d rows are lost: %s", self.options.record, len(rows), error.strerror)

    async def with_kept(
        self, work: Callable[..., Result], *arguments: Any, what: str = "the marks"
    ) -> Result:
        """Calls a method of the marks or the labels in a thread.

        Args:
          work: the method.
          *arguments: its arguments.
          what: what it works on, for errors.

        Raises:
          HTTPException: the file is damaged or full, or cannot be read or written.
        """
        try:
            return await asyncio.to_thread(work, *arguments)
        except ValueError as error:
            raise HTTPException(422, str(error)) from None
        except OSError as error:
            reason = error.strerror or error
            raise HTTPException(503, f"{what} cannot be used: {reason}") from None

    def check_score(self, score: str | None) -> None:
        """Checks that the run offers a score; None stands for the run's own.

        Raises:
          HTTPException: it does not; the message lists the scores that it offers.
        """
        names = [scale.name for scale in self.engine.scales]
        if score is not None and score not in names:
            raise HTTPException(422, f"score: got {score!r}, wanted one of {', '.join(names)}")

    def check_neighbours(self) -> None:
        """Checks that there are training chips to search.

        Raises:
          HTTPException: there are none; the message gives the reason.
        """
        if self.engine.examples is None:
            raise HTTPException(404, f"there are no neighbours: {self.engine.missing}")


def source_of(request: Request) -> str:
    """Returns the source that a request names for its images."""
    return data.class_name(request.query_params.get("source", "")) or sightings.UNNAMED


async def unless_gone(request: Request, work: Awaitable[Result]) -> Result:
    """Waits for a result, and cancels the work if the client disconnects.

    Raises:
      HTTPException: the client has disconnected.
    """
    task = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(request.receive())
    try:
        await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        raise HTTPException(499, "the client has disconnected")
    finally:
        task.cancel()
        gone.cancel()


class Unusable(Exception):
    """A request without any usable image.

    Attributes:
      results: the reason for each image, as :class:`jaxatr.serving.schemas.Unusable`.
    """

    def __init__(self, read: list[Read]):
        more = f", nor can {len(read) - 1} others" if len(read) > 1 else ""
        super().__init__(f"{read[0].name} cannot be used{more}: {read[0].error}")
        self.results = [failure(one) for one in read]


def failure(read: Read) -> dict[str, Any]:
    """Returns the fields of :class:`jaxatr.serving.schemas.Unusable` for an unusable image."""
    return {"name": read.name, "id": read.id, "error": read.error}
