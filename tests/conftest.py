"""Fixtures for every test: a small folder of chips, and a run trained on it."""

import collections
import functools
import gc
import hashlib
import json
import os
import shutil
import tarfile
from importlib.metadata import version
from pathlib import Path

# Most of a test's time is the compiler's: it does less for these small programs, in the programs
# that tests start too. CI's slow tests run with all of it.
os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")
if os.environ["JAX_DISABLE_MOST_OPTIMIZATIONS"] == "1" and version("jaxlib").startswith("0.10."):
    # XLA:CPU's earlier emitters, in one LLVM module: a training step compiles in an eighth of the
    # time. Later versions of jaxlib end at a flag that they do not know any more.
    cheaper = "--xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1"
    os.environ["XLA_FLAGS"] = f"{cheaper} {os.environ.get('XLA_FLAGS', '')}".strip()

# Threads of BLAS and OpenMP wait for work by counting, on the cores of the other workers. The
# libraries read this as they are loaded, which in one process a plugin does before.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

# The interpreter of GPU kernels runs four threads that wait for each other. XLA's pool, on which
# they compute, has one thread for each core: with two cores they sometimes wait for ever.
os.environ.setdefault("NPROC", str(max(4, os.cpu_count() or 1)))

import jax
import jaxtyping
import numpy as np
import pytest
from jax._src import compiler
from jax.experimental.compilation_cache import compilation_cache
from ml_collections import ConfigDict
from PIL import Image

from jaxatr import config as configuration
from jaxatr.kernels import database
from jaxatr.kernels.device import cores
from jaxatr.resolve import EVERYTHING, trust

gc.disable()  # until the tests are collected: imports leave no garbage to speak of

collect_ignore = ["fixtures/make_runs.py"]  # of an earlier version of the package

CLASSES = ("cross", "disc", "ring", "square")
KINDS_OF_FLAGS = ("string", "multi_string", "list", "integer", "float", "bool", "enum", "alias")


SECONDS = Path(__file__).parents[1] / "experiments/benchmarks/results/test_seconds.json"


def pytest_addoption(parser):
    """Adds the options that choose some of the slow tests' files."""
    parser.addoption("--part", metavar="K/N", help="of the slow tests' files, the Kth of N parts")
    parser.addoption("--also", default="", help="files to run besides that part, with commas")


def pytest_xdist_auto_num_workers():
    """Returns one worker more than there are cores: each waits for a tenth of its time."""
    return cores() + 1


def pytest_collection_modifyitems(config, items):
    """Deselects the slow tests of the other parts, and nothing without ``--part``."""
    if (chosen := config.getoption("part")) is None:
        return
    number, count = map(int, chosen.split("/"))
    if not 1 <= number <= count:
        raise pytest.UsageError(f"--part={chosen}: wanted K/N with K from 1 to N")
    also = {str(Path(name).resolve()) for name in config.getoption("also").split(",")}
    slow = [item for item in items if item.get_closest_marker("slow")]
    parts = parts_of({item.nodeid.partition("::")[0] for item in slow}, count)
    left_out = {
        item
        for item in slow
        if parts[item.nodeid.partition("::")[0]] != number and str(item.path) not in also
    }
    config.hook.pytest_deselected(items=[item for item in items if item in left_out])
    items[:] = [item for item in items if item not in left_out]


def parts_of(files, count):
    """Divides files into parts of about equal time, and returns the part of each, from 1 on."""
    recorded = json.loads(SECONDS.read_text())["slow"]["files"] if SECONDS.is_file() else {}
    seconds = {name: recorded.get(name, [30.0])[0] for name in files}
    filled, parts = [0.0] * count, {}
    for name in sorted(files, key=lambda name: (-seconds[name], name)):
        least = filled.index(min(filled))
        filled[least] += seconds[name]
        parts[name] = least + 1
    return parts


def pytest_collection_finish():
    """Excludes imported objects from garbage collection, and collects less often."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)
    gc.enable()


@pytest.fixture(scope="session", autouse=True)
def modules_of_the_tests_are_trusted():
    """Allows the tests' own networks, scores and so on; ``tests/test_trust.py`` is without it."""
    trust(EVERYTHING)


