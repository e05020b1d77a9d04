"""The command ``tune``."""

import dataclasses
import json
import os
import subprocess
import sys
import types
from pathlib import Path

import flax.linen as nn
import jax
import jax.numpy as jnp
import pytest
from absl import flags

from jaxatr import kernels
from jaxatr.cli import tune
from jaxatr.kernels import contrib, database, solver
from jaxatr.kernels.device import describe, of_platform
from jaxatr.kernels.entries import Entry
from jaxatr.kernels.ops.convolution.operation import OPERATION
from jaxatr.kernels.ops.convolution.problem import ConvProblem
from jaxatr.kernels.ops.convolution.solvers import SOLVERS
from jaxatr.kernels.solver import Choice
from jaxatr.tuning import fusions, model, operation, show

SMALL = ("-n=2", "-c=4", "-H=5", "-W=6", "-k=4", "-y=3", "-x=2", "-p=1", "-v=2", "-g=2")
KEY = "convolution forward 2x5x6x4 3x2x2x4 s1x2 p1.1.0.0 d1x1 g2 float32"


@pytest.fixture(autouse=True)
def own_database(monkeypatch, tmp_path):
    monkeypatch.setenv("JAXATR_CACHE", str(tmp_path))
    monkeypatch.delenv("JAXATR_FIND", raising=False)


def run(name, flags_of, *arguments):
    command = tune.commands()[name]
    module = types.SimpleNamespace(flags=flags, define_flags=command.define_flags)
    return command.main(flags_of(module, *arguments))


def test_conv_verifies_times_and_keeps_the_best(flags_of, capsys):
    assert run("conv", flags_of, *SMALL, "--direction=forward") == 0
    text = capsys.readouterr().out
    assert text.startswith(KEY)
    for name in ("blocked", "direct", "matmul", "xla"):
        assert f"  {name:<12} verified: error" in text
    assert " ms " in text and "the fastest is saved in" in text
    (kept,) = database.entries(database.user_file(of_platform("cpu")))
    assert kept == KEY
    show.main([])
    assert f"  {KEY}: " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("key", "algorithm", "changes", "why"),
    [
        (KEY, "matmul", {}, ""),
        (KEY, "matmul", {"jax_version": "0.0.1"}, "it was measured with jax 0.0.1, this is jax"),
        (KEY, "matmul", {"solver_version": 9}, "it is for version 9 of 'matmul', this is version "),
        (KEY, "gone", {}, "the algorithm 'gone' does not exist"),
        ("log_softmax forward channel 2x4x5x3 float32", "xla", {}, ""),
        ("log_softmax forward channel 2x4x5x3 float32", "taps", {}, "the algorithm 'taps' does"),
        ("sort forward 3", "xla", {}, "the operation 'sort' does not exist"),
        ("\t", "xla", {}, r"the operation '\t' does not exist"),
    ],
)
def test_a_choice_that_is_shown_but_not_used_says_why(key, algorithm, changes, why, capsys):
    made = Entry(Choice(algorithm), 1.5, 1, jax.__version__)
    database.store(describe(jax.local_devices()[0]), {key: made._replace(**changes)})
    show.main([])
    (line,) = [line for line in capsys.readouterr().out.splitlines() if key in line]
    assert f"  (not used: {why}" in line if why else line.endswith(" ms")


def test_a_wrong_and_a_failing_solver_are_reported_and_give_an_exit_code(
    flags_of, capsys, monkeypatch
):
    monkeypatch.setattr(
        SOLVERS["direct"], "build", lambda problem, config: lambda x, w: jnp.ones(problem.y_shape)
    )

    def fail(problem, config):
        raise NotImplementedError("not today")

    monkeypatch.setattr(SOLVERS["matmul"], "build", fail)
    letters = [letter.replace("-n=2", "-n=3") for letter in SMALL]  # compiled by no other test
    assert run("conv", flags_of, *letters, "--direction=forward", "--notime") == 1
    text = capsys.readouterr().out
    assert "direct       WRONG: error" in text
    assert "matmul       FAILED: NotImplementedError: not today" in text
    assert " ms " not in text
    assert not database.known(of_platform("cpu"))


