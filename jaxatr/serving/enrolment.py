"""Enrols uploaded images as a class in the background."""

import os
import tempfile
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from jaxatr import runs
from jaxatr.data.images import decode_image
from jaxatr.recognition.recogniser import UNKNOWN
from jaxatr.serving.engine import Engine, Wanted, load_engine
from jaxatr.serving.intake import Upload
from jaxatr.tasks.open_set.deciders import AUTO

_ERRORS = (ValueError, OSError, ImportError, RuntimeError)

IDLE = {"state": "idle", "name": "", "detail": ""}


class InProgress(Exception):
    """Another enrolment is in progress."""


class Enroller:
    """Enrols one class at a time in a thread, then replaces the engine.

    The thread adds the chips to the run (:func:`jaxatr.runs.enrol_run`), loads the run again and
    compiles it for all batch sizes. Meanwhile the old engine, which does not know the class, serves
    the requests. A batch is never split between the two engines.

    Attributes:
      state: ``state`` (``idle``, ``busy``, ``done`` or ``failed``), ``name`` of the class, and a
        line of ``detail`` about the last enrolment.
    """

    def __init__(
        self,
        wanted: Wanted,
        sizes: Sequence[int],
        replace: Callable[[Engine], None],
        decides: str,
    ):
        """Takes the run; no thread is started yet.

        Args:
          wanted: the run that is served, and its options.
          sizes: batch sizes to compile.
          replace: called with the new engine.
          decides: name of the score that decides at present, for which a threshold was given.
        """
        self._wanted, self._sizes, self._replace = wanted, tuple(sizes), replace
        self._decides = decides
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self.state: dict[str, str] = dict(IDLE)

    def check(self, name: str, score: str | None, engine: Engine) -> None:
        """Checks the name of a class, and the score that decides from then on.

        Args:
          name: name of the class.
          score: the score; None for the present one.
          engine: the engine that serves at present.

        Raises:
          ValueError: the name cannot be that of a class, or the score cannot take classes.
        """
        takers = (AUTO, *engine.takers)
        if score is not None and score not in takers:
            raise ValueError(f"score: got {score!r}, wanted one of {', '.join(takers)}")
        if name in ("", UNKNOWN) or not name.isprintable():
            raise ValueError(f"name: got {name!r}, wanted the name of a class")
        decides = engine.scales[0].name
        if score is None and self._wanted.score != AUTO and decides not in takers:
            raise ValueError(
                f"score: {decides} decides, but cannot take new classes; wanted one of "
                f"{', '.join(takers)}, which then decides"
            )

    def start(self, name: str, score: str | None, uploads: Sequence[Upload]) -> None:
        """Starts to enrol a class.

        Args:
          name: name of the class.
          score: the score that decides from then on; None for the present one.
          uploads: usable images of the class.

        Raises:
          InProgress: another class is being enrolled.
        """
        with self._lock:
            if self.state["state"] == "busy":
                raise InProgress(f"{self.state['name']} is being enrolled")
            self.state = {"state": "busy", "name": name, "detail": ""}
            self._thread = threading.Thread(target=self._run, args=(name, score, uploads))
            self._thread.start()

    def finish(self) -> None:
        """Waits for the enrolment in progress, if any."""
        if self._thread is not None:
            self._thread.join()

    def _run(self, name: str, score: str | None, uploads: Sequence[Upload]) -> None:
        try:
            detail, state = self._enrolled(name, score, uploads), "done"
        except _ERRORS as error:
            detail, state = str(error), "failed"
        except BaseException:
            detail = "internal error: see the server's log"
            self.state = {"state": "failed", "name": name, "detail": detail}
            raise
        self.state = {"state": state, "name": name, "detail": detail}

    def _enrolled(self, name: str, score: str | None, uploads: Sequence[Upload]) -> str:
        wanted = self._wanted
        with tempfile.TemporaryDirectory(prefix="jaxatr-") as folder:
            # Clients' file names are not used as paths.
            files = [os.path.join(folder, f"{number:05}.npy") for number in range(len(uploads))]
            for file, upload in zip(files, uploads, strict=True):
                np.save(file, decode_image(upload.content, upload.name))
            try:
                facts: dict[str, Any] = runs.enrol_run(
                    wanted.workdir,
                    folder,
                    name=name,
                    score=score or wanted.score,
                    checkpoint=wanted.checkpoint,
                    where=wanted.where,
                )
            except ValueError as error:
                text = str(error)
                for file, upload in zip(files, uploads, strict=True):
                    text = text.replace(file, upload.name)
                raise ValueError(text) from error
        # A threshold is in the unit of the score that it was given for.
        kept = wanted.gamma if facts["score"] == self._decides else None
        self._wanted = wanted._replace(score=facts["score"], gamma=kept)
        self._decides = facts["score"]
        try:
            engine = load_engine(self._wanted)
            engine.warm(self._sizes)
        except (*_ERRORS, MemoryError) as error:
            raise RuntimeError(
                f"the run has the chips now, but cannot be loaded with them ({error}): restart the "
                "console"
            ) from error
        self._replace(engine)
        left = f", {facts['left_out']} already enrolled" if facts["left_out"] else ""
        return f"{facts['added']} chips added{left}; {facts['score']} decides"
