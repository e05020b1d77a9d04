"""Run folders written file by file, like those of a training and an evaluation."""

import io
import json
from contextlib import contextmanager

import numpy as np
import pytest
from PIL import Image

from jaxatr import openset, reporting
from jaxatr.reporting import score_record
from jaxatr.tasks.distillation.sheet import arrays_to_record
from jaxatr.tasks.embedding import retrieval
from jaxatr.tasks.embedding.recorded_embedding import read_embedding

SPLIT = {"name": "random-3/2", "version": 1, "seed": 0}


def write_run(folder, *, seed=0, known=("a", "b", "c"), unknown=("x", "y"), ranges=(), n=300):
    """Writes a run whose known examples score higher, especially at short range."""
    rng, k = np.random.default_rng(seed), len(known)
    labels = np.where(rng.random(n) < 0.4 * bool(unknown), openset.UNKNOWN, rng.integers(0, k, n))
    range_m = rng.choice(ranges, n) if ranges else None
    strength = 4000 / range_m if ranges else np.full(n, 3.0)
    signal = strength[:, None] * np.eye(k)[labels] * (labels >= 0)[:, None]
    logits, open_logits = np.float32(signal + rng.normal(0, 1.2, (2, n, k)))
    test = openset.Outputs(logits, open_logits, labels)
    fitted = openset.fit_scores(openset.choose_scores(openset.DEFAULT))
    fixed = openset.fixed_thresholds(fitted.scores, 0.9)
    held_out = fitted.on(test.select(labels >= 0))
    parts = {"all": test} | {f"{value} m": test.select(range_m == value) for value in ranges}
    groups = {
        name: openset.evaluate(part.labels, part.predicted, fitted.on(part), held_out, fixed=fixed)
        for name, part in parts.items()
    }
    split = SPLIT | {"known": list(known), "unknown": list(unknown)}
    evaluation = {
        "checkpoint": {"which": "latest", "step": 30},
        "task": "open_set",
        "known": list(known),
        "unknown": list(unknown),
        "gamma": 0.9,
        "tpr": 0.95,
        "fitted_gamma": groups["all"].pop("fitted_gamma"),
        "groups": groups,
    }
    arrays = {"test_logits": logits, "test_open_logits": open_logits, "test_labels": labels}
    arrays["test_id"] = np.arange(1000, 1000 + n, dtype=np.int32)
    if ranges:
        arrays["test_range_m"] = range_m
    record = {
        "task": "jaxatr.tasks.open_set:OpenSet",
        "dataset": {"name": "simulated", "version": "1.0.0", "fingerprint": "0123456789abcdef99"},
        "split": split,
        "examples": {"test": n, "train": 100},
        "image_shape": [8, 8, 1],
    }
    metrics = [
        {"step": step, "phase": phase, "loss": 3.0 / step, "closed_accuracy": step / 40}
        for step in (10, 20, 30)
        for phase in ("open_set", "evaluate")
    ]
    config = {"seed": seed, "data": {"source": "here"}}
    thumbnails = _thumbnails(arrays, evaluation, rng)
    return _write(folder, evaluation, record, config, metrics, arrays, thumbnails)


