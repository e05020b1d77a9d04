"""A run's network in another engine: the answers of jax, said where they are from."""

import functools
import json
import shutil
import sys
from pathlib import Path

import pytest

import jaxatr
from jaxatr import data, runs
from jaxatr.cli import predict
from jaxatr.kernels import onednn
from jaxatr.recognition.recogniser import Recogniser

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

OTHERS = ("onnxruntime", "openvino")


def needed(runtime):
    pytest.importorskip(runtime, reason=f"{runtime} is not installed: it is an extra of its own")


@pytest.fixture(scope="module")
def images(earlier):
    return [
        data.read_image(path) for path in sorted((earlier / "chips/test").glob("*/00[0-2].png"))
    ]


@pytest.fixture(scope="module")
def residual(small_config, tmp_path_factory):
    """The folder of a run of a built-in network, which takes bfloat16."""
    config, folder = small_config.copy_and_resolve_references(), tmp_path_factory.mktemp("run")
    config.model.backbone, config.model.width, config.model.stem = "resnet18", 4, "3x3"
    config.model.args = {"stage_sizes": (1, 1)}
    config.open_set.score = "conflabel"
    runs.train_run(config, folder / "run", progress=False)
    return folder / "run"


@pytest.fixture
def flags(flags_of):
    return functools.partial(flags_of, predict)


def exported(run):
    return {path: path.stat().st_mtime_ns for path in run.glob("fitted/*/network.*.onnx")}


def agree(found, wanted):
    assert [(one.label, one.nearest) for one in found] == [(o.label, o.nearest) for o in wanted]
    for one, other in zip(found, wanted, strict=True):
        assert one.score == pytest.approx(other.score, rel=1e-4, abs=1e-4)
        assert one.known_probability == pytest.approx(other.known_probability, abs=1e-4)
        assert one.threshold == other.threshold and one.decides == other.decides
        assert one.probabilities == pytest.approx(other.probabilities, abs=1e-4)


@pytest.mark.parametrize("runtime", OTHERS)
@pytest.mark.parametrize("score", [None, "spatial_stage2", "odin"])
def test_a_recogniser_says_the_same(earlier, images, runtime, score):
    """Single images and batches; scores of logits, of maps and of a gradient of the image."""
    needed(runtime)
    wanted = list(Recogniser.load(earlier / "open_set", score=score)(images))
    recogniser = Recogniser.load(earlier / "open_set", score=score, runtime=runtime)
    assert recogniser.runtime == runtime and f"runs in {runtime}" in recogniser.note
    agree(list(recogniser(images)), wanted)
    agree([recogniser.predict(images[0])], wanted[:1])


@pytest.mark.parametrize("runtime", OTHERS)
def test_a_retriever_finds_the_same(earlier, images, runtime):
    needed(runtime)
    wanted = jaxatr.load(earlier / "embedding", neighbours=3).predict(images)
    retriever = jaxatr.load(earlier / "embedding", neighbours=3, runtime=runtime)
    for one, other in zip(retriever.predict(images), wanted, strict=True):
        assert one.label == other.label
        assert [n.id for n in one.neighbours] == [n.id for n in other.neighbours]
        assert one.distance == pytest.approx(other.distance, abs=1e-4)


def test_tracks_of_any_length(earlier, images):
    tracks = [images[:3], images[2:4], images[5:6]]
    wanted = list(jaxatr.load(earlier / "track")(tracks))
    agree(list(jaxatr.load(earlier / "track", runtime="onnxruntime")(tracks)), wanted)


def test_openvino_takes_no_tracks(earlier):
    needed("openvino")
    with pytest.raises(ValueError, match=r"lengths of tracks.*onnxruntime"):
        jaxatr.load(earlier / "track", runtime="openvino")


def test_an_ensemble_of_one_engine(earlier, images):
    both = [earlier / "open_set"] * 2
    agree(
        list(jaxatr.load(both, runtime="onnxruntime")(images)),
        list(jaxatr.load(both)(images)),
    )


def test_the_graph_is_made_once_for_the_same_outputs(earlier):
    run = earlier / "open_set"
    load = functools.partial(Recogniser.load, run, runtime="onnxruntime")
    load(score="cbc")
    first = exported(run)
    load(score="cbc", gamma=0.9), load(score="cbc")
    assert exported(run) == first  # another threshold needs nothing else
    load(score="nndr_stage1")  # a map that nothing has needed
    assert len(exported(run)) == len(first) + 1
    assert first.items() <= exported(run).items()


WITHOUT = "this jaxlib has no oneDNN for XLA:CPU: 0.11 and later have it"


