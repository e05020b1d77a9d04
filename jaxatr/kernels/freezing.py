"""All choices of one program at once, to be written down and used for ever after."""

from collections.abc import Callable, Iterable

import jax

from jaxatr.kernels import database
from jaxatr.kernels.choosing import Choices, collected
from jaxatr.kernels.device import of_platform
from jaxatr.kernels.find import found_choice
from jaxatr.kernels.programs import program


def freeze(
    lower: Callable[[], object],
    *,
    measure: bool = False,
    watch: Callable[[list[str]], Iterable[str]] = iter,
) -> Choices:
    """Returns what computes each problem of a program: the database's choices, or measured ones.

    A problem that is not among them is left to the rules; :func:`jaxatr.kernels.choices` keeps to
    that. Where nothing is recorded for the device and nothing is to be measured, the program is
    not even lowered.

    Args:
      lower: lowers the program, compiled or not; ``jax.jit(f).lower`` with its arguments.
      measure: find what the database does not know, as ``JAXATR_FIND=search`` does; with
        ``JAXATR_FIND=enforce`` everything is measured.
      watch: goes through the keys of the problems that are measured, and may show how far it is.
    """
    mode = database.mode()
    measure = measure or mode in ("search", "enforce")
    if not measure and (mode == "none" or not database.known(of_platform(jax.default_backend()))):
        return Choices({})
    with collected() as collector:
        lower()
    chosen = {}
    if mode in ("db", "search"):
        asked = {key: database.lookup(*item) for key, item in collector.problems.items()}
        chosen = {key: choice for key, choice in asked.items() if choice is not None}
    if measure:
        for key in watch([key for key in collector.problems if key not in chosen]):
            if (choice := found_choice(collector.problems[key][1])) is not None:
                chosen[key] = choice
        program.cache_clear()  # a run needs none of the candidates again
    return Choices(chosen)