def write_embedding(
    folder, *, seed=0, known=("a", "b", "c"), unknown=("x", "y"), n=120, tested=True
):
    """Writes an embedding run with clusters in four dimensions, a training and a validation part.

    Without ``tested``, no test example is of a known class.
    """
    rng, names = np.random.default_rng(seed), [*known, *unknown]
    centres = rng.normal(size=(len(names), 4))

    def part(classes):
        return np.float32(centres[classes] + rng.normal(0, 0.5, (len(classes), 4)))

    classes = rng.integers(0 if tested else len(known), len(names), n)
    training, held_out = (rng.permutation(np.arange(60) % len(known)) for _ in range(2))
    embeddings, index, validation = part(classes), part(training), part(held_out)

    def outputs(vectors, labels):
        apart = np.linalg.norm(vectors[:, None] - index, axis=-1)
        nearest = [apart[:, training == label].min(axis=1) for label in range(len(known))]
        logits = -np.stack(nearest, axis=1)
        return openset.Outputs(logits, logits, np.int32(labels))

    test = outputs(embeddings, np.where(classes < len(known), classes, openset.UNKNOWN))
    kinds = {"new": test.labels == openset.UNKNOWN, "trained": test.labels != openset.UNKNOWN}
    nearest, other = (
        {"nearest": part.logits.max(axis=1)} for part in (test, outputs(validation, held_out))
    )
    groups = {"all": openset.evaluate(test.labels, test.predicted, nearest, other)}
    evaluation = {
        "checkpoint": {"which": "latest", "step": 30},
        "task": "embedding",
        "dataset": {"name": "image_folder", "version": "1", "fingerprint": "0"},
        "split": SPLIT | {"known": list(known), "unknown": list(unknown)},
        "known": list(known),
        "unknown": list(unknown),
        "gamma": None,
        "tpr": 0.95,
        "groups": groups,
        "retrieval": {
            kind: {**retrieval.retrieval(embeddings[rows], classes[rows]), "duplicates": 0}
            for kind, rows in kinds.items()
            if rows.any()
        },
    }
    fields = ("logits", "open_logits", "labels")
    arrays = {f"test_{name}": getattr(test, name) for name in fields}
    arrays["test_id"] = np.arange(1000, 1000 + n, dtype=np.int32)
    arrays["test_score_nearest"] = test.logits.max(axis=1)
    arrays |= retrieval.retrieval_pictures(embeddings, classes, kinds)
    images = rng.integers(0, 255, (n, 12, 10, 1), np.uint8)
    thumbnails = {"id": arrays["test_id"], "class": np.array(names)[classes], "image": images}
    record = {
        "task": "jaxatr.tasks.embedding:Embedding",
        "hierarchy": "mstar",
        "coarse": ["tank", "tank", "truck"][: len(known)],
    }
    config = {
        "seed": seed,
        "embedding": {"loss": "quadruplet"},
        "mining": {"method": "nearest_to_reference"},
    }
    metrics = [
        {"step": 10, "phase": "embedding", "loss": 2.0, "fine_accuracy": 0.5, "valid": 0.9},
        {"step": 20, "phase": "embedding", "loss": 1.0, "fine_accuracy": 0.7, "valid": 0.8},
        {"step": 20, "phase": "evaluate", "recall_at_1": 0.75, "map_at_r": 0.5},
    ]
    return _write(folder, evaluation, record, config, metrics, arrays, thumbnails)


def write_surrogate(folder, *, seed=0, methods=("surrogate", "grad_cam", "rise"), n=20, masks=True):
    """Writes a surrogate's run; methods' areas differ by constants, the surrogate's are best."""
    rng, names = np.random.default_rng(seed), ["a", "b", "c"]
    classes, maps = rng.integers(0, 3, n), rng.random((len(methods), n, 12, 10))
    values = {}
    for number, method in enumerate(methods):
        insertion = 0.5 + 0.4 * rng.random(n) - 0.2 * number
        values[method] = {
            "insertion": insertion,
            "deletion": 0.3 + 0.1 * number + 0 * insertion,
            "mean_intensity": maps[number].mean((1, 2)),
            **({"share_inside": rng.random(n)} if masks else {}),
        }
    predicted = np.where(np.arange(n) == 3, (classes + 1) % 3, classes)
    arrays = arrays_to_record(values, dict(zip(methods, maps, strict=True)))
    arrays |= {"test_predicted": predicted, "test_probability": rng.random(n)}
    arrays |= {"test_row": np.arange(n), "test_id": np.arange(500, 500 + n, dtype=np.int32)}
    evaluation = {
        "checkpoint": {"which": "latest", "step": 30},
        "task": "distillation",
        "known": names,
        "unknown": [],
        "target": {"workdir": "runs/<target>", "step": 12, "backbone": "resnet18", "width": 8},
        "explanation": {
            "student_accuracy": 0.75,
            "target_accuracy": 0.9,
            "agreement": 0.8,
            "examples": n,
            "methods": {
                method: {name: float(each.mean()) for name, each in judged.items()}
                for method, judged in values.items()
            },
            "convention": [{"pixels_per_step": 12}] * 2,
        },
    }
    record = {
        "task": "jaxatr.tasks.distillation:Distillation",
        "dataset": {"name": "image_folder", "version": "1", "fingerprint": "0"},
    }
    metrics = [
        {"step": 10, "phase": "student", "loss": 2.0, "agreement": 0.5},
        {"step": 20, "phase": "explanation", "loss": 1.0, "mean_intensity": 0.4},
        {"step": 20, "phase": "evaluate", "agreement": 0.7, "insertion": 0.6, "deletion": 0.3},
    ]
    images = rng.integers(0, 255, (n, 12, 10, 1), np.uint8)
    thumbnails = {"id": arrays["test_id"], "class": np.array(names)[classes], "image": images}
    fields = {"end_to_end": False, "scorer": "target", "l1_weight": 1e-5, "l1": "sum"}
    fields |= {"rise_samples": 100, "lime_samples": 50}
    config = {"seed": seed, "distillation": fields}
    return _write(folder, evaluation, record, config, metrics, arrays, thumbnails)