@pytest.fixture(scope="session", autouse=True)
def nothing_shipped(tmp_path_factory):
    """Uses the heuristic on every machine, even if the shipped database covers its processor."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(database, "SHIPPED", tmp_path_factory.mktemp("shipped"))
        yield


@pytest.fixture(scope="session", autouse=True)
def compiled_once():
    """Compiles a program once in this process, whichever function it was traced from.

    jax keeps programs by function, and a run that is loaded again brings functions of its own.
    """
    compile_program = getattr(compiler, "backend_compile_and_load", None)
    if compile_program is None:  # it is not public: another version may have another
        yield
        return
    made = collections.OrderedDict()

    def once(backend, module, devices, options, host_callbacks, *more, **named):
        arguments = (backend, module, devices, options, host_callbacks, *more)
        text = module.operation.get_asm(enable_debug_info=False)
        if host_callbacks or "callback" in text:  # a program of this very function
            return compile_program(*arguments, **named)
        text = f"{id(backend)} {devices} {text}".encode() + options.SerializeAsString()
        key = hashlib.sha256(text).digest()
        if (program := made.pop(key, None)) is None:
            program = compile_program(*arguments, **named)
        made[key] = program  # the newest is the last
        while len(made) > 500:
            made.popitem(last=False)
        return program

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiler, "backend_compile_and_load", once)
        yield


@pytest.fixture(scope="module", autouse=True)
def compiles_in_memory():
    """Disables the on-disk compilation cache that a command in this process has enabled.

    Writing every program of the following test files would take long, and XLA:CPU crashes on some.
    """
    yield
    jax.config.update("jax_enable_compilation_cache", False)
    compilation_cache.reset_cache()


@pytest.fixture
def read_in_place():
    """Copies an array to a multiple of 64 bytes, where jax on a CPU reads it in place."""

    def placed(array):
        memory = np.empty(array.nbytes + 64, np.uint8)
        start = -memory.ctypes.data % 64
        copy = memory[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
        copy[...] = array
        return copy

    return placed


@pytest.fixture
def unchecked():
    """Disables run-time shape checks, for tests of error messages that users see without them."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


@pytest.fixture
def flags_of(monkeypatch):
    """Sets a command's flags like its command line, and returns the arguments."""
    from absl import flags

    def parse(module, *arguments):
        values = flags.FlagValues()
        for name in [name for name in flags.FLAGS if name.startswith("grain_")]:
            values[name] = flags.FLAGS[name]  # which it reads as it gives batches
        monkeypatch.setattr(module.flags, "FLAGS", values)
        with monkeypatch.context() as patch:
            for name in KINDS_OF_FLAGS:
                define = functools.partial(getattr(flags, f"DEFINE_{name}"), flag_values=values)
                patch.setattr(module.flags, f"DEFINE_{name}", define)
            module.define_flags()
        return values(["command", *map(str, arguments)])[1:]

    return parse


def draw_chip(name: str, rng: np.random.Generator, size: int = 24) -> np.ndarray:
    """Returns a gray chip with one bright shape somewhere near its centre."""
    y, x = np.mgrid[:size, :size] - size / 2 + rng.uniform(-2, 2, (2, 1, 1))
    radius = np.hypot(y, x)
    shape = {
        "cross": (np.abs(y) < 2) | (np.abs(x) < 2),
        "disc": radius < 6,
        "ring": np.abs(radius - 7) < 1.5,
        "square": np.maximum(np.abs(y), np.abs(x)) < 6,
    }[name]
    return np.uint8(np.clip(60 + 120 * shape + rng.normal(0, 15, (size, size)), 0, 255))


@pytest.fixture(scope="session")
def chips(tmp_path_factory) -> Path:
    """A folder of class folders, ``train`` and ``test``, four shapes."""
    root, rng = tmp_path_factory.mktemp("chips"), np.random.default_rng(0)
    for split, count in (("train", 24), ("test", 10)):
        for name in CLASSES:
            folder = root / split / name
            folder.mkdir(parents=True)
            for index in range(count):
                Image.fromarray(draw_chip(name, rng)).save(folder / f"{index:03}.png")
    return root


