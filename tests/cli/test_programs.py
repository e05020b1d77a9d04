"""Commands for one chip compile few programs: every program costs time at each start."""

import functools

import jax
import pytest
from jax import monitoring

from jaxatr.cli import explain, predict


@pytest.fixture
def programs():
    """Lists the programs that are compiled, or read from the cache, from now on."""
    found = []

    def heard(event, seconds, fun_name="", **_):
        if event == "/jax/core/compile/backend_compile_duration":
            found.append(fun_name)

    jax.clear_caches()  # as in a new process
    monitoring.register_event_duration_secs_listener(heard)
    yield found
    monitoring.unregister_event_duration_listener(heard)


@pytest.fixture
def chip(earlier):
    return sorted((earlier / "chips" / "test").glob("*/*.png"))[0]


# No program converts an array, or moves it to the device.
@pytest.mark.slow
def test_a_prediction_is_the_network_and_the_decision(earlier, chip, flags_of, programs):
    arguments = flags_of(predict, f"--workdir={earlier / 'open_set'}", "--score=cbc", chip)
    assert predict.main(arguments) == 0
    assert 1 <= len(programs) <= 2, programs  # the network, CBC


@pytest.mark.slow
def test_a_search_adds_a_program_for_the_gallery(trained_run, chips, flags_of, programs):
    chip = sorted((chips / "test").glob("*/*.png"))[0]
    given = functools.partial(
        flags_of, predict, f"--workdir={trained_run}", "--score=spatial_stage2"
    )
    assert predict.main(given(chip)) == 0  # it may fit the score first
    jax.clear_caches()
    programs.clear()
    assert predict.main(given(chip)) == 0
    assert 1 <= len(programs) <= 3, programs  # the network, the query's length, the search


@pytest.mark.slow
def test_an_explanation_is_four_programs_and_a_decision(
    earlier, chip, flags_of, programs, tmp_path
):
    run = f"--workdir={earlier / 'open_set'}"
    arguments = flags_of(explain, run, f"--out={tmp_path}", "--method=grad_cam", chip)
    assert explain.main(arguments) == 0
    # The class, the map, its scale, insertion and deletion; the network and its decision.
    assert 4 <= len(programs) <= 8, programs
