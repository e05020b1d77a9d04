"""Prints the database for this device, with the reason why an entry is not used.

jaxatr tune show
"""

from collections.abc import Sequence

import jax

import jaxatr.kernels.contrib  # noqa: F401 - registers its operations
from jaxatr.kernels import database
from jaxatr.kernels.device import describe
from jaxatr.kernels.entries import Entry
from jaxatr.kernels.solver import operations


def define_flags() -> None:
    """Defines no flags."""


def main(arguments: Sequence[str]) -> None:
    """Prints the shipped entries and the user's, which take precedence."""
    if arguments:
        raise ValueError(f"got {arguments[0]!r}, but this command takes no arguments")
    device = describe(jax.local_devices()[0])
    print(f"{device.kind}, jax {jax.__version__}, JAXATR_FIND={database.mode()}")
    for owner, path in (
        ("shipped", database.shipped_file(device)),
        ("yours", database.user_file(device)),
    ):
        entries = database.entries(path)
        print(f"{owner}: {len(entries)} in {path}")
        for key, entry in sorted(entries.items()):
            config = " ".join(f"{name}={value}" for name, value in entry.choice.config)
            how = f"{entry.choice.algorithm} {config}".strip()
            why = _outdated(key, entry)
            stale = f"  (not used: {why})" if why else ""
            print(f"  {key}: {how}, {entry.milliseconds:.3f} ms{stale}")


def _outdated(key: str, entry: Entry) -> str:
    name = key.partition(" ")[0].removeprefix("log_")  # the keys of log_softmax belong to softmax
    operation = operations().get(name)
    if operation is None:
        return f"the operation {name!r} does not exist"
    return database.outdated(operation, entry)
