"""What is in the database for this device.

python -m jaxatr.tune show
"""

from collections.abc import Sequence

import jax

from jaxatr.kernels import database
from jaxatr.kernels.device import describe


def define_flags() -> None:
    """There are none."""


def main(arguments: Sequence[str]) -> None:
    """Prints the shipped entries and the user's, which win."""
    if arguments:
        raise ValueError(f"got {arguments[0]!r}: there is nothing to be given")
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
            other = entry.jax_version != jax.__version__
            stale = f"  (of jax {entry.jax_version}: not used)" if other else ""
            print(f"  {key}: {how}, {entry.milliseconds:.3f} ms{stale}")