def _write(folder, evaluation, record, config, metrics, arrays, thumbnails):
    folder.mkdir(parents=True)
    config = {"task": record["task"], **config}  # its fields are those of the kind
    contents = {"evaluation": evaluation, "record": record, "config": config}
    for name, content in contents.items():
        (folder / f"{name}.json").write_text(json.dumps(content))
    (folder / "metrics.jsonl").write_text("".join(json.dumps(m) + "\n" for m in metrics))
    np.savez(folder / "scores.npz", **arrays)
    np.savez(folder / "thumbnails.npz", **thumbnails)
    return folder


def _thumbnails(arrays, evaluation, rng):
    labels, predicted = arrays["test_labels"], arrays["test_logits"].argmax(1)
    scores = score_record.recorded_scores(arrays, evaluation["groups"]["all"]["scores"])
    kinds = [score_record.confident_mistakes(labels, predicted, score) for score in scores.values()]
    rows = np.unique(np.concatenate([rows for one in kinds for rows in one.values()]))
    names = np.array([*evaluation["known"], *(evaluation["unknown"][-1:] or ["-"])])
    images = rng.integers(0, 255, (len(rows), 8, 8, 1), np.uint8)
    return {"id": arrays["test_id"][rows], "class": names[labels[rows]], "image": images}


@pytest.fixture
def run_folder(tmp_path):
    return write_run(tmp_path / "one")


@pytest.fixture(scope="session")
def make_run():
    return write_run


@pytest.fixture(scope="session")
def make_embedding():
    return write_embedding


@pytest.fixture
def opened(browser):
    """Opens a page; the test fails if it makes a request or reports an error."""

    @contextmanager
    def open_page(path, **options):
        context = browser.new_context(**options)
        page, told = context.new_page(), []
        page.on("console", lambda message: told.append(message.text))
        page.on("pageerror", lambda error: told.append(str(error)))
        page.on("request", lambda request: told.append(request.url))
        page.goto(path.as_uri())
        yield page
        asked = [text for text in told if text != path.as_uri() and not text.startswith("data:")]
        context.close()
        assert not asked

    return open_page


@pytest.fixture(scope="session")
def embedding(make_embedding, tmp_path_factory):
    """An embedding run and the page about it."""
    folder = make_embedding(tmp_path_factory.mktemp("runs") / "embedding")
    path = tmp_path_factory.mktemp("report") / "embedding.html"
    reporting.write_report([folder], path)
    return read_embedding(folder), path


@pytest.fixture(scope="session")
def seen():
    """Finds the row whose thumbnail is closest to the browser's picture of a chip."""

    def row_of(chip, run):
        shown = Image.open(io.BytesIO(chip.screenshot())).convert("L")
        unlike = {
            row: np.abs(
                np.int32(shown.resize(thumbnail.image.shape[1::-1], Image.Resampling.BOX))
                - np.int32(thumbnail.image[:, :, 0])
            ).mean()
            for row, thumbnail in run.thumbnails.items()
        }
        found = min(unlike, key=lambda row: unlike[row])
        second = sorted(unlike.values())[1]
        assert second > 2 * unlike[found]  # the images are noise: no doubt is left
        return found

    return row_of


@pytest.fixture(scope="session")
def make_surrogate():
    """Writes the folder of a surrogate's run."""
    return write_surrogate