def test_a_wrong_configuration_is_reported_where_the_default_is_right(
    flags_of, capsys, monkeypatch
):
    """Of two variants of one solver, the find step skips the second and reports it."""
    solver, right = SOLVERS["blocked"], SOLVERS["blocked"].build
    first, second = (("images", 1),), (("images", 2),)

    def build(problem, config):
        compute = right(problem, first)
        return compute if config == first else lambda x, w: 2 * compute(x, w)

    for other in set(SOLVERS) - {"blocked"}:  # of which one could be so fast that none is tried
        monkeypatch.setattr(SOLVERS[other], "applies", lambda *_: False)
    monkeypatch.setattr(solver, "configs", lambda problem: [first, second])
    monkeypatch.setattr(solver, "build", build)
    letters = [letter.replace("-n=2", "-n=5") for letter in SMALL]
    with pytest.warns(UserWarning, match=r"left out: blocked \{'images': 2\} is wrong"):
        assert run("conv", flags_of, *letters, "--direction=forward") == 1
    text = capsys.readouterr().out
    assert "blocked      images=2 WRONG: error" in text
    assert "blocked      images=1 WRONG" not in text and "blocked      verified" not in text
    (timed,) = [line for line in text.splitlines() if " ms " in line and "blocked" in line]
    assert "images=1 " in timed


def test_a_problem_that_cannot_be_measured_leaves_the_others_their_turn(
    flags_of, capsys, monkeypatch
):
    compute = OPERATION.reference

    def reference(problem, arguments):
        if problem.direction == "forward":
            raise MemoryError("Unable to allocate 1.00 PiB")
        return compute(problem, arguments)

    monkeypatch.setitem(
        solver._OPERATIONS, ConvProblem, dataclasses.replace(OPERATION, reference=reference)
    )
    assert run("conv", flags_of, *SMALL, "--notime") == 1
    text = capsys.readouterr().out
    assert "  FAILED: MemoryError: Unable to allocate 1.00 PiB" in text
    assert text.count("xla          verified") == 2


def test_solvers_that_take_too_much_memory_are_not_tried(flags_of, capsys, monkeypatch):
    monkeypatch.setattr(SOLVERS["matmul"], "workspace_bytes", lambda problem: 2**60)
    assert run("conv", flags_of, *SMALL, "--direction=forward", "--notime") == 0
    text = capsys.readouterr().out
    assert (
        f"matmul       left out: needs {2**40} MiB" in text and "matmul       verified" not in text
    )


def test_conv_lists_every_direction_without_computing(flags_of, capsys):
    assert run("conv", flags_of, *SMALL, "--list") == 0
    text = capsys.readouterr().out
    for direction in ("forward", "data", "weight"):
        assert f"convolution {direction} 2x5x6x4" in text
    assert "configurations" in text and "error" not in text


def test_each_letter_is_its_own(flags_of, capsys):
    letters = "n=2 c=6 H=31 W=40 k=9 y=3 x=4 p=5 q=6 u=2 v=7 l=8 j=10 g=3".split()
    given = [f"-{letter}" for letter in letters]
    assert run("conv", flags_of, *given, "--direction=weight", "--list") == 0
    key = "convolution weight 2x31x40x6 3x4x2x9 s2x7 p5.5.6.6 d8x10 g3 float32 on "
    assert capsys.readouterr().out.startswith(key)


def test_int8_has_the_forward_product_alone(flags_of, capsys):
    assert run("conv", flags_of, *SMALL, "--dtype=int8", "--list") == 0
    assert "weight" not in capsys.readouterr().out


def test_a_transposed_convolution_is_a_data_gradient(flags_of, capsys):
    assert run("conv", flags_of, *SMALL, "--mode=trans", "--direction=forward", "--list") == 0
    # 5 rows with padding 1 and 3 taps give 5, 6 columns with stride 2 and 2 taps give 12.
    text = capsys.readouterr().out
    assert text.startswith("convolution data 2x5x12x4 3x2x2x4 s1x2 p1.1.0.0 d1x1 g2 float32")


IMAGES = ("-n=2", "-c=3", "-H=4", "-W=5")
OTHERS = [
    ("pool", (*IMAGES, "--mode=average", "-p=1"), "pooling forward average 2x4x5x3 2x2", "taps"),
    ("softmax", (*IMAGES, "--log"), "log_softmax forward channel 2x4x5x3 float32", "xla"),
    ("lrn", (*IMAGES, "-N=3", "--mode=within"), "response_norm forward within 2x4x5x3 n3", "taps"),
    ("bn", (*IMAGES, "--notrain"), "batch_norm forward spatial inference none 2x4x5x3", "xla"),
    ("ctc", ("-n=2", "-t=6", "-L=3", "-k=4"), "ctc forward b2 t6 n3 k4 float32", "xla"),
    (
        "tensor",
        (*IMAGES, "--name=max", "--shared=nHW"),
        "tensor forward max 2x4x5x3 1x1x1x3",
        "xla",
    ),
    (
        "rnn",
        ("-n=2", "-k=3", "-W=4", "-H=4", "--mode=tanh"),
        "recurrent forward tanh t3 b2",
        "gemm",
    ),
]


