"""What the commands share: flags in, library call, exit code out."""

import sys
import traceback
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Literal, cast

from jaxatr import memory

# Where a command is what this process runs, before the imports below: they start threads, and the
# heaps that these have by then are not brought together later.
_main = getattr(sys.modules["__main__"], "__spec__", None)
if _main is not None and _main.name.startswith("jaxatr."):
    memory.keep()

from absl import app, flags, logging  # noqa: E402

from jaxatr import data  # noqa: E402

EXIT_USER_ERROR = 2


def run(main: Callable[[Sequence[str]], int | None], define_flags: Callable[[], None]) -> None:
    """Runs a command: a user's error is one line on standard error and exit code 2.

    An exception that carries an ``exit_code`` (a run that was told to stop) exits with that.

    Args:
      main: takes the arguments that are no flags; returns an exit code, or ``None`` for 0.
      define_flags: defines the command's own flags.
    """
    warnings.formatwarning = lambda message, *_, **__: f"warning: {message}\n"
    flags.DEFINE_bool("debug", False, "Show where an error came from.")
    define_flags()
    app.run(lambda argv: _guarded(main, argv[1:]), flags_parser=_parse)


def checkpoint(text: str) -> Literal["best", "latest"] | int:
    """Returns the checkpoint that a flag names.

    Raises:
      ValueError: it is neither ``latest``, ``best`` nor a step.
    """
    if text in ("best", "latest"):
        return cast(Literal["best", "latest"], text)
    if not text.isdigit():
        raise ValueError(f"--checkpoint: got {text!r}, wanted 'latest', 'best' or a step")
    return int(text)


def usable_images(
    paths: Iterable[str],
    check: Callable[[Any], object],
    used: deque[str],
    failed: list[str],
    *,
    read: Callable[[str], Any] = data.read_image,
) -> Iterator[Any]:
    """Yields the images that can be used; names the others on standard error, at once.

    Args:
      paths: of image files.
      check: raises ``ValueError`` for an image that cannot be used.
      used: gets the paths of those that can, before each is yielded.
      failed: gets the paths of the others.
      read: what a path stands for; :func:`jaxatr.data.read_folder` where it is a track.
    """
    for path in paths:
        try:
            image = read(path)
            check(image)
        except (ValueError, OSError) as error:
            message = str(error)
            print(f"error: {message if path in message else f'{path}: {message}'}", file=sys.stderr)
            failed.append(path)
            continue
        used.append(path)
        yield image


def _guarded(main: Callable[[Sequence[str]], int | None], arguments: Sequence[str]) -> int:
    if not flags.FLAGS["verbosity"].present:
        logging.set_verbosity(logging.ERROR)  # orbax narrates what it does; ours are warnings
    try:
        return main(arguments) or 0
    except (
        ValueError,
        OSError,
        ImportError,
        RuntimeError,
        ArithmeticError,
        KeyError,
        TypeError,
    ) as error:
        return _tell(error)
    except Exception as error:
        if not hasattr(error, "exit_code"):
            raise
        return _tell(error)


def _parse(argv: Sequence[str]) -> list[str]:
    """Parses the flags; a misspelt configuration field is a user's error too."""
    try:
        return flags.FLAGS(list(argv))
    except (flags.Error, AttributeError, KeyError, ValueError, OSError, TypeError) as error:
        # What a configuration file raised arrives as the text of its traceback.
        cause = error.args[0] if error.args else error
        text = str(cause).strip()
        line = text.splitlines()[-1] if "Traceback" in text else text.replace("\n", " ")
        if isinstance(cause, KeyError):  # its text is the missing name alone
            line = f"there is no field {cause.args[0]}"
        print(f"error: {'' if 'flag' in line else '--config: '}{line}", file=sys.stderr)
        sys.exit(EXIT_USER_ERROR)


def _tell(error: Exception) -> int:
    if flags.FLAGS.is_parsed() and flags.FLAGS.debug:
        traceback.print_exception(error)
    print(f"error: {error}", file=sys.stderr)
    return getattr(error, "exit_code", EXIT_USER_ERROR)