@pytest.mark.skipif(not onednn.options(), reason=WITHOUT)
def test_onednn_answers_as_jax_and_says_which_form(earlier, images, flags, capsys, monkeypatch):
    run = earlier / "open_set"
    wanted = list(Recogniser.load(run)(images))
    monkeypatch.setenv(onednn.VARIABLE, "always")  # small chips have too little to compute
    recogniser = Recogniser.load(run, runtime="onednn")
    agree(list(recogniser(images)), wanted)
    assert "by oneDNN" in recogniser.note and recogniser.runtime == "onednn"
    assert {form.name for form in recogniser.forms.values()} == {"onednn"}
    assert recogniser.digest() != Recogniser.load(run).digest()
    both = jaxatr.load([run, run], runtime="onednn")
    agree(list(both(images)), list(jaxatr.load([run, run])(images)))
    assert both.forms.keys() == recogniser.forms.keys()
    image = earlier / "chips/test/disc/000.png"
    assert predict.main(flags(f"--workdir={run}", "--runtime=onednn", "--jsonl", image)) == 0
    printed = capsys.readouterr()
    assert json.loads(printed.out)["runtime"] == "onednn"
    assert "onednn (asked for" in printed.err


@pytest.mark.parametrize(
    "runtime",
    [
        "jax:bfloat16",
        pytest.param(
            "onednn:bfloat16", marks=pytest.mark.skipif(not onednn.options(), reason=WITHOUT)
        ),
    ],
)
@pytest.mark.parametrize("score", ["conflabel", "consensus"])  # by gradients, by maps
def test_bfloat16_decides_by_thresholds_of_its_own(
    residual, chips, monkeypatch, tmp_path, runtime, score
):
    images = [data.read_image(path) for path in sorted(chips.glob("test/*/00[0-2].png"))]
    run = shutil.copytree(residual, tmp_path / "run")
    monkeypatch.setenv(onednn.VARIABLE, "always")
    plain = Recogniser.load(run, score=score)
    recogniser = Recogniser.load(run, score=score, runtime=runtime)
    assert "bfloat16: " in recogniser.note and "are decided as in float32" in recogniser.note
    found, wanted = list(recogniser(images)), list(plain(images))
    for one, other in zip(found, wanted, strict=True):
        assert one.probabilities == pytest.approx(other.probabilities, abs=0.05)
    # It computes in bfloat16, and its threshold is a quantile of its own scores.
    assert [one.score for one in found] != [one.score for one in wanted]
    fitted = recogniser.decision.calibration.scores
    assert fitted.shape == plain.decision.calibration.scores.shape
    assert (fitted != plain.decision.calibration.scores).any()
    assert recogniser.digest() != plain.digest()
    forms = {form.name for form in recogniser.forms.values()}
    assert forms == ({"onednn"} if runtime.startswith("onednn") else set())


def test_a_console_in_bfloat16_offers_what_only_jax_computes(residual):
    pytest.importorskip("fastapi")
    from jaxatr.serving.served_run import Wanted, load_engine

    engine = load_engine(Wanted(residual, examples=0, method="", runtime="jax:bfloat16"))
    assert "conflabel" in [scale.name for scale in engine.scales]
    assert "bfloat16" in engine.note and "not offered" not in engine.note


def test_a_backbone_without_bfloat16_is_refused(earlier):
    with pytest.raises(ValueError, match="open_set is not built in .*, got bfloat16"):
        jaxatr.load(earlier / "open_set", runtime="jax:bfloat16")
    with pytest.raises(ValueError, match="recognises tracks, in float32 only"):
        jaxatr.load(earlier / "track", runtime="jax:bfloat16")


@pytest.mark.skipif(not onednn.options(), reason=WITHOUT)
def test_a_retriever_and_the_console_take_onednn(earlier, images, monkeypatch):
    pytest.importorskip("fastapi")
    from jaxatr.serving.served_run import Wanted, load_engine

    monkeypatch.setenv(onednn.VARIABLE, "always")
    (wanted,) = jaxatr.load(earlier / "embedding").predict(images[:1])
    (found,) = jaxatr.load(earlier / "embedding", runtime="onednn").predict(images[:1])
    assert found.label == wanted.label
    assert found.distance == pytest.approx(wanted.distance, abs=1e-4)
    engine = load_engine(Wanted(earlier / "embedding", examples=0, runtime="onednn"))
    engine.warm([1])
    assert "]: onednn (asked for" in engine.note


@pytest.mark.skipif(bool(onednn.options()), reason="this jaxlib has oneDNN for XLA:CPU")
def test_a_jaxlib_without_onednn_says_so(earlier):
    with pytest.raises(ValueError, match=r"runtime=onednn: jaxlib .* has no oneDNN"):
        jaxatr.load(earlier / "open_set", runtime="onednn")


def test_a_damaged_graph_is_named(earlier):
    run = earlier / "embedding"
    jaxatr.load(run, runtime="onnxruntime")
    (path,) = exported(run)
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    try:
        with pytest.raises(ValueError, match=rf"{path.name}.*remove it"):
            jaxatr.load(run, runtime="onnxruntime")
    finally:
        path.unlink()
    jaxatr.load(run, runtime="onnxruntime")
    assert path.read_bytes() == content


