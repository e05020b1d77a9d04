"""The fields that experiments set exist: no other test runs the experiments."""

import argparse
import importlib.util
import json
import os
import subprocess
import sys
import time
import types
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

from jaxatr.kernels.device import Device
from jaxatr.kernels.ops.convolution.problem import ConvProblem
from jaxatr.kernels.solver import Choice

EXPERIMENTS = Path(__file__).parents[1] / "experiments"
NAN = "error: the loss of step 16 (phase 'embedding') is nan"
CONFIGS = EXPERIMENTS.parent / "configs"


def load(path: Path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    added = [str(path.parent), str(EXPERIMENTS.parent)]
    sys.path[:0] = added
    try:
        spec.loader.exec_module(module)
    finally:
        del sys.path[: len(added)]
    return module


def check(named, overrides):
    file, variant = named.split(":")
    config = load(CONFIGS / file).get_config(variant)
    for field, value in overrides.items():
        *groups, name = field.split(".")
        part = config
        for group in groups:
            part = part[group]
        assert name in part, field
        if not isinstance(value, str):
            part[name] = value  # raises where the type differs


def test_the_named_runs_set_fields_that_exist():
    runs = load(EXPERIMENTS / "open_set_atr" / "run.py").all_runs()
    assert len({run.name for run in runs}) == len(runs)
    for run in runs:
        check(run.config, run.overrides)


def test_the_variant_for_cifar10_is_the_recipe_that_was_recorded():
    runs = load(EXPERIMENTS / "open_set_atr" / "run.py").cifar10_long()
    configs = load(CONFIGS / "cbc.py")
    config, variant = configs.get_config("cifar10"), configs.get_config("cifar10_strong")
    for field, value in runs[-1].overrides.items():
        group, _, name = field.rpartition(".")
        part = config[group] if group else config
        part[name] = value
    variant.model.dtype = config.model.dtype  # of a GPU
    variant.open_set.split, variant.seed = config.open_set.split, config.seed
    assert variant.to_dict() == config.to_dict()


def test_the_runs_that_enrolment_is_compared_with_set_fields_that_exist(tmp_path, monkeypatch):
    experiment = load(EXPERIMENTS / "enrolment" / "run.py")
    runs = experiment.all_runs()
    for run in runs:
        check(run.config, run.overrides)
    for base in experiment.BASES:
        config = load(CONFIGS / base.config.split(":")[0]).get_config(base.config.split(":")[1])
        epochs = base.overrides.get("train.epochs", config.train.epochs)
        assert (epochs, config.optimizer.learning_rate) == (base.epochs, base.rate)
    tables = load(EXPERIMENTS / "enrolment" / "tables.py")
    mstar = experiment.BASES[0]
    row = {"class": "2S1", "shots": 5, "draw": 0, "before": {"accuracy": 0.9, "auroc": 0.8}}
    own = {"enrolled": {"accuracy": 0.5}, "after": {"accuracy": 0.7, "auroc": 0.6}}
    better = {"enrolled": {"accuracy": 0.75}, "after": {"unknown_accepted": 0.3}}
    rows = [{"score": "template"} | row | own, {"score": "consensus"} | row | better]
    recorded = {"enrolled-mstar": {"rows": rows}}
    enrolled = {"classes": {"2S1": {"accuracy": 0.25}}, "own": {"after": {}}}
    evaluation = {"decides": "cbc", "enrolled": enrolled}
    recorded["scratch-mstar-2S1-5"] = {"evaluation": evaluation}
    monkeypatch.setattr(tables, "recorded", lambda _, name: recorded.get(name))
    cells = {tuple(line.split(" | ")[:3]): line for line in tables.of_base(mstar)}
    assert "90.0 (1) | not run | 80.0 (1)" in cells["| before", "template", "0"]
    assert "50.0 (1) | 70.0 (1) | not run | 60.0 (1)" in cells["| enrolled", "template", "5"]
    assert "75.0 (1) | not run | 30.0 (1)" in cells["| enrolled", "consensus", "5"]
    assert "25.0 (1) | not run" in cells["| from scratch", "cbc", "5"]
    assert "not run" in cells["| enrolled", "template", "20"]


def test_the_rows_of_the_quadruplet_table_set_fields_that_exist():
    experiment = load(EXPERIMENTS / "quadruplet_selection" / "run.py")
    runs = experiment.tuning()
    for run in runs:
        check(run.config, run.overrides)
    tables = load(EXPERIMENTS / "quadruplet_selection" / "tables.py")
    assert set(tables.NAMES) == set(tables.PAPER) == set(experiment.ROWS)
    for run in (*experiment.frozen(), *experiment.final()):
        check(run.config, run.overrides)


def test_a_learning_rate_that_diverges_is_a_result(tmp_path, monkeypatch):
    experiment = load(EXPERIMENTS / "quadruplet_selection" / "run.py")
    monkeypatch.setattr(experiment, "RESULTS", tmp_path / "results")
    (tmp_path / "results").mkdir()
    carry_out = sys.modules["experiments.named_runs"].carry_out
    own = tmp_path / "a"
    own.mkdir()
    (own / "record.json").write_text(json.dumps({"target": str(tmp_path / "b")}))

    def said(last):
        return lambda *_: [[sys.executable, "-c", f"import sys; print({last!r}); sys.exit(2)"]]

    run = experiment.Run("a", "quadruplet.py:mstar", {}, may_diverge=True)
    for other, last in ((run, "error: no such file"), (run._replace(may_diverge=False), NAN)):
        monkeypatch.setattr(experiment.Run, "commands", said(last))
        with pytest.raises(subprocess.CalledProcessError):
            carry_out(other, tmp_path / "results", tmp_path, tmp_path)
    monkeypatch.setattr(experiment.Run, "commands", said(NAN))
    carry_out(run, tmp_path / "results", tmp_path, tmp_path)
    assert run.done(tmp_path / "results")
    result = json.loads((tmp_path / "results" / "a.json").read_text())
    assert result["diverged"] == "the loss of step 16 (phase 'embedding') is nan"
    assert result["record"] == {"target": "{runs}/b"}  # and not where that lies here

    for rate, recall in zip(experiment.SETS["mstar"]["rates"], (0.5, 0.7, 0.7, None), strict=True):
        assert experiment.chosen_rate("mstar", "n_pairs") is None
        found = {"evaluation": {"retrieval": {"new": {"recall_at_1": recall}}}}
        path = tmp_path / "results" / f"tune-mstar-n_pairs-{rate:g}.json"
        path.write_text(json.dumps(found if recall else result))
    assert experiment.chosen_rate("mstar", "n_pairs") == 3e-3


def test_the_runs_of_the_distillation_tables_set_fields_that_exist(tmp_path, monkeypatch):
    experiment = load(EXPERIMENTS / "attentive_distillation" / "run.py")
    assert [run.name for run in experiment.targets()] == [
        "target-simulated",
        "target-mstar",
        "target-cifar100",
        "target-cifar100-pretrained",
    ]
    monkeypatch.setattr(experiment, "RESULTS", tmp_path)
    assert experiment.tuning() == [] and experiment.final() == []
    empty = {"groups": {}}
    for run in experiment.targets():
        (tmp_path / f"{run.name}.json").write_text(
            json.dumps({"overrides": dict(run.overrides), "evaluation": empty})
        )
    tuning = experiment.tuning()
    ways = sum(len(experiment.ways(name)) for name in experiment.TARGETS)
    assert len({run.name for run in tuning}) == ways > 3 * len(experiment.WAYS)
    for number, run in enumerate(tuning):
        result = {
            "overrides": dict(run.overrides),
            "evaluation": empty,
            "validation": {"insertion": number / 100, "deletion": 0.2},
        }
        (tmp_path / f"{run.name}.json").write_text(json.dumps(result))
    last = list(experiment.WAYS)[-1]
    assert experiment.chosen_way("mstar") is None and experiment.final() == []
    other = {"insertion": 0.5, "deletion": 0.25}
    for name in experiment.TARGETS:
        rivals = {"validation": {"grad_cam": other, "rise": other}}
        (tmp_path / f"rivals-{name}.json").write_text(json.dumps(rivals))
    assert experiment.chosen_way("mstar") == last
    final = experiment.final()
    # The paper's two λ and the chosen way, each three times; the last data set has one λ.
    assert [run.name for run in final if run.methods] == [
        f"{name}-paper-0" for name in experiment.TARGETS
    ]
    for run in (*experiment.targets(), *tuning, *final):
        check(run.config, run.overrides)
    (command, *_) = final[0].commands(tmp_path / final[0].name, tmp_path)
    assert f"--config.distillation.target={tmp_path}/target-simulated" in command


def test_every_way_to_train_a_surrogate_has_the_same_budget():
    experiment = load(EXPERIMENTS / "attentive_distillation" / "run.py")
    for name, epochs in experiment.EPOCHS.items():
        for way in set(experiment.WAYS) & set(experiment.ways(name)):
            found = experiment._run("one", name, way, 0).overrides
            later = 0 if found.get("distillation.end_to_end") else found["explanation.epochs"]
            assert found["train.epochs"] + later == sum(epochs), (name, way)
    per_pixel = experiment.WAYS["per-pixel"]
    assert per_pixel["distillation.l1_weight"] == pytest.approx(1e-5 * 224**2)


def test_the_way_is_chosen_that_meets_most_aims_and_then_the_least_aim_by_most(
    tmp_path, monkeypatch
):
    experiment = load(EXPERIMENTS / "attentive_distillation" / "run.py")
    rivals = {
        "grad_cam": {"insertion": 0.6, "deletion": 0.3},
        "rise": {"insertion": 0.7, "deletion": 0.2},
    }
    found = experiment.margins({"insertion": 0.55, "deletion": 0.28}, rivals)
    assert found == pytest.approx((-0.05, 0.02, -0.12, -0.05))

    monkeypatch.setattr(experiment, "RESULTS", tmp_path)
    monkeypatch.setattr(experiment, "WAYS", {"a": {}, "b": {}, "c": {}})
    (tmp_path / "rivals-mstar.json").write_text(json.dumps({"validation": rivals}))

    def chosen(**measures):
        for way, (insertion, deletion) in measures.items():
            own = {"validation": {"insertion": insertion, "deletion": deletion}}
            (tmp_path / f"tune-mstar-{way}.json").write_text(json.dumps(own))
        return experiment.chosen_way("mstar")

    # One aim; three; and three, of which one is missed by more.
    assert chosen(a=(0.66, 0.31), b=(0.64, 0.22), c=(0.63, 0.1)) == "b"
    # All four, the last by most.
    assert chosen(a=(0.68, 0.2), b=(0.68, 0.22), c=(0.69, 0.21)) == "c"


def test_the_tables_of_distillation_show_the_records(tmp_path, monkeypatch):
    tables = load(EXPERIMENTS / "attentive_distillation" / "tables.py")
    experiment = sys.modules[tables.chosen_way.__module__]
    for module in (tables, experiment):
        monkeypatch.setattr(module, "RESULTS", tmp_path)
    monkeypatch.setattr(tables, "SPEED", tmp_path / "speed" / "speed.json")
    page = tables.page()
    assert "not run" in page

    def judged(insertion, deletion, intensity):
        return {"insertion": insertion, "deletion": deletion, "mean_intensity": intensity}

    def write(name, **result):
        (tmp_path / f"{name}.json").write_text(json.dumps({"record": {}, **result}))

    for number, way in enumerate(experiment.WAYS):
        figures = {**judged(0.5 - number / 100, 0.2, 0.25), "fidelity": 0.3}
        figures["student_accuracy"] = 0.75
        write(f"tune-mstar-{way}", validation=figures)
    validated = {"grad_cam": judged(0.6, 0.19, 0.375), "rise": judged(0.7, 0.195, 0.4375)}
    for own in validated.values():
        own["fidelity"] = own["insertion"] - own["deletion"]
    write("rivals-mstar", validation=validated)
    for seed, insertion in enumerate((0.61, 0.63, 0.65)):
        methods = {"surrogate": judged(insertion, 0.2, 0.125)}
        if not seed:
            methods |= {"grad_cam": judged(0.6, 0.19, 0.375), "rise": judged(0.7, 0.195, 0.4375)}
        found = {"target_accuracy": 0.875, "student_accuracy": 0.75, "agreement": 0.8125}
        samples = {"distillation.rise_samples": 1234, "distillation.lime_samples": 567}
        write(
            f"mstar-paper-{seed}",
            overrides=samples,
            evaluation={"explanation": {**found, "methods": methods}},
        )
    tables.SPEED.parent.mkdir()
    times = {"forward pass": (2.0, 1.0), "surrogate": (6.0, 3.0), "grad_cam": (3.0, 1.5)}
    rows = {name: {"milliseconds": ms, "passes": n} for name, (ms, n) in times.items()}
    rows["rise"] = {"milliseconds": 16000.0, "passes": 8000.0, "timed_turns": 100, "turns": 8000}
    record = {"device": "a clock", "batch": 8, "sizes": {"small": rows}}
    tables.SPEED.write_text(json.dumps(record))
    page = tables.page()
    assert "mstar, insertion: no worse than Grad-CAM (+0.030) and not within 0.03 of RISE" in page
    assert "mstar, deletion: worse than Grad-CAM (-0.010) and within 0.03 of RISE (-0.005)" in page
    aim = "small: the surrogate takes at most 3.5 forward passes (3.00) and more than 1.5 times"
    assert f"{aim} Grad-CAM's time (2.00)." in page
    assert "| small | surrogate | 6.00 | 167 | 3.00 |" in page
    assert "| small | RISE, N = 8000 | 16000.00 | 0.0625 | 8000.00 |" in page
    assert "| mstar | 0.875 | 0.750 ± 0.000 (3) |" in page
    assert "| surrogate, λ 1e-5 (chosen) | 0.630 ± 0.020 (3) |" in page
    assert "| RISE, N = 1234 | 0.700 | 0.195 |" in page and "| LIME, N = 567 | not run |" in page
    assert "| RISE | not run | 0.438 | not run |" in page  # mean intensity
    assert "| paper | 0.500 | 0.200 | -0.170 | 0.300 | 0.250 | 0.750 |" in page
    assert "| Grad-CAM | 0.600 | 0.190 |  | 0.410 | 0.375 |  |" in page
    assert "| LIME | deletion | 0.1217 | 0.1287 | 0.1345 | 0.1508 | 0.1935 | 0.3009 |" in page


def test_the_runs_of_the_onnx_transfer_set_fields_that_exist(tmp_path, monkeypatch):
    experiment = load(EXPERIMENTS / "onnx" / "transfer.py")
    monkeypatch.setattr(experiment, "RESULTS", tmp_path)
    (base,) = experiment.all_runs()
    *_, convert = base.commands(tmp_path / "base", tmp_path)
    assert f"--out={tmp_path}/base.onnx" in convert
    result = {"overrides": {}, "evaluation": {"groups": {}}}
    (tmp_path / "base.json").write_text(json.dumps(result))
    assert len(experiment.all_runs()) == 1, "that was another network"
    result["overrides"] = dict(base.overrides)
    (tmp_path / "base.json").write_text(json.dumps(result))
    runs = experiment.all_runs()
    for run in runs:
        check(run.config, run.overrides)
    (tmp_path / "base.json").unlink()
    assert "not run" in experiment.page()


def test_the_runs_of_tracks_set_fields_that_exist(tmp_path, monkeypatch):
    runs = load(EXPERIMENTS / "track" / "run.py").all_runs()
    for run in runs:
        check(run.config, run.overrides)
    tables = load(EXPERIMENTS / "track" / "tables.py")
    monkeypatch.setattr(tables, "RESULTS", tmp_path)
    assert "75.0" not in tables.page()
    figures = {"auroc": 0.75, "oscr": 0.5}
    own = {"closed_accuracy": 0.9, "scores": dict.fromkeys(("softmax", "mls", "cbc"), figures)}
    groups = dict.fromkeys(("all", "mean over chips", "single chips"), own)
    result = {"evaluation": {"groups": groups}, "record": {}}
    (tmp_path / "lstm-1.json").write_text(json.dumps(result))
    page = tables.page()
    assert "75.0" in page and "not run" in page and "+0.0" in page


def test_runs_of_other_settings_are_named(tmp_path):
    records, named = load(EXPERIMENTS / "records.py"), load(EXPERIMENTS / "named_runs.py")
    runs = [named.Run(name, "cbc.py", {"seed": 0, "augment.shift": (1, 2)}) for name in "abcd"]
    for name, overrides in (
        ("a", {"seed": 0, "augment.shift": [1, 2]}),
        ("b", {"seed": 0}),
        ("c", {"seed": 1, "augment.shift": [1, 2], "model.width": 8}),
    ):
        (tmp_path / f"{name}.json").write_text(json.dumps({"overrides": overrides}))
    assert [run.name for run in runs if run.result(tmp_path)] == ["a"]
    assert records.other_settings([runs[0], runs[3]], tmp_path) == []
    *lines, last = records.other_settings(runs, tmp_path)
    assert last == "" and " ".join(lines) == (
        "Recorded with other settings than the present ones: b (augment.shift); "
        "c (model.width, seed)."
    )


def test_flags_of_named_runs_are_checked(tmp_path, monkeypatch, capsys):
    named = load(EXPERIMENTS / "named_runs.py")
    for flag, message in (("--jobs=0", "--jobs: got 0"), ("--only=b", "--only: no run's name")):
        monkeypatch.setattr(sys, "argv", ["run", flag])
        with pytest.raises(SystemExit):
            named.main("Trains.", [named.Run("a", "cbc.py", {})], tmp_path, "runs")
        assert message in capsys.readouterr().err


def test_the_table_of_calibrations_states_what_changes(tmp_path, monkeypatch):
    deciding = load(EXPERIMENTS / "open_set_atr" / "deciding.py")
    monkeypatch.setattr(deciding, "RESULTS", tmp_path)
    assert deciding.calibrated() == "not run"

    def row(score, chips, draw, accepted):
        before = {"known_accepted": 0.5, "unknown_accepted": 0.0, "open_accuracy": 0.7}
        after = {"known_accepted": accepted, "unknown_accepted": 0.1, "open_accuracy": 0.8}
        return {"score": score, "chips": chips, "draw": draw, "before": before, "after": after}

    rows = [row("template", 5, 0, 0.8), row("template", 10, 0, 0.9), row("template", 10, 1, 1.0)]
    for name in ("mstar-auto-0-0", "mstar-fresh-100"):  # another kind of run is not mixed in
        own = rows if name == "mstar-auto-0-0" else [row("template", 10, 0, 0.1)]
        (tmp_path / f"field-{name}.json").write_text(json.dumps({"rows": own}))
    text = deciding.calibrated()
    assert text.startswith("1 of 9 runs, 2 draws of chips for each;")
    assert "With 10 chips of each class, the decision by `template` changes: known chips" in text
    assert "known chips accepted from 50 to 95 %, unknown chips accepted from 0 to 10 %" in text
    assert "| template | none | 50.0 ± 0.0 | 0.0 ± 0.0 | 70.0 ± 0.0 |  |  |" in text
    assert "| template | 5 | 80.0 | 10.0 | 80.0 |  |  |" in text


def test_a_prefix_without_a_run_is_an_error(monkeypatch, capsys):
    for path in ("open_set_atr/field.py", "enrolment/enrol.py"):
        monkeypatch.setattr(sys, "argv", [path, "--only=msatr"])
        with pytest.raises(SystemExit, match="2"):
            load(EXPERIMENTS / path).main()
        assert "name begins with 'msatr'" in capsys.readouterr().err


def test_explanations_are_extrapolated_to_the_methods_defaults():
    turns = benchmark("explanations").turns(64)
    full = {name: one.full for name, one in turns.items()}
    assert full == {
        "rise": 8000,
        "lime": 1000,
        "occlusion": 15**2,
        "integrated_gradients": 50,
        "smoothgrad": 25,
    }


def test_a_misspelt_part_of_the_retrieval_benchmark_measures_nothing(tmp_path, monkeypatch, capsys):
    arguments = ["retrieval", "selecton", f"--output={tmp_path / 'out.json'}"]
    monkeypatch.setattr(sys, "argv", arguments)
    with pytest.raises(SystemExit, match="2"):
        benchmark("retrieval").main()
    assert "got 'selecton', wanted selection or measures" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_parts_of_the_compiled_record_are_of_one_device(tmp_path, capsys):
    compiled = load(EXPERIMENTS / "kernels" / "compiled.py")
    path = tmp_path / "compiled.json"
    text = json.dumps({"jax": jax.__version__, "gpu": "h100", "tpu": "v5e", "hopper": []})
    path.write_text(text)
    with pytest.raises(SystemExit, match="2"):
        compiled.main([f"--output={tmp_path}", "--parts", "plans", "--gpu=h200"])
    assert "compiled.json has gpu h100, this is h200" in capsys.readouterr().err
    assert path.read_text() == text


def test_the_end_to_end_benchmark_sets_fields_that_exist():
    check(
        "cbc.py:default",
        load(EXPERIMENTS / "benchmarks" / "end_to_end.py").overrides(5, 32, "folder"),
    )


def benchmark(name):
    return load(EXPERIMENTS / "benchmarks" / f"{name}.py")


def test_the_needs_of_a_cluster_follow_from_a_rate():
    batch = benchmark("batch")
    found = batch.paper(100, 2e3, 50, price=0.36, chips=10**6)
    assert found["seconds"] == pytest.approx(10**6 / 9000)
    assert found["money"] == pytest.approx(100 * found["seconds"] / 3600 * 0.36)
    assert (found["GB read"], found["GB written"], found["parts"]) == (2, 0.05, 100)
    samples = [{"seconds": n, "parts": n, "MB": {"driver": 200, "worker 1": 300}} for n in range(9)]
    rates = {"plain command": {"chips/s": 100, "start": 9}, "ray": {"chips/s": 150, "start": 20}}
    record = {"device": "cpu", "cores": 2, "jax": "1", "bytes a chip": 2000, "chips": 10, "long": 8}
    page = batch.page(record | {"price": 0.1, "rates": rates, "memory": samples, "paper": [found]})
    assert "| ray | 150 | 1.50 | 20 |" in page and "| 8 | 200 | 300 |" in page
    assert "| 1,000,000 | 111 | 2.0 | 0.05 | 18 | 100 | 3.1 | 1.11 |" in page


def test_the_start_of_a_process_is_measured_from_outside():
    start_up = benchmark("start_up")
    busy = start_up.took(["-c", "sum(range(2 * 10**6))"], os.environ)
    idle = start_up.took(["-c", "import time; time.sleep(0.2)"], os.environ)
    assert 0 < busy.cpu and 0.2 < idle.wall and idle.cpu < idle.wall
    with pytest.raises(RuntimeError, match="no_such_module"):
        start_up.took(["-c", "import no_such_module"], os.environ)
    rows = start_up.commands(Path("run"), Path("chip.png"), Path("scratch"))
    assert start_up.AIMS.keys() < rows.keys()
    record = {"device": "cpu", "cores": 2, "versions": {"jax": "1"}, "load_at_start": 0.0}
    seconds = {"import jaxatr": [busy, idle], "import jax": [start_up.Seconds(1.0, 0.5)]}
    page = start_up.page(record | {"turns": 2, "rows": start_up.summary(seconds)})
    assert "| import jax | 1.00 | 0.50 |  |" in page and page.count("| 0.5 |") == 1


def test_a_benchmark_that_was_cut_goes_on_where_it_was(tmp_path):
    recording, about = benchmark("recording"), {"device": "d", "dtype": "float32"}
    first = recording.Recording(tmp_path / "r", about)
    first.add({"problem": "a"}, {"milliseconds": {"auto": 1.0}, "failed": {}})
    first.add({"problem": "b"}, {"milliseconds": {}, "failed": {"problem": "no\n memory"}})
    again = recording.Recording(tmp_path / "r", about)
    assert again.has({"problem": "a"}) and not again.has({"problem": "b"})
    assert recording.failures(again.rows) == ["- failed: b: problem: no memory"]
    again.add({"problem": "b"}, {"milliseconds": {"auto": 2.0}})
    rows = json.loads((tmp_path / "r.json").read_text())["rows"]
    assert [row["milliseconds"]["auto"] for row in rows] == [1.0, 2.0]
    with pytest.raises(ValueError, match="dtype: recorded with 'float32', this run has 'float16'"):
        recording.Recording(tmp_path / "r", about | {"dtype": "float16"})


def test_contenders_take_turns_in_either_order():
    turns = []
    clocks = {name: lambda name=name: turns.append(name) or len(turns) for name in "ab"}
    medians = benchmark("alternating").in_turn(clocks, 2, warm=False)
    assert turns == ["b", "a", "a", "b"] and medians == {"a": 2.5, "b": 2.5}


def test_a_turn_of_short_runs_is_filled_up():
    clocks = benchmark("clock")
    runs = []

    def clock(seconds):
        return lambda: runs.append(seconds) or seconds[len(runs) % len(seconds)]

    assert clocks.several(clock([5e-3, 9e-3, 9e-3]))() == 9e-3 and len(runs) == 3
    runs.clear()
    assert clocks.several(clock([1.0]))() == 1.0 and len(runs) == 1
    runs.clear()
    assert clocks.several(clock([1e-6]))() == 1e-6 and len(runs) == 500


def test_a_contender_runs_for_a_while_before_it_is_timed(monkeypatch):
    alternating = benchmark("alternating")
    monkeypatch.setattr(alternating, "WARM", 0.02)
    started = time.monotonic()
    runs = []
    medians = alternating.in_turn({"a": lambda: runs.append(0) or len(runs)}, 1)
    assert time.monotonic() - started > 0.02 and medians["a"] == len(runs) > 1


def test_a_hopeless_contender_is_out_after_three_rounds():
    turns = []
    seconds = {"near": 1.5, "far": 4.5, "best": 1.0}
    clocks = {name: lambda name=name: turns.append(name) or seconds[name] for name in seconds}
    medians = benchmark("alternating").in_turn(clocks, 5, warm=False, hopeless=4.0)
    assert medians == seconds
    assert {name: turns.count(name) for name in seconds} == {"near": 5, "far": 3, "best": 5}


def test_one_program_under_two_names_is_one_contender():
    def times(x, by):
        return by * x

    three, ones = (jnp.arange(3.0),), (jnp.ones(3),)
    runs = benchmark("contest").compiled(
        {
            "auto": (partial(times, by=2), three),
            "chosen": (partial(times, by=2), three),
            "slower": (partial(times, by=3), three),
            "elsewhere": (partial(times, by=2), ones),
        }
    )
    assert runs["auto"] is runs["chosen"] and len(set(runs.values())) == 3
    assert [float(run()[2]) for run in runs.values()] == [4, 4, 6, 2]


def test_forms_that_find_saw_far_behind_are_not_timed_again():
    contest = benchmark("contest")
    seen = [("taps", 1.0), ("matmul", 9.0), ("matmul", 3.0), ("fft", 4.1), ("xla", 50.0)]
    found = [contest.kernels.Performance(name, (), value, 0) for name, value in seen]
    assert contest.hopeless(found) == {"fft": 4.1}


def test_forms_that_compile_to_the_same_are_one_contender():
    ab = jnp.ones((2, 3, 4)), jnp.ones((4, 5))
    runs = benchmark("contest").compiled(
        {
            "auto": (lambda a, b: (a.reshape(6, 4) @ b).reshape(2, 3, 5), ab),
            "named": (lambda x, y: jnp.tensordot(x.reshape(-1, 4), y, 1).reshape(2, 3, -1), ab),
            "other": (lambda a, b: (a.reshape(6, 4) @ b + 1).reshape(2, 3, 5), ab),
        }
    )
    assert len(set(runs.values())) == 2 and runs["auto"] is runs["named"]


def test_who_stays_takes_every_turn():
    turns = []
    clocks = {"far": lambda: turns.append(0) or 50.0, "best": lambda: 1.0}
    medians = benchmark("alternating").in_turn(clocks, 5, warm=False, hopeless=4.0, stay=("far",))
    assert len(turns) == 5 and medians == {"far": 50.0, "best": 1.0}


def test_rounds_end_with_their_budget_but_three_are_run():
    turns = []
    clocks = {"one": lambda: turns.append(1) or 1.0, "two": lambda: turns.append(2) or 2.0}
    in_turn = benchmark("alternating").in_turn
    assert in_turn(clocks, 5, warm=False, budget=0.0) == {"one": 1.0, "two": 2.0}
    assert turns == [2, 1, 1, 2, 2, 1]


def test_the_kernels_table_states_each_loss_and_knows_the_networks_layers():
    def row(layer, auto, torch):
        times = {"auto": auto, "xla": 24.0, "matmul": 2.0, "torch": torch}
        return {"layer": layer, "problem": layer, "chosen": "matmul", "milliseconds": times}

    rows = [row("deepbench resnet", 2.0, 1.0), row("resnet18 stage 1 32px", 2.5, 10.0)]
    text = "\n".join(benchmark("kernels").summary([*rows, row("stem 32px", 4.0, 4.0)]))
    assert "ResNet's layers: 2.000, least 1.000, of 2" in text
    assert "XLA's form: 7.589, least 6.000, of 2; its cliffs: 12.000" in text
    assert "losses to torch, below 1: 1\n  - 0.50: deepbench resnet, matmul" in text
    assert "losses to best, below 0.97: 2\n  - 0.50: stem 32px, matmul\n  - 0.80: " in text
    rows[1]["again"] = {"auto": 2.0, "xla": 24.0, "matmul": 1.9}
    text = "\n".join(benchmark("kernels").summary([*rows, row("stem 32px", 4.0, 4.0)]))
    assert "  - 0.80, again 0.95: resnet18" in text
    assert (
        "below 0.9 of the best single form: 2; timed once more: 1, of them again below: 0" in text
    )


def test_a_choice_that_seemed_slow_is_timed_once_more(tmp_path, monkeypatch):
    contest, kernels = benchmark("contest"), benchmark("kernels")
    peer = types.SimpleNamespace(take=lambda *given: None, seconds=lambda: 1e-3, close=lambda: None)
    monkeypatch.setattr(contest, "Torch", lambda: peer)
    monkeypatch.setattr(contest, "version", lambda name: "0")  # of peers that need not be here
    monkeypatch.setattr(contest, "kept", lambda *given: {})
    monkeypatch.setattr(contest, "reached", lambda *given: {})
    monkeypatch.setenv("JAXATR_CACHE", str(tmp_path))
    problem = ConvProblem(
        "forward", (2, 4, 4, 2), (1, 1, 2, 2), (1, 1), ((0, 0), (0, 0)), (1, 1), 1, "float32"
    )
    options = argparse.Namespace(
        dtype="float32", rounds=1, seconds=0.1, budget=0.1, again=None,
        database=tmp_path / "database", output=tmp_path / "r",
    )  # fmt: skip
    listed = [({"layer": "one", "problem": "p"}, problem)]
    held = contest.Contest(kernels.OPERATION, kernels.programs, lambda problem: (1, 1))

    def row(**changes):
        for name, value in changes.items():
            setattr(options, name, value)
        return held.hold("kernels", listed, options).rows[0]

    first = row()
    assert first["milliseconds"]["torch"] == 1 and "again" not in row(again=0.0)
    record = json.loads((tmp_path / "r.json").read_text())
    record["rows"][0]["milliseconds"]["auto"] = 1e3
    (tmp_path / "r.json").write_text(json.dumps(record))
    again = row(again=0.9)
    assert again["milliseconds"]["auto"] == 1e3 and again["chosen"] == first["chosen"]
    assert set(again["again"]) == {"auto", *contest.forms(first)} and again["again"]["auto"] < 1e3
    assert row(again=0.9) == again


def test_the_recorded_choice_ships_unless_a_better_one_is_known(capsys):
    contest, ship = benchmark("contest"), benchmark("ship")
    choices = [Choice("xla"), Choice("split", (("pieces", 4),)), Choice("turned", (("side", "x"),))]
    assert [contest.read(contest.written(one)) for one in choices] == choices
    first = "resnet18 stage 1 64px", "{} 32x16x16x64 3x3x64x64 s1x1 p1.1.1.1 d1x1 g1 float32"
    later = "resnet18 stage 2 64px", "{} 32x8x8x128 3x3x128x128 s1x1 p1.1.1.1 d1x1 g1 float32"

    def row(where, direction, chosen, others, again=None, version=1):
        layer, problem = where
        times = {"auto": 2.0, "matmul": 3.0, "torch": 0.5} | others
        found = {"layer": layer, "problem": problem.format(direction), "chosen": chosen}
        found |= {"version": version, "from_find": [], "milliseconds": times}
        return found | ({"again": again} if again else {})

    rows = [
        row(first, "forward", "taps", {"xla": 1.0}, {"auto": 2.0, "matmul": 1.9, "xla": 1.5}),
        row(first, "data", "blocked images=1", {"xla": 1.0}, {"auto": 2.0, "xla": 1.9}),
        row(first, "weight", "matmul", {}, version=99),
        row(later, "forward", "taps", {"winograd": 2.4}),  # the heuristic's own
        row(later, "data", "taps", {"winograd": 2.6}),
    ]
    device = Device("cpu", "a processor, 2 cores")
    record = {"dtype": "float32", "jax": jax.__version__, "rows": rows}
    found = dict(ship.entries(record, device))
    assert [(one.choice, one.milliseconds) for one in found.values()] == [
        (Choice("xla"), 1.5),
        (Choice("blocked", (("images", 1),)), 2.0),
        (Choice("winograd"), 2.4),
        (Choice("taps"), 2.0),
    ]
    assert [key.split()[1] for key in found] == ["forward", "data"] * 2
    assert "left out: convolution weight" in capsys.readouterr().out
    assert dict(ship.entries(record | {"jax": "0.0.1"}, device)) == {}


def test_a_fused_plan_is_timed_only_if_it_is_right(monkeypatch):
    fusions = benchmark("fusions")
    plan = fusions.FusionPlan([fusions.Convolution(), *fusions.TAILS["CBNRA"]])
    problem = fusions.FusionProblem((1, 3, 4, 5), (1, 1, 5, 6), "bfloat16")
    arguments = fusions.drawn(plan, problem)
    assert arguments["residual"].dtype == "bfloat16" and arguments["bias"].dtype == "float32"
    row = fusions.measure(plan, problem, rounds=1)
    assert set(row["milliseconds"]) == set(row["errors"]) == {"separate", "xla", "xla_folded"}
    assert row["work"] == (2 * 12 * 5 * 6, 2 * (60 + 30 + 2 * 72) + 4 * 5 * 6)
    plan = fusions.FusionPlan([fusions.BatchNorm(), fusions.Activation()])
    exact = fusions.exact
    monkeypatch.setattr(fusions, "exact", lambda *given: exact(*given) + 3)
    row = fusions.measure(plan, fusions.FusionProblem((1, 3, 4, 5)), rounds=1)
    assert row["milliseconds"] == {} and "wrong by" in row["failed"]["xla"]


def test_a_misspelt_field_would_be_found():
    with pytest.raises(AssertionError, match=r"train\.stepz"):
        check("cbc.py:default", {"train.stepz": 5})


def test_the_figures_of_the_kernels_are_drawn_from_the_records(tmp_path, capsys):
    """A failed row has no times; a record of only failed rows is not drawn."""
    pytest.importorskip("matplotlib")
    figures = load(EXPERIMENTS / "kernels" / "figures.py")
    about = {"device": "a processor", "dtype": "float32", "jax": "0.10.2", "batch": 64}
    problem = "2x8x8x4 1x1x4x4 s1x1 p0.0.0.0 d1x1 g1 float32"
    times = {"auto": 1.0, "xla": 2.0, "matmul": 4.0, "torch": 1.5}
    timed = {"problem": f"weight {problem}", "milliseconds": times}
    failed = {"problem": f"forward {problem}", "milliseconds": {}, "failed": {"problem": "it is"}}
    assert figures.relative([timed, failed]) == {
        ("1×1", "weight"): {"auto": [4.0], "xla": [2.0], "torch": [4.0 / 1.5]}
    }
    fused = {"plan": "CBA", "layer": "a", "milliseconds": {"separate": 2.0, "xla": 1.0}}
    rows = {"kernels": [timed, failed], "fusions": [fused], "recurrent": [failed]}
    for name, own in rows.items():
        path = tmp_path / f"{name}_cpu_float32.json"
        path.write_text(json.dumps(about | {"rows": own}))
    figures.main([f"--records={tmp_path}", f"--output={tmp_path}"])
    figures.main([f"--records={tmp_path}", f"--output={tmp_path}", "--device=tpu"])
    assert {path.stem for path in tmp_path.glob("*.svg")} == {
        "figure6_kernels_cpu_float32",
        "figure7_fusions_cpu_float32",
    }
    told = capsys.readouterr().out
    assert "networks: not drawn, nothing in" in told and told.count("there is no record") == 3


@pytest.mark.slow
def test_the_exported_decisions_are_compared_and_recorded(
    trained_run, chips, tmp_path, monkeypatch
):
    pytest.importorskip("onnxruntime")
    experiment = load(EXPERIMENTS / "onnx" / "decision.py")
    for case in experiment.CASES.values():
        check(case.config, case.overrides)
    monkeypatch.setattr(experiment, "RESULTS", tmp_path)
    case = experiment.Case("cbc.py:folder", {}, "chips")
    monkeypatch.setattr(experiment, "CASES", {"own": case})
    arguments = ["decision", f"--run=own={trained_run}", "--chips=5", f"--data={tmp_path}"]
    (tmp_path / "chips").symlink_to(chips)
    monkeypatch.setattr(sys, "argv", arguments)
    assert experiment.main() == 0
    found = json.loads((tmp_path / "own.json").read_text())
    assert found["images"] == 5 and found["differing"] == {"decision": 0, "nearest": 0}
    assert max(found["difference"].values()) < 1e-4 and found["bytes"] > 1000
    assert "| own | " in (tmp_path / "README.md").read_text()
    monkeypatch.setattr(experiment, "compare", lambda *_: pytest.fail("it is recorded"))
    assert experiment.main() == 0


def test_the_runs_on_hituav_set_fields_that_exist_and_show_what_is_missing(tmp_path, monkeypatch):
    experiment = load(EXPERIMENTS / "detection" / "hituav.py")
    for name in experiment.SPLITS:
        run = experiment.run_of(name, 100)
        check(run.config, run.overrides)
    monkeypatch.setattr(experiment, "RESULTS", tmp_path)
    assert experiment.described("all") == "all: not run"
    by_class = {"Car": {"ap": 0.25, "ap50": 0.5}}
    classes = {"Car": {"known": True}, "Bicycle": {"known": False, "recall": {"1": 0.75}}}
    evaluation = {"average_precision": {"classes": {"by_class": by_class}}, "classes": classes}
    recorded = json.dumps({"evaluation": evaluation})
    (tmp_path / "hituav-without-bicycle.json").write_text(recorded)
    assert experiment.described("without-bicycle") == (
        "without-bicycle: AP50 Car 0.500; recall at 1 false alarm a scene of Bicycle 0.750, "
        "not trained"
    )
    (tmp_path / "plan.json").write_text('{"hours": 2.0, "steps": 7}')
    assert experiment.planned(tmp_path, tmp_path, 2.0, 1)["steps"] == 7
    with pytest.raises(ValueError, match=r"--hours: got 1, but .*plan.json is for 2"):
        experiment.planned(tmp_path, tmp_path, 1.0, 1)


def test_a_target_that_the_detector_missed_counts_against_the_end_to_end_oscr():
    module = load(EXPERIMENTS / "detection" / "end_to_end.py")
    names = ["a", "a", "b", "x"]  # x is unknown
    decisions = [(0.9, "a", True), (0.2, "a", True), (0.8, "a", True), (0.5, "b", True)]
    of_true = module._columns(names, decisions)
    # Of three known targets one is right above the unknown one, and one below it.
    assert of_true.oscr(("a", "b")) == pytest.approx(1 / 3)
    of_found = module._columns(names, [module._MISSED, *decisions[1:]])
    assert of_found.oscr(("a", "b")) == 0
    # Of the found ones alone: the unknown one is above the only one that is right.
    assert of_true.oscr(("a", "b"), jnp.isfinite(of_found.scores)) == 0


def test_the_labels_that_a_method_needs_for_the_accuracy_of_random_choice():
    tables = load(EXPERIMENTS / "labelling" / "tables.py")
    rows = [
        {"method": name, "labels": [10, 20, 30], "accuracy": accuracy}
        for name, accuracy in (
            ("random", [0.5, 0.6, 0.7]),
            ("mixed", [0.5, 0.7, 0.6]),
            ("margin", [0.4, 0.5, 0.6]),
        )
    ]
    content = {"rows": rows}
    assert [tables.needed(content, "mixed", number) for number in range(3)] == [10, 15, 20]
    assert tables.needed(content, "margin", 1) == 30
    assert tables.needed(content, "margin", 2) is tables.needed(content, "coverage", 0) is None
