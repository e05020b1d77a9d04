"""The work of ``jaxatr predict``: lines, JSON or a table, and explanations if requested."""

import json
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from absl import flags
from tqdm import tqdm

from jaxatr import data, runs, training
from jaxatr.cli import command, inputs
from jaxatr.cli.images import Inputs
from jaxatr.cli.terminal import one_line
from jaxatr.files import Scratch
from jaxatr.recognition import drift, sightings

if TYPE_CHECKING:  # slow to import, and seldom asked for
    from jaxatr.cli.boxes import BoxInputs
    from jaxatr.explain import Explainer

_AS_IN_TABLES = {"probability_is": "known_probability_is"}


def main(arguments: Sequence[str], options: dict[str, Any]) -> int:
    """Predicts the inputs.

    Returns:
      The exit code.
    """
    values = flags.FLAGS
    training.enable_compilation_cache()
    if values.out:
        data.check_table(values.out)
        inputs.check_apart(values.out, values.boxes, *arguments)
    workdirs = values.workdir
    with training.loading_once():
        explainers = _explainers()
        loaded = runs.load_predictor(workdirs if len(workdirs) > 1 else workdirs[0], **options)
    predictor = cast(training.Predictor[Any, Any], loaded)
    if predictor.note:
        print(predictor.note, file=sys.stderr)
    done: list[data.ImagePath] = []
    rows: dict[int, dict[str, data.Cell]] = {}  # by the input's number
    with Scratch() as scratch:
        found = _inputs(arguments, scratch, predictor)
        verdicts: list[tuple[str, str]] = []  # with the class that is named
        tabled = bool(values.out or values.json)
        seen = sightings.Seen(training.run_id(*workdirs), values.source_name)
        looked = drift.Sources.of(predictor) if values.out else None
        quiet = None if values.out and not values.json else True  # None: unless on a terminal
        bar = tqdm(desc="predicting", unit=" images", leave=False, disable=quiet)
        explained: list[np.ndarray] = []
        chips = _remembered(found, explained) if explainers else found
        if tabled:
            chips = seen.passing(chips)
        for prediction in predictor.answers(chips):
            number, path = found.used.popleft()
            done.append(path)
            if explainers:
                verdicts.append((predictor.verdict(prediction), prediction.nearest))
            bar.update()
            source, facts = found.sources[number], None
            if tabled:
                facts = seen.facts.popleft()
            if values.out:
                first = seen.cells(source) | found.facts.get(number, {})
                cells = _row(path.name, first, predictor, prediction)
                rows[number] = cells | sightings.fact_cells(facts)
            if looked is not None:
                looked.add(seen.named(source), facts, prediction.score, prediction.label)
            if values.json:
                fields = {"path": path.name, "runtime": predictor.runtime}
                fields |= found.facts.get(number, {})
                fields |= predictor.to_json(prediction)
                fields |= seen.cells(source, facts)
                fields = {_AS_IN_TABLES.get(name, name): value for name, value in fields.items()}
                print(json.dumps(fields, ensure_ascii=False), flush=True)
            elif not values.out:
                at = "".join(f" {name}={v:g}" for name, v in found.facts.get(number, {}).items())
                print(f"{one_line(path.name)}{at}: {predictor.describe(prediction)}", flush=True)
        bar.close()
        for shapes, form in predictor.forms.items():
            print(f"{shapes}: {form}", file=sys.stderr)
        if values.out:
            failed = {
                number: {**row, "runtime": None, **seen.cells(found.sources[number])}
                for number, row in found.failed.items()
            }
            _write(values.out, rows, failed)
        if looked is not None:
            for line in looked.lines():
                print(one_line(line), file=sys.stderr)
        if explainers:
            _explain(explainers, done, explained, verdicts)
    if values.out:
        return 0 if done or not found.failed else command.EXIT_USER_ERROR
    if found.failed:
        print(f"{len(done)} predicted, {len(found.failed)} failed", file=sys.stderr)
    return 1 if found.failed else 0


def _inputs(
    arguments: Sequence[str], scratch: str, predictor: training.Predictor
) -> "Inputs | BoxInputs":
    """Returns the images that the arguments name, or the chips of the boxes in them."""
    values = flags.FLAGS
    named = "warning" if values.out else "error"
    if not values.boxes:
        return Inputs(
            arguments,
            scratch,
            read=predictor.read,
            prepare=predictor.prepare,
            folders=predictor.takes == "FOLDER",
            named=named,
            bands=predictor.bands,
        )
    if predictor.takes == "FOLDER":
        raise ValueError("--boxes: a run on tracks takes folders of images, not boxes of scenes")
    if predictor.takes == "SCENE":
        raise ValueError("--boxes: a detector finds boxes itself; wanted the run of a recogniser")
    from jaxatr.cli.boxes import BoxInputs
    from jaxatr.tasks.detection.recognised import framing_of

    return BoxInputs(
        arguments,
        values.boxes,
        framing=framing_of(values.workdir[0]),
        prepare=predictor.prepare,
        named=named,
    )


def _remembered(chips: Iterable[np.ndarray], kept: list[np.ndarray]) -> Iterator[np.ndarray]:
    for chip in chips:
        kept.append(chip)
        yield chip


def _row(
    path: str, facts: Mapping[str, data.Cell], predictor: training.Predictor, prediction: Any
) -> dict[str, data.Cell]:
    """Makes the row of an input; the prediction's fields follow the first columns."""
    first: dict[str, data.Cell] = {"path": path, "error": None, "runtime": predictor.runtime}
    first |= facts
    fields = predictor.to_row(prediction)
    if double := first.keys() & fields.keys():
        raise ValueError(
            f"--out: the prediction's field {min(double)!r} has the name of another column"
        )
    return first | fields


def _write(
    out: str, rows: dict[int, dict[str, data.Cell]], failed: dict[int, dict[str, data.Cell]]
) -> None:
    """Writes the table, in the order of the inputs."""
    every = rows | failed
    data.write_table(
        out,
        [every[number] for number in sorted(every)],
        text=("path", "error", "runtime", "time", "source", "run"),
    )
    labels = Counter(str(row["label"]) for row in rows.values() if "label" in row)
    counts = ", ".join(f"{label} {count}" for label, count in labels.most_common())
    of = f" ({counts})" if counts else ""
    print(f"{out}: {len(rows)} predicted{of}, {len(failed)} failed", file=sys.stderr)


def _explainers() -> "dict[str, Explainer]":
    values = flags.FLAGS
    if not values.explain:
        return {}
    from jaxatr.explain import load_explainers
    from jaxatr.explain.target import check_surrogate

    (workdir,) = values.workdir
    if values.surrogate:
        check_surrogate(values.surrogate, training.load_run(workdir))
    return load_explainers(values.surrogate or workdir, values.method, progress=True)


def _explain(
    explainers: "Mapping[str, Explainer]",
    paths: list[data.ImagePath],
    chips: list[np.ndarray],
    verdicts: list[tuple[str, str]],
) -> None:
    """Writes the pictures, and prints their paths; to standard error if stdout has JSON lines."""
    from jaxatr.explain import Pictures, describe, explain_all, with_evidence

    out = sys.stderr if flags.FLAGS.json else sys.stdout
    pictures = Pictures(flags.FLAGS.explain)
    explained = explain_all(explainers, chips)
    for path, (said, named), explanations in zip(paths, verdicts, explained, strict=True):
        word = with_evidence(said, named, explanations)
        picture = pictures.write(path, explanations, verdict=word)
        print(
            describe(one_line(path.name), explanations, picture, verdict=word), file=out, flush=True
        )
