"""Runs a command: parses its flags, and converts exceptions to exit codes."""

import os
import sys
import traceback
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol, TextIO, cast, runtime_checkable

from absl import app, flags, logging

from jaxatr import resolve
from jaxatr.cli import configuration, devices, help_page, numbers, terminal

EXIT_USER_ERROR = 2
EXIT_BUG = 70  # EX_SOFTWARE of BSD's sysexits.h
EXIT_BROKEN_PIPE = 141  # of a process that SIGPIPE ends

_NO_DEVICE = "Unable to initialize backend"  # the beginning of jax's error
_HELP = ("--help", "-help", "-h", "-?", "--helpshort", "--helpfull")
_USER_ERRORS = (ValueError, OSError, ImportError, MemoryError, FloatingPointError, RuntimeError)
_BUGS = (NotImplementedError, RecursionError)  # subclasses of RuntimeError


@runtime_checkable  # the tests check annotations at run time
class Command(Protocol):
    """A command, usually a module.

    The text of ``--help`` is its docstring, or the result of ``description(arguments)`` if it has
    that function.
    """

    def define_flags(self) -> None:
        """Defines the command's flags; importing the module alone does not."""

    def main(self, arguments: Sequence[str]) -> int | None:
        """Runs the command.

        Returns:
          The exit code; ``None`` for 0.
        """


def run(command: Command, arguments: Sequence[str]) -> None:
    """Runs a command with the arguments of a command line, and exits with its code.

    A user's error prints one line to standard error and exits with code 2, or with the exception's
    ``exit_code`` (a run that was asked to stop). A bug prints a traceback and exits with code 70.

    Args:
      command: the command. Flags are global, so that a process can run only one command.
      arguments: flags and positional arguments.
    """
    sys.stdout, sys.stderr = _plain(sys.stdout), _plain(sys.stderr)
    warnings.formatwarning = lambda message, *_, **__: f"warning: {message}\n"
    if choose := getattr(command, "chosen", None):  # tune, whose sub-commands have their own flags
        command = choose(arguments) or command
    command.define_flags()
    if "workdir" in flags.FLAGS or "data_dir" in flags.FLAGS:
        flags.DEFINE_bool(
            "trust",
            False,
            "Allow the run, or prepared data, to name code outside of jaxatr, which is then run: "
            "for what is your own, or of a known origin.",
        )
    if _name(command) not in devices.WITHOUT:
        devices.define()
    flags.DEFINE_bool("debug", False, "Print the tracebacks of errors.")
    own = [flags.FLAGS[name] for name in flags.FLAGS if _is_own(name)]  # not those of libraries
    for flag in own:
        flag.parser = numbers.explained(flag.parser)
    app.run(
        lambda argv: _guarded(command, argv[1:]),
        [sys.argv[0], *arguments],
        flags_parser=partial(_parse, command, own),
    )


def is_users(error: Exception) -> bool:
    """Whether an exception is a user's mistake and not a bug in the package."""
    if hasattr(error, "exit_code"):
        return True
    if isinstance(error, ImportError) and (error.name or "").partition(".")[0] == "jaxatr":
        return False
    return isinstance(error, _USER_ERRORS) and not isinstance(error, _BUGS)


def _plain(stream: TextIO | None) -> TextIO:
    """Returns a stream without control characters; it writes nothing if there is none.

    Python has none for a descriptor that is closed (``>&-``).
    """
    return cast(TextIO, terminal.Plain(stream or open(os.devnull, "w", encoding="utf-8")))


def _is_own(name: str) -> bool:
    return (flags.FLAGS.find_module_defining_flag(name) or "").partition(".")[0] == "jaxatr"


def _name(command: Command) -> str:
    return getattr(command, "__name__", "").rpartition(".")[2]


