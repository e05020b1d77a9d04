"""Runs a command: parses its flags, and converts exceptions to exit codes."""

import os
import re
import sys
import traceback
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Protocol, TextIO, cast, runtime_checkable

from absl import app, flags, logging

from jaxatr import resolve
from jaxatr.cli import help_page, terminal

EXIT_USER_ERROR = 2
EXIT_BUG = 70  # EX_SOFTWARE of BSD's sysexits.h
EXIT_BROKEN_PIPE = 141  # of a process that SIGPIPE ends

_HELP = ("--help", "-help", "-h", "-?", "--helpshort", "--helpfull")
_USER_ERRORS = (ValueError, OSError, ImportError, MemoryError, FloatingPointError, RuntimeError)
_MISSING = re.compile(r"flag (--\w+)=None: .* other than None\.")  # absl's message
_EARLY = re.compile(r"(?:Found --|Unknown command line flag ')(config\.[^\s=']+).*")  # of absl too
# Python's messages about a text that is not a number.
_NO_NUMBER = re.compile(
    r"(invalid literal for int\(\) with base 10|could not convert string to float): "
)
_BUGS = (NotImplementedError, RecursionError)  # subclasses of RuntimeError


@runtime_checkable  # the tests check annotations at run time
class Command(Protocol):
    """The module of a command; its docstring is the text of ``--help``."""

    __doc__: str | None

    def define_flags(self) -> None:
        """Defines the command's flags; importing the module alone does not."""

    def main(self, arguments: Sequence[str]) -> int | None:
        """Runs the command.

        Args:
          arguments: positional arguments.

        Returns:
          The exit code; ``None`` for 0.
        """


def run(command: Command) -> None:
    """Runs a command with the arguments in ``sys.argv``, and exits with its code.

    A user's error prints one line to standard error and exits with code 2, or with the exception's
    ``exit_code`` (a run that was asked to stop). A bug prints a traceback and exits with code 70.

    Args:
      command: the command. Flags are global, so that a process can run only one command.
    """
    sys.stdout = cast(TextIO, terminal.Plain(sys.stdout))
    sys.stderr = cast(TextIO, terminal.Plain(sys.stderr))
    warnings.formatwarning = lambda message, *_, **__: f"warning: {message}\n"
    command.define_flags()
    if "workdir" in flags.FLAGS or "data_dir" in flags.FLAGS:
        flags.DEFINE_bool(
            "trust",
            False,
            "Allow the run, or prepared data, to name code outside of jaxatr, which is then run: "
            "for what is your own, or of a known origin.",
        )
    flags.DEFINE_bool("debug", False, "Print the tracebacks of errors.")
    own = [flags.FLAGS[name] for name in flags.FLAGS if _is_own(name)]  # not those of libraries
    parse = partial(_parse, command, own)
    app.run(lambda argv: _guarded(command, argv[1:]), flags_parser=parse)


def is_users(error: Exception) -> bool:
    """Whether an exception is a user's mistake and not a bug in the package."""
    if hasattr(error, "exit_code"):
        return True
    if isinstance(error, ImportError) and (error.name or "").partition(".")[0] == "jaxatr":
        return False
    return isinstance(error, _USER_ERRORS) and not isinstance(error, _BUGS)


def _is_own(name: str) -> bool:
    return (flags.FLAGS.find_module_defining_flag(name) or "").partition(".")[0] == "jaxatr"


def _guarded(command: Command, arguments: Sequence[str]) -> int:
    if not flags.FLAGS["verbosity"].present:
        logging.set_verbosity(logging.FATAL)  # orbax logs, with tracebacks, what it raises too
    try:
        _trust_the_users()
        _check_data_dir(command)
        return _until_closed(lambda: command.main(arguments))
    except Exception as error:
        if is_users(error):
            if flags.FLAGS.debug:
                traceback.print_exception(error)
            print(f"error: {_message(error)}", file=sys.stderr)
            return getattr(error, "exit_code", EXIT_USER_ERROR)
        if platforms := _missing_platforms():
            print(f"error: {platforms}", file=sys.stderr)
            return EXIT_USER_ERROR
        traceback.print_exception(error)
        print("This is a bug in jaxatr. Please report it with the lines above.", file=sys.stderr)
        return EXIT_BUG


