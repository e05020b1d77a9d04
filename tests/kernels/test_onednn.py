"""The faster of XLA's and oneDNN's forms of a program: measured, remembered, recorded, refused."""

import json
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxatr import kernels
from jaxatr.kernels import onednn
from jaxatr.kernels.compiled import Compiled

RNG = np.random.default_rng(0)
X = jnp.asarray(RNG.normal(size=(1, 28, 28, 32)), "float32")
VARIABLES = {
    "w": jnp.asarray(RNG.normal(size=(5, 5, 32, 32)) / 28, "float32"),
    "b": jnp.asarray(RNG.normal(size=32), "float32"),
}
SHAPE = "float32[1,28,28,32]"

here = pytest.mark.skipif(
    not onednn.options(), reason="this jaxlib has no oneDNN for XLA:CPU: 0.11 and later have it"
)


def network(variables, x):
    return jax.nn.relu(kernels.convolution(x, variables["w"], padding=2) + variables["b"])


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("JAXATR_CACHE", str(tmp_path))
    monkeypatch.delenv(onednn.VARIABLE, raising=False)
    return tmp_path


@pytest.fixture
def options(monkeypatch):
    """Options that every version knows, so that the choice is tested by all of them."""
    monkeypatch.setattr(onednn, "options", lambda: {"xla_cpu_enable_fast_math": False})


@pytest.fixture
def timed(monkeypatch):
    """Sets the times of the forms, and counts how often they are measured."""
    times, calls = {"xla": 2.0, "onednn": 1.0}, []

    def milliseconds(programs, inputs):
        for program in programs.values():
            jax.block_until_ready(program(*inputs))
        calls.append(1)
        return dict(times)

    monkeypatch.setattr(onednn, "_milliseconds", milliseconds)
    return times, calls


def compiled(**more):
    return Compiled(network, VARIABLES, **{"compete": True, **more})


def agree(program, x=X):
    wanted = np.asarray(network(VARIABLES, x))
    np.testing.assert_allclose(program(x), wanted, rtol=0, atol=1e-5 * np.abs(wanted).max())


@pytest.mark.skipif(bool(onednn.options()), reason="this jaxlib has oneDNN for XLA:CPU")
@pytest.mark.parametrize("mode", ["auto", "always"])
def test_without_onednn_nothing_changes(monkeypatch, mode, own_folder):
    monkeypatch.setenv(onednn.VARIABLE, mode)
    program = compiled()
    agree(program)
    assert program.forms == {} and program.about == "" and not list(own_folder.iterdir())
    assert program.lower(X).as_text() == compiled(compete=False).lower(X).as_text()
    with pytest.raises(ValueError, match="has no oneDNN .* 0.11 and later"):
        onednn.check()


@here
def test_onednn_packs_the_weights_and_adds_the_bias_itself(monkeypatch):
    plan = onednn.Specialised(jax.jit(lambda _, x: network(VARIABLES, x)).trace((), X), ())
    program = jax.jit(plan.function()).lower(X).compile(compiler_options=dict(onednn.options()))
    text = program.as_text()
    assert text.count("__onednn$convolution") == 1 and '"BIAS"' in text and '"RELU"' in text
    monkeypatch.setenv(onednn.VARIABLE, "always")
    program = compiled()
    agree(program)
    assert program.forms[SHAPE].name == "onednn" and "oneDNN" in program.about


@here
def test_really_timed_one_of_both_is_kept():
    program = compiled()
    agree(program)
    form = program.forms[SHAPE]
    assert form.reason == "measured" and form.milliseconds.keys() == {"xla", "onednn"}
    assert all(value > 0 for value in form.milliseconds.values())
    assert (form.name == "onednn") == (
        form.milliseconds["onednn"] < 0.95 * form.milliseconds["xla"]
    )


@pytest.mark.parametrize("seconds, name", [(1.0, "onednn"), (1.95, "xla"), (3.0, "xla")])
def test_the_faster_form_is_kept_and_remembered(options, timed, seconds, name):
    times, calls = timed
    times["onednn"] = seconds
    for reason in ("measured", "remembered"):
        program = compiled()
        agree(program), agree(program)
        assert program.forms == {SHAPE: onednn.Form(name, reason, times)}
    assert len(calls) == 1
    assert str(program.forms[SHAPE]).startswith(f"{name} (remembered: xla 2 ms, onednn")


def test_each_shape_and_each_function_is_chosen_for_itself(options, timed):
    times, calls = timed
    program = compiled()
    agree(program)
    times["onednn"] = 3.0
    two = jnp.repeat(X, 2, axis=0)
    agree(program, two)
    assert [form.name for form in program.forms.values()] == ["onednn", "xla"]
    other = Compiled(lambda variables, x: 2 * network(variables, x), VARIABLES, compete=True)
    other(X)
    assert len(calls) == 3
    # Other weights are the same program.
    again = Compiled(network, jax.tree.map(lambda a: 2 * a, VARIABLES), compete=True)
    np.testing.assert_allclose(again(X), 2 * network(VARIABLES, X), rtol=1e-4, atol=1e-4)
    assert again.forms[SHAPE].reason == "remembered"