def test_a_folder_that_cannot_be_written_keeps_nothing(earlier, images, monkeypatch):
    def refuse(folder, **options):
        if run in folder.parents:
            raise OSError("the disk is full")
        make(folder, **options)

    run, make = earlier / "open_set", Path.mkdir
    wanted = list(Recogniser.load(run, score="nndr_stage3")(images))
    before = exported(run)
    monkeypatch.setattr("jaxatr.tasks.runtime.Path.mkdir", refuse)
    with pytest.warns(UserWarning, match="exported network cannot be saved: the disk is full"):
        found = Recogniser.load(run, score="nndr_stage3", runtime="onnxruntime")
    monkeypatch.undo()
    agree(list(found(images)), wanted)
    assert exported(run) == before


@pytest.mark.parametrize("runtime", OTHERS)
def test_without_the_extra_nothing_takes_its_place(earlier, monkeypatch, runtime):
    monkeypatch.setitem(sys.modules, runtime, None)
    with pytest.raises(ImportError, match=rf"jaxatr\[{runtime}\]"):
        jaxatr.load(earlier / "open_set", runtime=runtime)


def test_scores_without_an_exported_form_are_refused(earlier, monkeypatch):
    run = earlier / "open_set"
    with pytest.raises(ValueError, match="conflabel needs a gradient .*, which only jax computes"):
        jaxatr.load(run, score="conflabel", runtime="onnxruntime")
    with pytest.raises(ValueError, match="runtime: got 'tvm', wanted one of jax, onednn, onnx"):
        jaxatr.load(run, runtime="tvm")

    def broken(*_, **__):
        raise ValueError("the function cannot be written as ONNX:\n  atan2: it has no rule")

    monkeypatch.setattr("jaxatr.onnx.writer.exporter.export", broken)
    with pytest.raises(ValueError, match="atan2: it has no rule"):
        jaxatr.load(run, score="nndr_stage4", runtime="onnxruntime")


def test_the_command_says_which_engine(earlier, flags, capsys, tmp_path):
    image = earlier / "chips/test/disc/000.png"
    given = [f"--workdir={earlier / 'open_set'}", "--runtime=onnxruntime"]
    assert predict.main(flags(*given, "--jsonl", image)) == 0
    printed = capsys.readouterr()
    assert "the network runs in onnxruntime" in printed.err
    assert json.loads(printed.out)["runtime"] == "onnxruntime"
    table = tmp_path / "table.jsonl"
    assert predict.main(flags(*given, f"--out={table}", image)) == 0
    assert json.loads(table.read_text())["runtime"] == "onnxruntime"


def test_parts_of_two_engines_do_not_mix(earlier, flags, capsys, tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    out = tmp_path / "out"
    given = [f"--workdir={earlier / 'open_set'}", "--engine=local", f"--out={out}"]
    chips = earlier / "chips/test/disc"
    assert predict.main(flags(*given, "--runtime=onnxruntime", chips)) == 0
    assert json.loads((out / "_manifest/run.json").read_text())["runtime"] == "onnxruntime"
    note = parquet.read_metadata(out / "part-00000.parquet").metadata[b"jaxatr"]
    assert json.loads(note)["runtime"] == "onnxruntime"
    with pytest.raises(ValueError, match="another run or with other options"):
        predict.main(flags(*given, chips))


def test_a_console_says_which_engine(earlier, images):
    pytest.importorskip("fastapi")
    from starlette.testclient import TestClient

    from jaxatr.serving.app import build_app
    from jaxatr.serving.console import Console
    from jaxatr.serving.options import Options
    from jaxatr.serving.served_run import Wanted, load_engine

    Recogniser.load(earlier / "open_set", score="conflabel")  # fitted, so that it is offered
    found = {}
    for runtime in ("jax", "onnxruntime"):
        wanted = Wanted(earlier / "open_set", examples=0, method="", runtime=runtime)
        engine = load_engine(wanted)
        scores = [scale.name for scale in engine.scales]
        found[runtime] = engine.answer(engine.intake(images[0])[None], scores=scores)
        options = Options(batches=(1,), marks=str(earlier / "marks.jsonl"))
        app = build_app(Console(engine, options))
        with TestClient(app, base_url="http://localhost") as client:
            assert client.get("/api/health").json()["runtime"] == runtime
            about = client.get("/api/run").json()
        assert about["runtime"] == runtime
        scores = {one["name"] for one in about["scores"]}
        assert ("conflabel" in scores) == (runtime == "jax")
        assert ("only jax computes them: conflabel" in about["note"]) == (runtime != "jax")
    (one,), (other,) = found.values()
    assert one.verdicts.keys() - other.verdicts.keys() == {"conflabel"}
    for name, verdict in other.verdicts.items():
        assert verdict["label"] == one.verdicts[name]["label"]
        assert verdict["score"] == pytest.approx(one.verdicts[name]["score"], abs=1e-4), name