def _trust_the_users() -> None:
    """Allows names of code on the command line, and with ``--trust`` those that a run has, too."""
    given = (flags.FLAGS[name] for name in flags.FLAGS if _is_own(name))
    resolve.trust_names_in(flag.value for flag in given if flag.present)
    if "trust" in flags.FLAGS and flags.FLAGS["trust"].value:
        resolve.trust(resolve.EVERYTHING)


def _check_data_dir(command: Command) -> None:
    """Checks that ``--data_dir`` exists; only ``prepare`` makes a new one.

    Raises:
      ValueError: there is no such folder.
    """
    makes = getattr(command, "__name__", "").endswith(".prepare")
    place = flags.FLAGS["data_dir"].value if "data_dir" in flags.FLAGS else None
    if place is not None and not makes and not Path(place).expanduser().is_dir():
        raise ValueError(f"--data_dir: there is no folder {place}")


def _message(error: Exception) -> str:
    """Formats an error; one of the operating system as the file and the reason, without errno."""
    if isinstance(error, OSError) and error.filename is not None and error.strerror:
        return f"{terminal.one_line(str(error.filename))}: {error.strerror}"
    text = str(error) or type(error).__name__
    if (catalogue := sys.modules.get("jaxatr.data.catalogue")) is not None:
        for flag in ("data_source", "config", "source"):
            if flag in flags.FLAGS:
                own = f"--{'config.data.source' if flag == 'config' else flag}=PATH"
                return text.replace(catalogue.BY_FLAGS, own)
    return text


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
            return flags.FLAGS(list(argv))
        page = help_page.page(command, own)
    # A misspelt configuration field raises an AttributeError or a KeyError.
    except (flags.Error, AttributeError, KeyError, ValueError, OSError, TypeError) as error:
        print(f"error: {_line(error, argv)}", file=sys.stderr)
        sys.exit(EXIT_USER_ERROR)
    if asked == "--helpfull":
        page += f"\n\nflags of libraries:\n{flags.FLAGS.get_help()}"
    sys.exit(_until_closed(lambda: print(page)))


def _line(error: Exception, argv: Sequence[str]) -> str:
    """Formats an error of the command line as one line."""
    cause = error.args[0] if error.args else error
    if isinstance(error, KeyError) or isinstance(cause, KeyError):
        return _no_field(str(cause.args[0] if isinstance(cause, KeyError) else cause), argv)
    text = str(cause).strip()
    # An exception in a configuration file is passed on as the text of its traceback.
    line = text.splitlines()[-1] if "Traceback" in text else text.replace("\n", " ")
    line = _NO_NUMBER.sub(_wanted, line.removeprefix("ValueError: "))
    if missing := _MISSING.fullmatch(line):
        return f"{missing[1]} is required"
    if "config" in flags.FLAGS and (early := _EARLY.fullmatch(line)):
        return f"--{early[1]}: --config=NAME must stand before it"
    return line if "flag" in line else f"--config: {line}"


def _wanted(found: re.Match[str]) -> str:
    return f"wanted a {'whole ' if 'int' in found[1] else ''}number, got "


def _no_field(text: str, argv: Sequence[str]) -> str:
    """Formats the error for a flag of a field that the configuration does not have.

    Args:
      text: message of ml_collections: the missing name in quotes or a sentence about it, and on a
        second line the closest name.
      argv: the command line.
    """
    name, _, hint = text.partition("\n")
    if added := re.match(r'Key "(.+?)" does not exist', name):  # raised by a configuration file
        name, hint = repr(added[1]), "".join(re.findall("^Did you mean.*$", hint, re.MULTILINE))
    given = (argument.partition("=")[0] for argument in argv)
    flag = next((flag for flag in given if name.strip("'") in flag.split(".")[1:]), "--config")
    return f"{flag}: there is no field {name}. {hint}".strip()