@pytest.mark.parametrize(("name", "arguments", "key", "solver"), OTHERS)
def test_the_other_operations_are_listed_and_verified(
    name, arguments, key, solver, flags_of, capsys
):
    assert run(name, flags_of, *arguments, "--direction=forward", "--notime") == 0
    text = capsys.readouterr().out
    assert text.startswith(key) and f"  {solver:<12} verified: error" in text


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "arguments", "key"),
    [
        ("pool", IMAGES, "pooling forward max 2x4x5x3"),
        ("rnn", ("-n=2", "-k=2"), "recurrent forward"),
    ],
)
def test_the_other_operations_are_timed_and_kept(name, arguments, key, flags_of, capsys):
    small = ("-W=3", "-H=3") if name == "rnn" else ()
    assert run(name, flags_of, *arguments, *small, "--direction=forward", "--budget=1") == 0
    assert " ms " in capsys.readouterr().out
    (kept,) = database.entries(database.user_file(of_platform("cpu")))
    assert kept.startswith(key)


@pytest.mark.parametrize("name", ["pool", "rnn"])
def test_both_directions_are_tuned_by_default(name, flags_of, capsys):
    assert run(name, flags_of, "--list") == 0
    text = capsys.readouterr().out
    assert " forward " in text and " backward " in text and "configurations" in text


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("pool", ["-p=2"], "-p and -q: got 2 and 0, wanted less than -y 2 and -x 2"),
        ("pool", ["-H=1"], "-H and -W: got 1 and 32, smaller than the window"),
        ("ctc", ["-t=10", "-L=6"], "-L: got 6, wanted at most half of -t 10"),
        ("tensor", ["--shared=nq"], r"--shared: got \['q'\], wanted some of the letters nHWc"),
        ("rnn", ["-W=3", "--skip"], "-W: got 3, wanted the same as -H 256 with --skip"),
        ("rnn", ["--before"], "--before: needs --mode=gru, got --mode=lstm"),
        ("lrn", ["-N=0"], "-N: got 0, wanted at least 1"),
        ("bn", ["stray"], "got 'stray', which is not a flag"),
        ("conv", ["--mode=trans", "-H=1", "-p=2"], "-p and -q: got 2 and 0: no result remains"),
        ("conv", ["--mode=trans", "--dtype=int8"], "int8 supports only --direction=forward"),
    ],
)
def test_bad_flags_of_the_others_are_named(name, arguments, message, flags_of):
    with pytest.raises(ValueError, match=message):
        run(name, flags_of, *arguments)


SOLVER_LINES = ("xla (on every platform)", "hopper (on gpu, cuda)")


def test_the_graph_of_fusions(capsys):
    fusions.main([])
    text = capsys.readouterr().out
    assert "xla (on every platform)" in text and "hopper (on gpu, cuda)" in text
    head, *lines = text.splitlines()
    assert head == "C Convolution, B Bias, N BatchNorm, R Residual, A Activation"
    of_xla, of_hopper = (set(lines[lines.index(one) + 1].split()) for one in SOLVER_LINES)
    assert {"CBNA", "CBA", "NA", "CBRA", "CBNRA"} <= of_xla
    assert of_hopper == {letters for letters in of_xla if letters.startswith("C")}
    assert "  start       -> Convolution " in text and "  BatchNorm   -> Activation" in text
    assert "  start       -> BatchNorm   a floating-point type" in text
    with pytest.raises(ValueError, match="this command takes no arguments"):
        fusions.main(["stray"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-g=3"], "-g: got 3, wanted a divisor of -c 4 and -k 4"),
        (["-u=0"], "-u: got 0, wanted at least 1"),
        (["-p=-1"], "-p: got -1, wanted at least 0"),
        (["-H=1", "-p=0"], "-H and -W: got 1 and 6, smaller than the kernel"),
        (["--dtype=int8", "--direction=data"], "int8 supports only --direction=forward"),
        (["--budget=0"], "--budget: got 0.0, wanted more than 0 seconds"),
        (["stray"], "got 'stray', which is not a flag"),
    ],
)
def test_bad_flags_are_named(flags_of, arguments, message):
    with pytest.raises(ValueError, match=message):
        run("conv", flags_of, *SMALL, *arguments)


class Two(nn.Module):
    @nn.compact
    def __call__(self, images, train=False):
        def convolve(x, w, *_, **__):
            return kernels.convolution(x, w, padding=1)

        conv = {"kernel_size": (3, 3), "conv_general_dilated": convolve}
        x = nn.relu(nn.Conv(4, **conv)(images))
        x = nn.BatchNorm(use_running_average=not train)(x)
        return nn.relu(nn.Conv(4, **conv)(nn.Conv(4, **conv)(x))).mean((1, 2))


