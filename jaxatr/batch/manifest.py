"""The manifest: the list of all inputs in numbered shards, in the folder of the parts.

``_manifest/inputs-00012.json.gz`` lists the inputs of shard 12. ``_manifest/manifest.json`` is
written last and holds their number and a digest of all lists. Only one shard is in memory at a
time. Parquet readers ignore folders whose names begin with ``_``.
"""

import gzip
import hashlib
import itertools
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from jaxatr import files
from jaxatr.batch.sources import Key, Source

FOLDER = "_manifest"
_FILE = "manifest.json"
_VERSION = 1
_OFTEN = 1_000_000  # inputs between two lines of progress
_CODEC = ("utf-8", "surrogateescape")  # the names of files need not be valid UTF-8


class Manifest(NamedTuple):
    """The division of the inputs into shards.

    Attributes:
      arguments: the places of the sources: absolute paths, or names of data sets.
      size: number of inputs in a shard; the last shard may have fewer.
      inputs: total number of inputs.
      digest: SHA-256 of the shards' lists and the states of the sources.
      strips: how often each input is listed: once for each of the strips that are searched apart.
    """

    arguments: list[str]
    size: int
    inputs: int
    digest: str
    strips: int = 1

    @property
    def shards(self) -> int:
        """The number of shards."""
        return -(-self.inputs // self.size)


@dataclass(frozen=True)
class Shard:
    """The inputs of a shard.

    Attributes:
      number: its number in the manifest, from 0.
      runs: (number of a source, keys of consecutive inputs from it), in order; a key is an object
        for an input that cannot be read (:meth:`Source.listed`).
      digest: SHA-256 of the list.
    """

    number: int
    runs: list[tuple[int, list[Key]]]
    digest: str

    def __len__(self) -> int:
        """Returns the number of inputs."""
        return sum(len(keys) for _, keys in self.runs)


def read(out: Path, number: int) -> Shard:
    """Reads the list of a shard.

    Raises:
      ValueError: it is missing or damaged.
    """
    text = _text(out, number)
    if text is None:
        raise ValueError(f"{_path(out, number)}: missing or damaged; run the command again")
    runs = [(source, keys) for source, keys in json.loads(text)]
    return Shard(number, runs, _digest(text))


def listed(
    out: Path,
    sources: Sequence[Source],
    size: int,
    say: Callable[[str], object] = lambda line: None,
    *,
    strips: int = 1,
) -> Manifest:
    """Lists the inputs in shards, or checks that they match an existing manifest.

    Damaged lists of an existing manifest are rewritten.

    Args:
      out: the folder of the parts.
      sources: sources of the inputs.
      size: number of inputs in a shard.
      say: prints a line of progress from time to time.
      strips: how often each input is listed.

    Raises:
      ValueError: there are no inputs, or the manifest in the folder is damaged or of other inputs.
    """
    path = out / FOLDER / _FILE
    if not path.is_file():
        path.parent.mkdir(parents=True, exist_ok=True)
        made, _ = _list(out, sources, size, say, strips, write=True)
        _save(path, made)
        return made
    before = _load(path)
    for what, old, new in (
        ("inputs", before.arguments, [source.place for source in sources]),
        ("--shard", before.size, size),
        ("--strips", before.strips, strips),
    ):
        if old != new:
            raise refusal(out, what, old, new)
    now, complete = _list(out, sources, size, say, strips, write=False)
    if now != before:
        raise refusal(out, "another list of inputs:", before.inputs, now.inputs)
    if not complete:
        _list(out, sources, size, say, strips, write=True)
    return now


def refusal(out: Path, what: str, old: Any, new: Any) -> ValueError:
    """Returns the error of a command that differs from the one that began the folder."""
    return ValueError(
        f"{out}: it was made with {what} {_short(old)}, got {_short(new)}; choose another --out"
    )


def _short(value: Any) -> str:
    text = ", ".join(value) if isinstance(value, list) else str(value) or "nothing"
    return text if len(text) < 200 else f"{text[:200]}…"


def _list(
    out: Path,
    sources: Sequence[Source],
    size: int,
    say: Callable[[str], object],
    strips: int,
    *,
    write: bool,
) -> tuple[Manifest, bool]:
    """Iterates over all inputs; returns the manifest, and whether all lists are on disk."""
    digest, count, complete = hashlib.sha256(), 0, True
    for number, inputs in enumerate(_batches(sources, size, strips)):
        runs = [
            (source, [key for _, key in run])
            for source, run in itertools.groupby(inputs, key=lambda pair: pair[0])
        ]
        text = json.dumps(runs, ensure_ascii=False, separators=(",", ":"))
        digest.update(_digest(text).encode())
        count += len(inputs)
        if count // _OFTEN > (count - len(inputs)) // _OFTEN:
            say(f"{count:,} inputs listed")
        if write:
            with files.replacing(_path(out, number)) as file:
                file.write(gzip.compress(text.encode(*_CODEC), compresslevel=4, mtime=0))
        else:
            complete = complete and _text(out, number) == text
    digest.update(json.dumps(list(map(_state, sources))).encode())
    if not count:
        raise ValueError("no input: wanted a folder, an archive, a table or a data set")
    arguments = [source.place for source in sources]
    return Manifest(arguments, size, count, digest.hexdigest(), strips), complete


def _batches(sources: Sequence[Source], size: int, strips: int) -> Iterator[list[tuple[int, Key]]]:
    every = (
        (number, key)
        for number, source in enumerate(sources)
        for key in source.listed()
        for _ in range(strips)
    )
    while batch := list(itertools.islice(every, size)):
        yield batch


def _state(source: Source) -> Any:
    try:
        return source.state()
    except (ValueError, OSError):  # one of its keys is this error
        return None


def _path(out: Path, number: int) -> Path:
    return out / FOLDER / f"inputs-{number:05}.json.gz"


def _text(out: Path, number: int) -> str | None:
    try:
        return gzip.decompress(_path(out, number).read_bytes()).decode(*_CODEC)
    except (OSError, EOFError, ValueError, gzip.zlib.error):  # type: ignore
        return None


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode(*_CODEC)).hexdigest()


def _save(path: Path, manifest: Manifest) -> None:
    files.write_text(path, json.dumps({"version": _VERSION, **manifest._asdict()}, indent=1))


def _load(path: Path) -> Manifest:
    fields = _json(path, "version")
    if (version := fields.pop("version")) != _VERSION:
        raise ValueError(f"{path}: got version {version}, wanted {_VERSION}")
    try:
        return Manifest(**fields)
    except TypeError as error:
        raise _damaged(path) from error


def _json(path: Path, name: str) -> dict[str, Any]:
    """Reads an object that has an entry ``name``."""
    try:
        found = files.read_json(path)
        found[name]
    except (ValueError, TypeError, KeyError) as error:
        raise _damaged(path) from error
    return found


def _damaged(path: Path) -> ValueError:
    return ValueError(f"{path}: damaged; choose another --out")


def load_run(out: Path) -> dict[str, Any] | None:
    """Reads the identity of the run that made the parts; None if none is recorded.

    Raises:
      ValueError: the record is damaged.
    """
    path = out / FOLDER / "run.json"
    return _json(path, "digest") if path.exists() else None


def save_run(out: Path, run: dict[str, Any]) -> None:
    """Records the identity of the run that makes the parts."""
    files.write_text(out / FOLDER / "run.json", json.dumps(run, indent=1))