def test_little_work_and_large_variables_do_not_compete(options, timed, monkeypatch):
    small = compiled()
    agree(small, X[:, :3, :3])
    assert [form.reason for form in small.forms.values()] == [
        "few convolutions in float32 or bfloat16"
    ]
    monkeypatch.setattr("jaxatr.kernels.compiled.CONSTANTS", 100)
    large = compiled(constants=True)
    agree(large)
    assert large.forms == {} and not timed[1]


def test_a_form_can_be_asked_for(options, timed, monkeypatch):
    times, calls = timed
    times["onednn"] = 3.0
    monkeypatch.setenv(onednn.VARIABLE, "never")
    program = compiled()
    agree(program)
    assert program.forms == {} and not calls
    monkeypatch.setenv(onednn.VARIABLE, "always")
    for x in (X, X[:, :3, :3]):
        program = compiled()
        agree(program, x)
        assert [(form.name, form.reason) for form in program.forms.values()] == [
            ("onednn", "asked for")
        ]
    monkeypatch.setenv(onednn.VARIABLE, "yes")
    with pytest.raises(ValueError, match="JAXATR_ONEDNN: got 'yes', wanted one of auto, always"):
        compiled()


def test_what_does_not_compile_is_refused(timed, monkeypatch):
    monkeypatch.setattr(onednn, "options", lambda: {"xla_cpu_no_such_option": True})
    program = compiled()
    with pytest.warns(UserWarning, match="form of a program cannot be compiled: .*no_such"):
        agree(program)
    assert program.forms[SHAPE].name == "xla" and "no_such" in program.forms[SHAPE].reason
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        agree(program)
    assert not timed[1]


@pytest.mark.parametrize("wrong", [lambda y: y * 1.001, lambda y: y.at[0, 0, 0, 0].set(jnp.nan)])
def test_what_differs_is_refused_and_not_remembered(options, timed, monkeypatch, own_folder, wrong):
    function = onednn.Specialised.function
    monkeypatch.setattr(
        onednn.Specialised, "function", lambda self: lambda x: wrong(function(self)(x))
    )
    for mode in ("auto", "always"):
        monkeypatch.setenv(onednn.VARIABLE, mode)
        program = compiled()
        with pytest.warns(UserWarning, match="oneDNN's form of a program differs by .*, allowed"):
            agree(program)
        assert program.forms[SHAPE].name == "xla" and "differs by" in program.forms[SHAPE].reason
    assert not list(own_folder.rglob("*.json")) and not timed[1]


@pytest.mark.parametrize(
    "dtype, wrong, refused",
    [("float32", 1e-5, False), ("float32", 3e-4, True), ("bfloat16", 0.05, False)]
    + [("bfloat16", 0.4, True)],
)
def test_rounding_is_no_difference(options, timed, monkeypatch, dtype, wrong, refused):
    def rounded(variables, x):
        y = network({"w": variables["w"].astype(dtype), "b": 0.0}, x.astype(dtype))
        return y, y.astype("float16")  # float16 has steps of a thousandth

    def off(function):
        return lambda *inputs: jax.tree.map(
            lambda y: (y.astype("float32") * (1 + wrong)).astype(y.dtype), function(*inputs)
        )

    function = onednn.Specialised.function
    monkeypatch.setattr(onednn.Specialised, "function", lambda self: off(function(self)))
    program = Compiled(rounded, VARIABLES, compete=True)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        program(X)
    assert [form.name for form in program.forms.values()] == ["xla" if refused else "onednn"]
    assert ["differs by" in str(one.message) for one in caught] == [True] * refused


def test_a_damaged_memory_is_named_and_measured_anew(options, timed, own_folder):
    agree(compiled())
    (path,) = own_folder.rglob("*.json")
    assert json.loads(path.read_text()) == timed[0]
    path.write_text('{"xla": "fast"}')
    program = compiled()
    with pytest.warns(UserWarning, match=rf"{path.name} cannot be read and is not used"):
        agree(program)
    assert program.forms[SHAPE].reason == "measured" and json.loads(path.read_text()) == timed[0]


def test_a_folder_that_cannot_be_written_costs_the_memory_alone(options, timed, own_folder):
    (own_folder / "onednn").write_text("a file")
    with pytest.warns(UserWarning, match="the times of a program's forms are not kept"):
        program = compiled()
        agree(program)
    assert program.forms[SHAPE].name == "onednn"


@here
def test_its_programs_stay_out_of_the_persistent_cache(monkeypatch, tmp_path, timed):
    from jax.experimental.compilation_cache import compilation_cache

    monkeypatch.setenv(onednn.VARIABLE, "always")
    before = jax.config.values["jax_persistent_cache_min_compile_time_secs"]
    folder = tmp_path / "xla"
    settings = {"jax_compilation_cache_dir": str(folder), "jax_enable_compilation_cache": True}
    settings["jax_persistent_cache_min_compile_time_secs"] = 0.0
    kept = {name: jax.config.values[name] for name in settings}
    try:
        for name, value in settings.items():
            jax.config.update(name, value)
        compilation_cache.reset_cache()
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            agree(compiled())
        assert jax.config.values["jax_persistent_cache_min_compile_time_secs"] == 0.0
        stored = [path.name for path in folder.iterdir()]
        assert any("network" in name for name in stored)  # XLA's form
        assert not any("onednn" in name for name in stored)
    finally:
        for name, value in kept.items():
            jax.config.update(name, value)
        compilation_cache.reset_cache()
    assert jax.config.values["jax_persistent_cache_min_compile_time_secs"] == before
