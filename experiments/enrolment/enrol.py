"""Enrols each unknown class of the base runs by 1, 5 and 20 chips, with several draws of each.

    python -m experiments.enrolment.enrol [--only=mstar] [--draws=5] [--workdir=runs/enrolment]

The chips are drawn from the unknown class's training images, which no base run trains on; all of
its test images are used for testing. The decision is by the default rule, and by the single score
or fusion of a few that is best on left-out known classes. Enrolment is by
:func:`jaxatr.openset.enrol`, as in ``jaxatr enrol``, on outputs that are computed once.
``results/enrolled-NAME.json`` has a row for each enrolment. Recorded rows are not repeated, so an
interrupted run can be resumed.
"""

import argparse
import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from experiments.enrolment.run import BASES, RESULTS, SHOTS, WORKDIR, Base, chips
from jaxatr import data, files, openset, training
from jaxatr.recognition import enrolment_measures, extension
from jaxatr.recognition.choice import made_for
from jaxatr.recognition.decision import open_task
from jaxatr.recognition.enrolment import areas_of
from jaxatr.tasks.open_set.deciders import DEFAULT
from jaxatr.tasks.parts import Part

_KEYS = ("score", "class", "shots", "draw")


class Opened(NamedTuple):
    """A base run with its outputs.

    Attributes:
      run: the run.
      task: its task, with the data.
      decisions: decisions by the default rule, and by the score that was best on left-out known
        classes, among those that take classes.
      test: outputs on the test examples, including unknown ones.
      validation: outputs on the validation examples.
    """

    run: training.TrainedRun
    task: Any
    decisions: tuple[openset.Decision, ...]
    test: openset.Outputs
    validation: openset.Outputs


def opened(workdir: Path) -> Opened:
    """Opens a base run, and computes its outputs."""
    run = training.load_run(workdir)
    task: Any = open_task(run, {})
    best = extension.best_taker(task.given, areas_of(run.record))
    decisions = tuple(
        made_for(task, run.variables, run.workdir, run.step, score=name).rule
        for name in (DEFAULT, best)
    )
    needs = frozenset().union(*(one.score.all_needs for one in decisions))
    test = task.outputs(run.variables, "test", needs)
    validation = task.decided_outputs(run.variables, "validation", needs)
    return Opened(run, task, decisions, test, validation)


def pool(base: Opened, name: str) -> Part:
    """Returns the training images of a class that the run was not trained on."""
    train = base.task.parts["train"]
    indices = data.select(train.split, classes=(name,))
    labels = np.full(len(indices), len(base.run.classes), np.int32)
    return Part(train.split, indices, labels, base.task.parts["test"].chip)


def measure(
    base: Opened, decision: openset.Decision, outputs: openset.Outputs, rows: np.ndarray, name: str
) -> dict[str, Any]:
    """Enrols some chips of a class, and measures the result.

    Args:
      base: the run.
      decision: one of its decisions.
      outputs: outputs on the class's chips.
      rows: indices of the chips to enrol.
      name: name of the class.
    """
    made = openset.enrol(decision, outputs.select(rows), 1, validation=base.validation)
    after = figures(base, made, name)
    enrolled = after.pop("classes")[name]
    assert made.further is not None
    promise = made.further.promise(len(base.run.classes), base.run.config.open_set.tpr)
    return {"enrolled": enrolled, "after": after, "promise": promise}


def figures(base: Opened, decision: openset.Decision, name: str) -> dict[str, Any]:
    """Measures a decision on the test examples, of which those of a class count as known."""
    place = base.task.examples.dataset.classes.index(name)
    own = base.task.parts["test"].classes == place
    labels = np.where(own, len(base.run.classes), base.test.labels).astype(base.test.labels.dtype)
    test, classes = base.test._replace(labels=labels), [*base.run.classes, name]
    return enrolment_measures.figures_of(decision, test, classes, len(base.run.classes))


def carry_out(named: Base, workdir: Path, draws: int) -> None:
    """Measures all enrolments of a base run that are not recorded yet."""
    path = RESULTS / f"enrolled-{named.name}.json"
    base = opened(workdir / f"base-{named.name}")
    record = {name: base.run.record[name] for name in ("code", "device", "versions", "fingerprint")}
    content: dict[str, Any] = {"run": path.stem, "record": record, "rows": []}
    if path.exists():
        recorded = json.loads(path.read_text())
        if recorded["record"]["fingerprint"] == record["fingerprint"]:
            content["rows"] = recorded["rows"]
    done = [{key: row[key] for key in _KEYS} for row in content["rows"]]
    for name in named.unknown:
        part = pool(base, name)
        base.task.parts["pool"] = part
        needs = frozenset().union(*(one.score.all_needs for one in base.decisions))
        outputs = base.task.outputs(base.run.variables, "pool", needs)
        before = [figures(base, decision, name) for decision in base.decisions]
        for shots in SHOTS:
            for draw in range(draws):
                rng = np.random.default_rng([draw, named.unknown.index(name)])
                rows = rng.permutation(len(part.labels))[:shots]
                if draw == 0:
                    write_chips(workdir / chips(named, name, shots), part, rows, name)
                for decision, own in zip(base.decisions, before, strict=True):
                    by = decision.score.name
                    row = {"score": by, "class": name, "shots": shots, "draw": draw}
                    if row in done:
                        continue
                    row["before"] = {key: own[key] for key in own if key != "classes"}
                    content["rows"].append(row | measure(base, decision, outputs, rows, name))
                    files.write_text(path, json.dumps(content, indent=1) + "\n")
                    print(f"done    {named.name} {by} {name} {shots} {draw}", flush=True)


def write_chips(path: Path, part: Part, rows: np.ndarray, name: str) -> None:
    """Writes chips to a file, for the runs that train on them."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with files.replacing(path) as file:
        np.savez_compressed(file, images=part.chips(rows), names=np.array([name] * len(rows)))


def main() -> None:
    """Measures the enrolments of the base runs that exist."""
    parser = argparse.ArgumentParser(description="Enrols the unknown classes of the base runs.")
    parser.add_argument("--only", default="", help="comma-separated prefixes of base names")
    parser.add_argument("--draws", type=int, default=5, help="draws per class and number of chips")
    parser.add_argument("--workdir", default=WORKDIR)
    flags = parser.parse_args()
    chosen = [base for base in BASES if base.name.startswith(tuple(flags.only.split(",")))]
    if not chosen:
        parser.error(f"--only: no base's name begins with {flags.only!r}")
    training.enable_compilation_cache()
    for base in chosen:
        if not (Path(flags.workdir) / f"base-{base.name}" / "record.json").exists():
            print(f"open    {base.name}: there is no base run yet", flush=True)
            continue
        carry_out(base, Path(flags.workdir).absolute(), flags.draws)


if __name__ == "__main__":
    main()
