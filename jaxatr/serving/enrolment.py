"""Enrols a group of uploads as a class while requests go on being answered."""

import os
import tempfile
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from jaxatr import runs
from jaxatr.data.images import decode_image
from jaxatr.serving.engine import Engine, Wanted, load_engine
from jaxatr.serving.intake import Upload

IDLE = {"state": "idle", "name": "", "detail": ""}


class InProgress(Exception):
    """A class is being enrolled already."""


class Enroller:
    """Enrols one class at a time, and puts the new engine in the place of the old one.

    The chips are added to the run (:func:`jaxatr.runs.enrol_run`), the run is loaded anew, and all
    its batches are compiled, in a thread. Until then the old engine answers, which does not know
    the class; from then on the new one. Every batch is of one of them.

    Attributes:
      state: of the last enrolment: ``idle``, ``busy``, ``done`` or ``failed``, the name of the
        class, and a line about it.
    """

    def __init__(self, wanted: Wanted, sizes: Sequence[int], replace: Callable[[Engine], None]):
        """Does nothing yet.

        Args:
          wanted: the run, as it is served.
          sizes: of batches to compile.
          replace: puts an engine in the place of the last one.
        """
        self._wanted, self._sizes, self._replace = wanted, tuple(sizes), replace
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self.state: dict[str, str] = dict(IDLE)

    def start(self, name: str, score: str | None, uploads: Sequence[Upload]) -> None:
        """Begins to enrol a class.

        Args:
          name: of the class.
          score: by which the run decides from then on; None for the one that does so already.
          uploads: its chips, which the run takes.

        Raises:
          InProgress: one is being enrolled.
        """
        with self._lock:
            if self.state["state"] == "busy":
                raise InProgress(f"{self.state['name']} is being enrolled")
            self.state = {"state": "busy", "name": name, "detail": ""}
            self._thread = threading.Thread(target=self._run, args=(name, score, uploads))
            self._thread.start()

    def finish(self) -> None:
        """Waits for what was begun."""
        if self._thread is not None:
            self._thread.join()

    def _run(self, name: str, score: str | None, uploads: Sequence[Upload]) -> None:
        try:
            detail, state = self._enrolled(name, score, uploads), "done"
        except (ValueError, OSError, ImportError, RuntimeError) as error:
            detail, state = str(error), "failed"
        except BaseException:
            self.state = {"state": "failed", "name": name, "detail": "a bug: see the server's log"}
            raise
        self.state = {"state": state, "name": name, "detail": detail}

    def _enrolled(self, name: str, score: str | None, uploads: Sequence[Upload]) -> str:
        wanted = self._wanted
        with tempfile.TemporaryDirectory(prefix="jaxatr-") as folder:
            for number, upload in enumerate(uploads):
                # Under a name of ours, and as what it was decoded to.
                image = decode_image(upload.content, upload.name)
                np.save(os.path.join(folder, f"{number:05}.npy"), image)
            facts: dict[str, Any] = runs.enrol_run(
                wanted.workdir,
                folder,
                name=name,
                score=score or wanted.score,
                checkpoint=wanted.checkpoint,
                where=wanted.where,
            )
        self._wanted = wanted._replace(score=facts["score"])
        engine = load_engine(self._wanted)
        engine.warm(self._sizes)
        self._replace(engine)
        left = f", {facts['left_out']} were there already" if facts["left_out"] else ""
        return f"{facts['added']} chips added{left}; {facts['score']} decides"