def _guarded(command: Command, arguments: Sequence[str]) -> int:
    if not flags.FLAGS["verbosity"].present:
        logging.set_verbosity(logging.FATAL)  # orbax logs, with tracebacks, what it raises too
    try:
        _check_one_run()
        _trust_the_users()
        if _name(command) in devices.INLINE:
            from jaxatr import parallel  # late, to keep --help fast

            parallel.compute_inline()  # before --device starts jax
        if "device" in flags.FLAGS and flags.FLAGS["device"].value is not None:
            devices.use(flags.FLAGS["device"].value)
        return _until_closed(lambda: command.main(arguments))
    except Exception as error:
        users = is_users(error)
        if (not users or _NO_DEVICE in str(error)) and (platforms := _missing_platforms()):
            print(f"error: {platforms}", file=sys.stderr)
            return EXIT_USER_ERROR
        if users:
            if flags.FLAGS.debug:
                traceback.print_exception(error)
            print(f"error: {_message(error)}", file=sys.stderr)
            return getattr(error, "exit_code", EXIT_USER_ERROR)
        traceback.print_exception(error)
        print("This is a bug in jaxatr. Please report it with the lines above.", file=sys.stderr)
        return EXIT_BUG


def _check_one_run() -> None:
    """Checks that a command of one run got no second one, of which absl keeps the last silently.

    A training or a search makes a run: there, a later folder replaces an earlier one, as a value of
    any flag does.
    """
    if "workdir" not in flags.FLAGS or "config" in flags.FLAGS:
        return
    flag = flags.FLAGS["workdir"]
    if flag.present > 1 and not isinstance(flag, flags.MultiFlag):
        raise ValueError(
            f"--workdir: got {flag.present} runs, wanted one; jaxatr predict and evaluate take "
            "several, as an ensemble"
        )


def _trust_the_users() -> None:
    """Allows names of code on the command line, and with ``--trust`` those that a run has, too."""
    given = (flags.FLAGS[name] for name in flags.FLAGS if _is_own(name))
    resolve.trust_names_in(flag.value for flag in given if flag.present)
    if "trust" in flags.FLAGS and flags.FLAGS["trust"].value:
        resolve.trust(resolve.EVERYTHING)


def _message(error: Exception) -> str:
    """Formats an error; one of the operating system as the file and the reason, without errno."""
    if isinstance(error, OSError) and error.filename is not None and error.strerror:
        return f"{terminal.one_line(str(error.filename))}: {error.strerror}"
    return str(error) or type(error).__name__


def _missing_platforms() -> str:
    """Returns the message that jax has none of the devices that it was told to use, or ``""``."""
    wanted, jax = os.environ.get("JAX_PLATFORMS"), sys.modules.get("jax")
    if not wanted or jax is None:
        return ""
    try:
        jax.devices()
    except Exception:
        return (
            f"JAX_PLATFORMS={wanted}: jax finds no such device, or its plug-in is not installed: "
            "pip install 'jaxatr[cuda]' or 'jaxatr[tpu]', or unset the variable"
        )
    return ""


def _until_closed(write: Callable[[], int | None]) -> int:
    """Calls a function that prints; returns its code, or 141 if the reader ends first."""
    try:
        code = write() or 0
        sys.stdout.flush()
        return code
    except BrokenPipeError:  # head closed the pipe, for instance; at exit Python flushes again
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_BROKEN_PIPE


def _parse(command: Command, own: Sequence[flags.Flag], argv: Sequence[str]) -> list[str]:
    """Parses the flags; prints the help page and exits if it is requested."""
    asked = next((argument for argument in argv[1:] if argument in _HELP), None)
    try:
        if asked is None:
            return configuration.parse(argv) if "config" in flags.FLAGS else flags.FLAGS(argv)
        page = help_page.page(command, own, argv[1:])
    except (flags.Error, ValueError, OSError, TypeError) as error:
        print(f"error: {_line(error, own)}", file=sys.stderr)
        sys.exit(EXIT_USER_ERROR)
    if asked == "--helpfull":
        page += f"\n\nflags of libraries:\n{flags.FLAGS.get_help()}"
    sys.exit(_until_closed(lambda: print(page)))


def _line(error: Exception, own: Sequence[flags.Flag]) -> str:
    """Formats an error of the command line as one line."""
    if isinstance(error, flags.UnrecognizedFlagError):
        close = resolve.nearest(error.flagname, [flag.name for flag in own])
        return f"there is no flag --{error.flagname}{close}"
    missing = (flag.name for flag in own if flag.value is None and help_page.is_required(flag))
    if flags.FLAGS.is_parsed() and (name := next(missing, None)):  # all values are right
        return f"--{name} is required"
    return " ".join(str(error).split("\n"))
