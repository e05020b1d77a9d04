"""Says what is in images: a known class or "unknown".

python -m jaxatr.predict --workdir=DIR IMAGE... [--jsonl] [--gamma=0.9|fitted]
python -m jaxatr.predict --workdir=DIR IMAGE... --explain=OUT [--method=grad_cam|rise|…]
python -m jaxatr.predict --workdir=DIR IMAGE... --neighbours=5 [--jsonl] [--max_distance=0.5]
python -m jaxatr.predict --workdir=TRACKS FOLDER... [--jsonl] [--gamma=0.9|fitted]
"""

import json
import sys
from collections import deque
from collections.abc import Callable
from functools import partial

from absl import flags

from jaxatr import command, data, training
from jaxatr.explain import Explainer, Pictures, describe, load_target
from jaxatr.tasks.embedding.predictor import Match, Retriever, is_embedding
from jaxatr.tasks.open_set.predictor import Prediction, Recogniser
from jaxatr.tasks.track.predictor import TrackRecogniser


def define_flags() -> None:
    """Defines the command's flags; only the command itself does, so that it can be imported."""
    flags.DEFINE_string("workdir", None, "The run's folder.", required=True)
    flags.DEFINE_string("checkpoint", "latest", "'latest', 'best' or a step.")
    flags.DEFINE_string("gamma", None, "γ, or 'fitted'; default: the run's configured γ.")
    flags.DEFINE_integer(
        "neighbours", 0, "Name so many of the nearest training chips (an embedding's run).", 0
    )
    flags.DEFINE_float(
        "max_distance", None, "An embedding's: unknown beyond; default: fitted to validation data."
    )
    flags.DEFINE_string("explain", None, "Explain each prediction, in pictures in this folder.")
    flags.DEFINE_string("method", None, "Of --explain; default: --surrogate's, or grad_cam.")
    flags.DEFINE_string("surrogate", None, "The folder of the run whose surrogate explains.")
    flags.DEFINE_bool("jsonl", False, "Print one JSON object a line.")


def main(arguments) -> int:
    """Prints a line for each image, or track; names those that cannot be used, and goes on."""
    if not arguments:
        raise ValueError("no image given: python -m jaxatr.predict --workdir=DIR IMAGE...")
    training.enable_compilation_cache()
    searches = bool(flags.FLAGS.neighbours) or is_embedding(flags.FLAGS.workdir)
    explainer = _explainer(searches)
    predictor, predict, line = _retriever() if searches else _recogniser()
    check, read = predictor.chip, data.read_image
    if isinstance(predictor, TrackRecogniser):
        check, read = predictor.chips, data.read_folder
    used: deque[str] = deque()
    done: list[str] = []
    failed: list[str] = []
    usable = command.usable_images(arguments, check, used, failed, read=read)
    for prediction in predict(usable):
        path = used.popleft()
        done.append(path)
        if flags.FLAGS.jsonl:
            print(_json(path, prediction), flush=True)
        else:
            print(f"{path}: {line(prediction)}", flush=True)
    if explainer is not None:
        _explain(explainer, done)
    return 1 if failed else 0


def _explainer(searches: bool) -> Explainer | None:
    values = flags.FLAGS
    for name in ("method", "surrogate"):
        if values[name].present and not values.explain:
            raise ValueError(f"--{name} is of --explain=OUT, which is not given")
    if not values.explain:
        return None
    if searches:
        raise ValueError("--explain is of a recogniser's run: a search has no class to explain")
    if values.checkpoint != "latest":
        raise ValueError("--explain is of the newest checkpoint: leave --checkpoint out")
    if values.surrogate:
        if not training.explains(values.surrogate, load_target(values.workdir).source):
            raise ValueError(f"--surrogate: {values.surrogate} does not explain {values.workdir}")
    return Explainer.load(values.surrogate or values.workdir, values.method, progress=True)


def _explain(explainer: Explainer, paths: list[str]) -> None:
    """Writes the pictures; to standard error, where JSON goes to standard output."""
    out = sys.stderr if flags.FLAGS.jsonl else sys.stdout
    pictures = Pictures(flags.FLAGS.explain, explainer.method)
    images = (data.read_image(path) for path in paths)
    for path, explanation in zip(paths, explainer(images), strict=True):
        print(describe(path, explanation, pictures.write(path, explanation)), file=out, flush=True)


def _recogniser() -> tuple[Recogniser, Callable, Callable]:
    if flags.FLAGS.max_distance is not None:
        raise ValueError("--max_distance is of an embedding's run: this one has --gamma")
    workdir = flags.FLAGS.workdir
    tracks = training.takes_tracks(training.load_config(workdir), training.read_record(workdir))
    recogniser = (TrackRecogniser if tracks else Recogniser).load(
        workdir,
        checkpoint=command.checkpoint(flags.FLAGS.checkpoint),
        gamma=_gamma(flags.FLAGS.gamma),
    )
    return recogniser, recogniser, _decided


def _retriever() -> tuple[Retriever, Callable, Callable]:
    for name in ("gamma", "checkpoint"):
        if flags.FLAGS[name].present:
            raise ValueError(
                f"--{name} is of a recogniser's run: a search goes through the chips of the "
                "checkpoint that was last evaluated, up to --max_distance"
            )
    retriever = Retriever.load(flags.FLAGS.workdir, max_distance=flags.FLAGS.max_distance)
    return retriever, partial(retriever, neighbours=flags.FLAGS.neighbours or 1), _found


def _gamma(text: str | None) -> float | str | None:
    if text is None or text == "fitted":
        return text
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"--gamma: got {text!r}, wanted a probability or 'fitted'") from None


def _json(path: str, prediction: Prediction | Match) -> str:
    fields = prediction._asdict()
    if isinstance(prediction, Match):
        fields["neighbours"] = [neighbour._asdict() for neighbour in prediction.neighbours]
    return json.dumps({"image": path, **fields}, ensure_ascii=False)


def _decided(prediction: Prediction) -> str:
    best = sorted(prediction.probabilities.items(), key=lambda item: -item[1])
    classes = " ".join(f"{name}={value:.3f}" for name, value in best)
    return (
        f"{prediction.label} (known {prediction.known_probability:.4f}, score "
        f"{prediction.score:.2f}, γ {prediction.gamma:.6g}) {classes}"
    )


def _found(match: Match) -> str:
    limit = "" if match.max_distance is None else f", unknown beyond {match.max_distance:.4g}"
    near = "; ".join(
        f"{neighbour.label} {neighbour.distance:.4f} {neighbour.path or f'#{neighbour.id}'}"
        for neighbour in match.neighbours
    )
    return f"{match.label} (distance {match.distance:.4f}{limit}) {near}"


if __name__ == "__main__":
    command.run(main, define_flags)
