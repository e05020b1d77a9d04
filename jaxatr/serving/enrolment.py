"""Enrols uploaded images as a class in the background."""

import threading
from collections.abc import Callable, Sequence

from jaxatr import openset, runs
from jaxatr.data.records import tfds
from jaxatr.recognition.prediction import UNKNOWN
from jaxatr.serving.engine import RecogniserEngine
from jaxatr.serving.folder import Folder
from jaxatr.serving.intake import Read
from jaxatr.serving.served_run import Wanted, load_engine
from jaxatr.tasks.open_set.deciders import AUTO, score_of

_ERRORS = (ValueError, OSError, ImportError, RuntimeError)

IDLE = {"state": "idle", "name": "", "detail": ""}


class InProgress(Exception):
    """Another enrolment is in progress."""


class Enroller:
    """Enrols one class at a time in a thread, then replaces the engine.

    The thread adds the chips to the run (:func:`jaxatr.runs.enrol_chips`), loads the decisions
    again and compiles them for all batch sizes. Meanwhile the old engine, which does not know the
    class, serves the requests. A batch is never split between the two engines.

    Attributes:
      state: ``state`` (``idle``, ``busy``, ``done`` or ``failed``), ``name`` of the class, and a
        line of ``detail`` about the last enrolment.
    """

    def __init__(
        self,
        engine: RecogniserEngine,
        wanted: Wanted,
        sizes: Sequence[int],
        replace: Callable[[RecogniserEngine], None],
    ):
        """Starts no thread yet.

        Args:
          engine: the engine that serves at present.
          wanted: the run that is served, and its options.
          sizes: batch sizes to compile.
          replace: called with the new engine.
        """
        self._engine, self._wanted, self._sizes = engine, wanted, tuple(sizes)
        self._replace, self._folder = replace, Folder(engine.run)
        self._lock, self._stops = threading.Lock(), threading.Event()
        self._thread: threading.Thread | None = None
        self.state: dict[str, str] = dict(IDLE)
        # An enrolment may read the run's data. While TFDS is imported, it replaces Python's own
        # import for moments, in which requests in other threads would fail.
        tfds()

    def check(self, name: str, score: str | None) -> None:
        """Checks the name of a class, and the score that decides from then on.

        Args:
          name: name of the class.
          score: the score; None for the present one.

        Raises:
          ValueError: the name cannot be that of a class, or the score cannot take classes.
        """
        takers = (AUTO, *self._engine.takers)
        if score is not None and score not in takers:
            raise ValueError(f"score: got {score!r}, wanted one of {', '.join(takers)}")
        if name in ("", UNKNOWN) or not name.isprintable():
            raise ValueError(f"name: got {name!r}, wanted the name of a class")
        decides = self._engine.scales[0].name
        if score is None and self._wanted.score != AUTO and decides not in takers:
            raise ValueError(
                f"score: {decides} decides, but cannot take new classes; wanted one of "
                f"{', '.join(takers)}, which then decides"
            )

    def start(self, name: str, score: str | None, read: Sequence[Read]) -> None:
        """Starts to enrol a class.

        Args:
          name: name of the class.
          score: the score that decides from then on; None for the present one.
          read: images of the class, each with a chip.

        Raises:
          InProgress: another class is being enrolled.
          FileNotFoundError: the run's folder was moved or replaced.
        """
        self._folder.check()
        with self._lock:
            if self.state["state"] == "busy":
                raise InProgress(f"{self.state['name']} is being enrolled")
            self.state = {"state": "busy", "name": name, "detail": ""}
            # A daemon, because an enrolment has no effect until its last write: the process can end
            # in the middle of it.
            self._thread = threading.Thread(target=self._run, args=(name, score, read), daemon=True)
            self._thread.start()

    def finish(self, seconds: float | None = None) -> bool:
        """Waits for the enrolment in progress, if any, unless it waits itself for the run's lock.

        Args:
          seconds: longest time to wait; None to wait for as long as it takes.

        Returns:
          Whether no enrolment is in progress any more.
        """
        self._stops.set()
        if self._thread is not None:
            self._thread.join(seconds)
        return self._thread is None or not self._thread.is_alive()

    def _run(self, name: str, score: str | None, read: Sequence[Read]) -> None:
        try:
            detail, state = self._enrolled(name, score, read), "done"
        except _ERRORS as error:
            detail, state = str(error), "failed"
        except BaseException:
            detail = "internal error: see the server's log"
            self.state = {"state": "failed", "name": name, "detail": detail}
            raise
        self.state = {"state": state, "name": name, "detail": detail}

    def _enrolled(self, name: str, score: str | None, read: Sequence[Read]) -> str:
        wanted, before = self._wanted, self._engine
        if score not in (AUTO, *openset.SCORES):  # a score of the user's, by the path to it
            paths = {score_of(one).name: one for one in wanted.scores if one != AUTO}
            score = paths.get(score or "", wanted.score)
        facts = runs.enrol_chips(
            before.lasting.run,
            [(one.name, one.chip) for one in read if one.chip is not None],
            name=name,
            source="the console",
            score=score,
            where=wanted.where,
            session=before.lasting.network.session,
            given_up=self._stops.is_set,
        )
        # A threshold is in the unit of the score that it was given for.
        kept = wanted.gamma if score_of(facts["score"]).name == before.scales[0].name else None
        self._wanted = wanted._replace(score=facts["score"], gamma=kept)
        try:
            engine = load_engine(self._wanted, before)
            assert isinstance(engine, RecogniserEngine)
            engine.warm(self._sizes)
        except (*_ERRORS, MemoryError) as error:
            raise RuntimeError(
                f"the run has the chips now, but cannot be loaded with them ({error}): restart the "
                "console"
            ) from error
        self._engine = engine
        self._replace(engine)
        left = f", {facts['left_out']} already enrolled" if facts["left_out"] else ""
        return f"{facts['added']} chips added{left}; {facts['score']} decides"
