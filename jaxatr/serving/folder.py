"""A folder that must not be exchanged for another one while the console runs."""

import os
import weakref
from pathlib import Path


class Folder:
    """A folder, recognised later although its path may by then lead to another one.

    It is held open, so that the system does not give its number to a new folder.
    """

    def __init__(self, path: str | os.PathLike):
        """Opens a folder.

        Raises:
          OSError: there is no such folder, or it cannot be read.
        """
        self._path = Path(path)
        self._opened = os.open(self._path, os.O_RDONLY | os.O_DIRECTORY)
        weakref.finalize(self, os.close, self._opened)

    def check(self) -> None:
        """Checks that the path still leads to this folder.

        Raises:
          FileNotFoundError: it was removed, or there is another one in its place.
        """
        if not self._path.is_dir() or not os.path.samestat(
            os.fstat(self._opened), self._path.stat()
        ):
            raise FileNotFoundError(
                f"{self._path} is no longer the folder of when the console started: it was moved "
                "or replaced; restart the console"
            )
