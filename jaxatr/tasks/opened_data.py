"""The data set of a configuration, and the list of its files that are left out."""

from collections.abc import Sequence

from jaxatr import data
from jaxatr.typing import Config


def opened(fields: Config) -> data.Dataset:
    """Opens the data set that ``config.data`` names, with its corrected labels."""
    dataset = uncorrected(fields)
    corrections = fields.get("corrections")  # not in the configurations of 0.2
    return data.corrected(dataset, corrections) if corrections else dataset


def uncorrected(fields: Config) -> data.Dataset:
    """Opens the data set that ``config.data`` names, with the labels of its own."""
    options = dict(fields.options)
    try:
        dataset = data.open_dataset(
            fields.name,
            data_dir=fields.data_dir or None,
            source=fields.source or None,
            options=options,
            skip_corrupt=fields.skip_corrupt,
        )
        more = fields.get("added")  # not in the configurations of 0.2
        return data.added(dataset, more, fields.train_split) if more else dataset
    except ValueError as error:
        if str(error).partition(":")[0] in options:  # the name of the option that is wrong
            raise ValueError(f"data.options.{error}") from error
        raise


def listing(fields: Config, skipped: Sequence[tuple[str, str]]) -> str:
    """Formats the files that are skipped, with reasons, for a warning that names the data set."""
    shown = [f"  {path}: {reason}" for path, reason in skipped[:10]]
    more = [f"  and {len(skipped) - 10} more"] if len(skipped) > 10 else []
    one, name = len(skipped) == 1, fields.source or fields.name
    count = "1 image cannot" if one else f"{len(skipped)} images cannot"
    head = f"{name}: {count} be read and {'is' if one else 'are'} skipped:"
    return "\n".join([head, *shown, *more])