@pytest.fixture(scope="session")
def small_config(chips, tmp_path_factory) -> ConfigDict:
    """Three known shapes, one unknown, and a network that compiles quickly."""
    config = configuration.of_task()
    config.data.name = "image_folder"
    config.data.source = str(chips)
    config.data.data_dir = str(tmp_path_factory.mktemp("prepared"))
    config.data.validation = 0.25
    config.model.backbone = "jaxatr_test_networks:Small"
    config.open_set.split = "random-3/1"
    config.open_set.score = "auto"  # compares all scores, which many tests are about
    config.optimizer.learning_rate = 0.1
    config.train.batch_size = 16
    config.train.epochs = 12
    config.train.evaluate_every = 4.0
    config.augment.shift = 1
    return config


@pytest.fixture(scope="session")
def levels(chips, tmp_path_factory) -> Path:
    """The same folder with two levels of classes: shapes with corners and round ones."""
    root = tmp_path_factory.mktemp("levels") / "chips"
    shutil.copytree(chips, root)
    groups = {"cross": "straight", "square": "straight", "disc": "round", "ring": "round"}
    (root / "coarse.json").write_text(json.dumps(groups))
    return root


def make_embedding_config(levels, tmp_path_factory) -> ConfigDict:
    config = configuration.of_task("jaxatr.tasks.embedding:Embedding")
    config.data.name, config.data.source = "image_folder", str(levels)
    config.data.data_dir = str(tmp_path_factory.getbasetemp() / "prepared-levels")
    config.data.validation = 0.25
    config.model.backbone = "jaxatr_test_networks:Small"
    config.embedding.dimension = 8
    config.optimizer.learning_rate = 0.01
    config.train.batch_size = 16
    config.train.steps = 12
    config.train.evaluate_every = 100.0
    config.mining.refresh_steps = 4
    config.augment.shift = 1
    return config


@pytest.fixture
def embedding_config(levels, tmp_path_factory) -> ConfigDict:
    """An embedding of all four shapes, with a network that compiles quickly."""
    return make_embedding_config(levels, tmp_path_factory)


@pytest.fixture(scope="session")
def embedding_run(levels, tmp_path_factory) -> Path:
    """The folder of an evaluated embedding: three trained shapes, one new."""
    from jaxatr import runs

    config = make_embedding_config(levels, tmp_path_factory)
    config.train.steps = 60
    config.open_set.split = "random-3/1"
    workdir = tmp_path_factory.mktemp("embedding") / "run"
    runs.train_run(config, workdir, progress=False)
    runs.evaluate_run(workdir)
    return workdir


@pytest.fixture(scope="module")
def earlier(tmp_path_factory) -> Path:
    """A small evaluated run of each task, unpacked (tests/fixtures/make_runs.py)."""
    root = tmp_path_factory.mktemp("earlier")
    with tarfile.open(Path(__file__).parent / "fixtures" / "runs.tar.xz") as archive:
        archive.extractall(root, filter="data")
    for path in root.rglob("*.json"):  # whose paths are those of the machine that made them
        if "checkpoints" not in path.parts:
            path.write_text(path.read_text().replace("/tmp/jaxatr-fixture", str(root)))
    return root


