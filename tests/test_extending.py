"""The page docs/extending.md: its rows are true, and the examples that they point to run.

The longer examples have tests of their own: a kind of run (tests/tasks/test_own_kind.py), losses
(tests/losses/test_own_loss.py), a source (tests/data/sources/test_sources.py) and a method of
explanation (tests/explain/test_explainer.py).
"""

import hashlib
import importlib
import re
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import safetensors.numpy

from jaxatr import bundled, models, openset
from jaxatr import config as configuration
from jaxatr.data import augmentations
from jaxatr.kernels.benchmark import relative_error
from jaxatr.kernels.device import of_platform
from jaxatr.kernels.ops.convolution import solvers
from jaxatr.kernels.ops.convolution.operation import OPERATION
from jaxatr.kernels.ops.convolution.problem import Problem
from jaxatr.models import published
from jaxatr.models.published.finding import tensors_of
from jaxatr.tasks.open_set import terms
from jaxatr.tasks.optimizer import build_optimizer

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"


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
    assert len(rows()) == 14


def test_a_term_of_the_loss_adds_up_over_known_examples(outside, small_config, monkeypatch):
    outside("own_term", examples("extending.md", "## A term of the loss")[0])
    term = importlib.import_module("own_term").TERM
    monkeypatch.setattr(terms, "TERMS", (*terms.TERMS, term))
    config = small_config.copy_and_resolve_references()
    with config.unlocked():
        config.loss.feature_norm_weight = 0.5
    assert term in terms.of(config)
    rng = np.random.default_rng(0)
    features = jnp.asarray(rng.normal(size=(4, 8)), jnp.float32)
    out = models.OpenSetOutput(jnp.zeros((4, 3)), jnp.zeros((4, 3)), features)
    target = terms.Labels(jnp.array([0, -1, 2, 1]), jnp.array([1.0, 1.0, 0.25, 1.0]))
    total, count = term.value(terms.Seen(config.loss, {}, out, [target]))
    weights = np.array([1, 0, 0.25, 1])
    np.testing.assert_allclose(total, weights @ np.square(features).sum(axis=1), rtol=1e-6)
    assert count == 2.25
    with config.unlocked():
        config.loss.feature_norm_weight = -1.0
    with pytest.raises(ValueError, match="loss.feature_norm_weight: got -1.0, wanted 0"):
        terms.check(config, (24, 24, 1))


def test_a_score_of_ones_own_is_fitted_and_computed(outside):
    outside("own_score", examples("open_set.md", "## A score of your own")[0])
    scores = openset.choose_scores("own_score:SCORE")
    rng = np.random.default_rng(0)
    logits, features = rng.normal(size=(6, 3)).astype(np.float32), rng.normal(size=(6, 4))
    outputs = openset.Outputs(logits, logits, np.arange(6) % 3, {"features": features})
    found = openset.fit_scores(scores, outputs, openset.Head(np.zeros((4, 3)), None)).on(outputs)
    centre = sum(features) / 6
    np.testing.assert_allclose(
        found["centre"], [-np.sqrt(sum((f - centre) ** 2)) for f in features]
    )


def test_an_operator_of_ones_own_is_one_of_a_models_nodes():
    onnx = pytest.importorskip("onnx")
    from jaxatr import onnx as room
    from jaxatr.onnx.ops import registry

    (code,) = [one for one in examples("onnx.md", "**Operators of your own**") if "Twice" in one]
    helper, kind = onnx.helper, onnx.TensorProto.FLOAT
    node = helper.make_node("Twice", ["x"], ["y"], domain="my.domain", times=3)
    values = [helper.make_tensor_value_info(name, kind, [2]) for name in ("x", "y")]
    graph = helper.make_graph([node], "g", values[:1], values[1:])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("my.domain", 1)]
    proto = helper.make_model(graph, opset_imports=opsets)
    with registry.restored():
        exec(code, {"onnx": room})
        model = room.load(proto)
        found = model.apply(model.variables, np.float32([1, -2]))
    np.testing.assert_array_equal(jax.tree.leaves(found)[0], [3, -6])
    with pytest.raises(ValueError, match="Twice"):
        room.load(proto)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_a_solver_of_ones_own_is_found_and_right(outside, monkeypatch, dtype):
    path = outside("one_pixel", examples("kernels.md", "## Adding a solver")[0])
    monkeypatch.setattr(solvers, "__path__", [*solvers.__path__, str(path.parent)])
    found = solvers._solvers()
    sys.modules.pop(f"{solvers.__name__}.one_pixel")
    assert set(found) == {*solvers.SOLVERS, "one_pixel"}
    solver, cpu = found["one_pixel"], of_platform("cpu")
    unit, edges = (1, 1), ((0, 0), (0, 0))
    problem = Problem("forward", (2, 3, 4, 5), (1, 1, 5, 6), unit, edges, unit, 1, dtype)
    arguments = OPERATION.arguments(problem, np.random.default_rng(0))
    expected = OPERATION.reference(problem, arguments)
    assert solver.applies(problem, cpu) and not solver.applies(problem.in_direction("data"), cpu)
    for config in solver.configs(problem):
        error = relative_error(solver.build(problem, config)(*arguments), expected)
        assert error <= OPERATION.tolerance(problem, cpu)


def test_an_augmentation_of_ones_own_is_found_checked_and_applied(outside, monkeypatch):
    path = outside("dead_row", examples("extending.md", "## An augmentation")[0])
    monkeypatch.setattr(augmentations, "__path__", [*augmentations.__path__, str(path.parent)])
    found = augmentations._augmentations()
    sys.modules.pop(f"{augmentations.__name__}.dead_row")
    assert [one.name for one in found if one not in augmentations.AUGMENTATIONS] == ["dead_row"]
    fields = {name: field for one in found for name, field in one.fields.items()}
    monkeypatch.setattr(augmentations, "AUGMENTATIONS", found)
    monkeypatch.setattr(augmentations, "FIELDS", fields)
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
    outside, monkeypatch, tmp_path
):
    path = outside("my_mobilenet", examples("extending.md", "## A published network")[0])
    monkeypatch.setattr(published, "__path__", [*published.__path__, str(path.parent)])
    found = published._by_name()
    sys.modules.pop(f"{published.__name__}.my_mobilenet")
    assert set(found) == {*published.NETWORKS, "my_mobilenet"}
    network = found["my_mobilenet"]
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