def test_the_problems_of_a_network_are_each_found_once():
    problems = model.problems_of(Two(), (3, 8, 8, 1), training=True)
    found = [(problem.direction, problem.x_shape[3]) for problem in problems]
    first = {("forward", 1), ("weight", 1)}  # the images have no gradient
    assert len(found) == 5
    assert set(found) == first | {("forward", 4), ("data", 4), ("weight", 4)}
    inference = model.problems_of(Two(), (3, 8, 8, 1), training=False)
    assert [(problem.direction, problem.x_shape[3]) for problem in inference] == [
        ("forward", 1),
        ("forward", 4),
    ]


@pytest.mark.slow
@pytest.mark.parametrize("flag", ["--train", "--notrain"])
def test_the_problems_of_a_network_by_its_name(flag, flags_of, capsys):
    assert run("model", flags_of, "--name=resnet18", "--size=16", "--batch=2", flag, "--list") == 0
    count, *lines = capsys.readouterr().out.splitlines()
    problems = [line for line in lines if " on " in line]
    assert count == f"{len(problems)} problems" and len(problems) > 8
    assert sum(line.startswith("convolution ") for line in problems) > 8
    assert any(line.startswith("convolution weight ") for line in lines) == (flag == "--train")


@pytest.mark.parametrize("name", ["size", "batch"])
def test_a_network_has_sizes(flags_of, name):
    with pytest.raises(ValueError, match=f"--{name}: got 0, wanted at least 1"):
        run("model", flags_of, f"--{name}=0")


DOUBLE = """
import dataclasses
from typing import Any

from jaxatr.kernels.ops.differentiable import Form, draw, operation, wide
from jaxatr.kernels.options import Command, Option
from jaxatr.kernels.solver import register


@dataclasses.dataclass(frozen=True)
class ConvProblem:
    direction: str
    dtype: str
    size: int

    @property
    def key(self):
        return f"double {self.direction} {self.size} {self.dtype}"


def arguments(problem, generator):
    return tuple(draw(generator, problem.dtype, *[(problem.size,)] * (1 + _backward(problem))))


def reference(problem, given):
    return (2 * wide(*given)[-1],) if _backward(problem) else 2 * wide(*given)[0]


def _backward(problem):
    return problem.direction == "backward"


COMMAND = Command(
    "double",
    "Measures doubling.",
    lambda direction, dtype, n: ConvProblem(direction, dtype, n),
    {"n": Option(8, "numbers", 1)},
)
FORMS = [Form("sum", lambda problem, x: x + x), Form("product", lambda problem, x: 2 * x)]
OPERATION = operation("double", FORMS, arguments, reference, COMMAND)
register(ConvProblem, OPERATION)
"""


def test_an_operation_is_one_file(tmp_path, monkeypatch, flags_of, capsys):
    """An operation in the folder is found, measured, recorded and shown."""
    (tmp_path / "double.py").write_text(DOUBLE)
    monkeypatch.setattr(solver, "_OPERATIONS", dict(solver._OPERATIONS))
    monkeypatch.setattr(contrib, "__path__", [*contrib.__path__, str(tmp_path)])
    contrib.import_operations()
    monkeypatch.delitem(sys.modules, "jaxatr.kernels.contrib.double")
    monkeypatch.setattr(tune, "commands", operation.commands)
    assert run("double", flags_of, "-n=3") == 0
    text = capsys.readouterr().out
    for direction in ("forward", "backward"):
        assert f"double {direction} 3 float32 on " in text
    assert text.count("sum          verified") == text.count("product      verified") == 2
    show.main([])
    lines = [line for line in capsys.readouterr().out.splitlines() if " double " in line]
    assert len(lines) == 2 and all(line.endswith(" ms") for line in lines)


def command(*arguments, cache):
    environment = os.environ | {"JAX_PLATFORMS": "cpu", "JAXATR_CACHE": str(cache)}
    return subprocess.run(
        [sys.executable, "-m", "jaxatr", "tune", *arguments],
        cwd=Path(__file__).parents[1],
        env=environment | {"JAXATR_COMPILATION_CACHE": "off"},
        capture_output=True,
        text=True,
        timeout=200,
    )


@pytest.mark.slow
def test_the_command_itself(tmp_path):
    done = command("conv", *SMALL, "--direction=forward", "--noverify", cache=tmp_path)
    assert done.returncode == 0, done.stderr
    (file,) = (tmp_path / "tuned").glob("*.json")
    entry = json.loads(file.read_text())["entries"][KEY]
    assert entry["jax_version"] == jax.__version__ and entry["milliseconds"] > 0


def test_an_unknown_sub_command_is_named(unchecked, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["tune", "convolve"])
    tune.define_flags()
    with pytest.raises(ValueError, match="got 'convolve', wanted one of conv, bn, .*, show first"):
        tune.main(["convolve"])
    with pytest.raises(ValueError, match="no sub-command given, wanted one of"):
        tune.main([])