@pytest.fixture(scope="session", autouse=True)
def no_database_of_the_user(tmp_path_factory):
    """Isolates the tests from the kernel database and environment variables of the user."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAXATR_CACHE", str(tmp_path_factory.mktemp("cache")))
        patch.delenv("JAXATR_FIND", raising=False)
        yield


@pytest.fixture(scope="session", autouse=True)
def networks_of_the_tests(tmp_path_factory):
    """Puts a module with a user-defined backbone on the import path."""
    folder = tmp_path_factory.mktemp("networks")
    (folder / "jaxatr_test_networks.py").write_text(NETWORKS)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        yield folder


NETWORKS = '''
import flax.linen as nn
import jax.numpy as jnp


class Small(nn.Module):
    features: int = 16
    maps = ("map_stage1", "map_stage2", "map_stage3", "map_stage4")

    @nn.compact
    def __call__(self, images, train=False):
        first = nn.Conv(self.features, (5, 5), strides=2)(images)
        normal = nn.BatchNorm(use_running_average=not train, momentum=0.9)(first)
        second = nn.Conv(self.features, (3, 3), strides=2)(nn.relu(normal))
        x = nn.relu(second)
        for name, found in zip(self.maps, (first, normal, second, x)):
            self.sow("intermediates", name, found)
        return jnp.concatenate([x.mean((1, 2)), x.max((1, 2))], axis=-1)


class Plain(nn.Module):
    """No batch statistics: what an example gives does not depend on the others."""

    @nn.compact
    def __call__(self, images, train=False):
        return nn.relu(nn.Conv(8, (5, 5), strides=2)(images)).mean((1, 2))


class Map(nn.Module):
    @nn.compact
    def __call__(self, images, train=False):
        return images
'''


@pytest.fixture(scope="session")
def trained_run(small_config, tmp_path_factory) -> Path:
    """The folder of a trained and evaluated run."""
    from jaxatr import runs

    workdir = tmp_path_factory.mktemp("run") / "run"
    runs.train_run(small_config, workdir, progress=False)
    runs.evaluate_run(workdir)
    return workdir


@pytest.fixture(scope="session")
def make_bright():
    """Makes detectors of bright patches."""
    from scipy import ndimage

    from jaxatr.tasks.detection import predictor as detection
    from jaxatr.tasks.detection.decoding import Decoded, Tiling

    class Bright(detection.Detector):
        """A detector of patches that are brighter than 0: no network, and the code of one."""

        def __init__(self):
            self.workdir, self.classes = "bright", ("dim", "light")
            self.threshold, self.gamma = 0.3, 0.5
            self.dtype, self.channels = np.dtype(np.uint8), 1
            self._tiling = Tiling(64, 32, np.zeros(1, np.uint8))
            self._overlap = 0.5
            self.shapes = []

        def _infer(self, images):
            self.shapes.append(images.shape[1:3])
            most = 4
            boxes, scores = np.zeros((len(images), most, 4)), np.zeros((len(images), most))
            logits, valid = np.zeros((len(images), most, 2)), np.zeros((len(images), most), bool)
            for row, image in enumerate(images):
                groups, _ = ndimage.label(image[..., 0])
                for number, (y, x) in enumerate(ndimage.find_objects(groups)[:most]):
                    boxes[row, number] = [x.start, y.start, x.stop, y.stop]
                    scores[row, number] = 0.9 - 0.1 * number
                    mean = image[y, x].mean()
                    logits[row, number] = (-9, -9) if mean > 200 else (150 - mean, mean - 150)
                    valid[row, number] = True
            return Decoded(np.float32(boxes), np.float32(scores), np.float32(logits), valid)

    return Bright


@pytest.fixture(scope="module")  # it keeps an event loop running, which others may mind
def browser():
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("there is no chromium")
    with sync_api.sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield launched
        launched.close()


@pytest.fixture(scope="session")
def contrast():
    """Returns the lowest contrast of text for each kind of element on a page."""
    return lambda page: page.evaluate(CONTRAST)


# The least contrast of text and its background (WCAG 2.1, 1.4.3) for each kind of element.
CONTRAST = """() => {
  const canvas = document.createElement("canvas").getContext("2d", {willReadFrequently: true});
  const over = (colours) => {
    canvas.clearRect(0, 0, 1, 1);
    for (const colour of colours) { canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1); }
    return [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3);
  };
  const light = (rgb) => {
    const [r, g, b] = rgb.map((v) => v / 255).map(
      (v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const least = {};
  for (const one of document.body.querySelectorAll(":not(script, svg, svg *)")) {
    const own = [...one.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
    if (!one.offsetParent || !own) continue;
    const behind = [];
    for (let at = one; at; at = at.parentElement) {
      behind.unshift(getComputedStyle(at).backgroundColor);
    }
    const [back, front] = [over(behind), over([...behind, getComputedStyle(one).color])].map(light);
    const ratio = (Math.max(back, front) + 0.05) / (Math.min(back, front) + 0.05);
    const kind = `${one.tagName}.${one.className}`;
    least[kind] = Math.min(least[kind] ?? 99, ratio);
  }
  return least;
}"""


@pytest.fixture
def compiler_events():
    """The names of the events that jax reports, such as compilations, as they happen."""
    names = []

    def listen(event: str, duration_secs: float, **_: str | int):
        names.append(event.rpartition("/")[2])

    jax.monitoring.register_event_duration_secs_listener(listen)
    yield names
    jax.monitoring.unregister_event_duration_listener(listen)
