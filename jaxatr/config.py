"""The fields of a run's configuration: those that every run has, and how a task's own join them.

A field is declared once, with its default and its meaning; the tables in the documentation are made
from the declarations (``docs/make_configuration.py``).
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, cast

from ml_collections import ConfigDict, config_dict

from jaxatr.resolve import resolve
from jaxatr.typing import Config

OPEN_SET = "jaxatr.tasks.open_set:OpenSet"

# Runs that were recorded when one base had the fields of all tasks have these groups, whatever they
# train.
_ONCE_COMMON = (
    *("loss", "open_set", "track", "gan"),
    *("embedding", "quadruplet", "mining"),
    *("surrogate", "distillation", "explanation"),
)
_ONCE_COMMON_FIELDS = ("data.coarse",)


# Options that once had one value, which no configuration named: data set to option to value.
_ONCE_SILENT = {name: {"crop": "window"} for name in ("simulated", "simulated_tracks")}


class Field(NamedTuple):
    """One field of a configuration.

    Attributes:
      default: its value where nothing sets it. ``None`` leaves it unset; a dictionary is open:
        configuration files put their own names into it.
      meaning: in a few words, for the tables; Markdown.
      kind: type of the values of a field whose default is ``None``.
      formerly: the value that stood for "unset" in runs recorded before the default was ``None``.
      earlier: the value that runs had before there was this field, where it is not the default.
    """

    default: Any
    meaning: str
    kind: type | None = None
    formerly: Any = None
    earlier: Any = None


Fields = Mapping[str, Field]
"""Dotted name (``"data.select.band"``) to declaration."""

COMMON: Fields = {
    "seed": Field(0, "of everything drawn: parameters, order, augmentation, validation part"),
    "task": Field(OPEN_SET, "what is trained, `module:Class`"),
    "data.name": Field(
        "simulated",
        "`simulated`, `image_folder`, `dsiac`, `mstar`, `fgvc_aircraft`, `my.module:Source`, the "
        "name of a prepared set, or any TFDS name",
    ),
    "data.source": Field(
        "",
        "for `image_folder`, and needed there: the folder or archive of class folders; for `dsiac`,"
        " `mstar` and `fgvc_aircraft` where they are not prepared yet",
    ),
    "data.data_dir": Field(
        "",
        "where prepared sets lie; empty: `$JAXATR_DATA_DIR`, else the user's cache folder",
    ),
    "data.options": Field(
        {},
        "of the data set's builder. `simulated`: `ranges`, `bands`, `aspects`, `seed`, `size`, "
        "`crop`, `surround`, `turns`; "
        "`image_folder`: `test_fraction`; `dsiac`: `band`, `ranges`, `time`, `every`, `classes`, "
        "`size`; `mstar`: `serials`; `fgvc_aircraft`: `level`, `coarse`, `size`. The command line "
        "can change the options that the configuration file names",
    ),
    "data.train_split": Field("train", "the split whose known classes are trained on"),
    "data.test_split": Field("test", "the split that is evaluated on, known and unknown classes"),
    "data.validation": Field(
        0.1,
        "share of the known training examples that is held out; 0: none, and then no best "
        "checkpoint and no fitted γ",
    ),
    "data.select.range_m": Field(
        (),
        "ranges to keep, in training and test; empty: all. A set that does not say the range "
        "refuses it",
    ),
    "data.select.band": Field(
        (),
        "bands to keep, in training and test; empty: all. A set that does not say the band refuses "
        "it",
    ),
    "data.center_crop": Field(
        0,
        "side in pixels of the centre square that is cut out first; a smaller image is refused; 0: "
        "no crop",
    ),
    "data.square": Field(False, "pad the shorter side with zeros to a square, before the resize"),
    "data.size": Field(0, "side in pixels to resize to; 0: as it is"),
    "data.channels": Field(0, "1 (gray) or 3 (RGB); 0: as it is"),
    "data.box_margin": Field(0.0, "how much larger a chip is than the box's longer side, a share"),
    "data.box_error": Field(
        0.0,
        "evaluate also on test chips whose boxes are off, in centre and size, by up to this share "
        "of their side; wants images larger than `data.center_crop`; 0: no",
    ),
    "data.normalize": Field(
        True,
        "images are normalised by the training images' mean and deviation; `False` for a [network "
        "from a file](onnx.md#a-network-as-backbone) that does so itself",
    ),
    "data.skip_corrupt": Field(
        False, "leave the corrupt images of an `image_folder` out, rather than stop at the first"
    ),
    "open_set.split": Field(
        "closed",
        "which classes are known: a [named split](data.md#splits-into-known-and-unknown)",
    ),
    "open_set.split_seed": Field(0, "of the random splits"),
    "open_set.hold_out": Field(
        0,
        "so many known classes stand in for the unknown ones, and the unknown ones stay away "
        "altogether",
    ),
    "augment.rotate_degrees": Field(0.0, "turn by an angle drawn uniformly from ± this"),
    "augment.flip_horizontal": Field(False, "mirror left to right, half of the time"),
    "augment.flip_vertical": Field(False, "mirror top to bottom, half of the time"),
    "augment.shift": Field(0, "move by up to this many pixels, down or up and right or left"),
    "augment.box_shift": Field(
        0.0,
        "the box's centre is off by up to this share of its side, each way; around the chip lies "
        "what `data.center_crop` left, and a reflection beyond",
    ),
    "augment.box_scale": Field(0.0, "its side is longer or shorter by up to this share"),
    "model.backbone": Field(
        "resnet18",
        "`resnet18`, `resnet34`, `resnet50`, `resnet101` or [your own](backbone.md), "
        "`my.module:Class`",
    ),
    "model.onnx": Field(
        "",
        "an ONNX file whose network is the [backbone](onnx.md#a-network-as-backbone) in place of "
        "`model.backbone`; `pip install 'jaxatr[onnx]'`",
    ),
    "model.output": Field(
        "", "the node or value of it that gives the features; by default its only output"
    ),
    "model.stem": Field(
        "7x7",
        "of the built-in backbones: `7x7` (stride 2 and pooling), or `3x3` for images of about 32 "
        "pixels",
    ),
    "model.width": Field(
        64,
        "of the built-in backbones: channels of the first stage; each later one doubles them",
    ),
    "model.dtype": Field(
        "float32", "of the built-in backbones' computation: `float32` or `bfloat16`"
    ),
    "model.args": Field({}, "further arguments of the backbone's constructor"),
    "model.head_bias": Field(
        True, "whether the closed-set classifier and the binary classifiers have a bias"
    ),
    "model.pretrained": Field(
        "",
        "a safetensors file or another run's folder, with whose weights a built-in backbone "
        "[begins](training.md#starting-from-pretrained-weights); empty: random ones",
    ),
    "model.pretrained_channels": Field(
        "same",
        "`same`: its images have as many channels as the data's; `sum`: its first convolution is "
        "adapted to the data's",
    ),
    "model.freeze": Field(
        "",
        "what of the backbone does not train: its batch norms' `statistics`, the whole `backbone`, "
        "or parts of it with their statistics (`stem,stage1`); empty: nothing",
    ),
    "optimizer.name": Field(
        "sgd",
        "`sgd`, the name of one of optax (`adamw`, `lamb`, `lion`, `muon` …), or "
        "[your own](training.md#the-optimiser), `my.module:function`",
    ),
    "optimizer.learning_rate": Field(1e-3, "its height before the schedule lowers it"),
    "optimizer.backbone_factor": Field(
        1.0, "times which the backbone learns; less than 1 for pretrained weights"
    ),
    "optimizer.momentum": Field(
        0.9, "of `sgd`: share of the earlier steps' direction that is kept"
    ),
    "optimizer.nesterov": Field(False, "of `sgd`: Nesterov's form of the momentum"),
    "optimizer.weight_decay": Field(
        5e-4,
        "an optimiser that takes a weight decay of its own (`adamw`) gets it; with the others "
        "(`sgd`, `adam`) the parameters times this are added to the gradient",
    ),
    "optimizer.decay": Field(
        None,
        "which parameters decay: `all`, or `kernels`, which leaves biases and the parameters of "
        "norms (all with fewer than two axes) alone; unset: `all` for `sgd`, `kernels` for the "
        "others",
        str,
    ),
    "optimizer.args": Field({}, "further arguments of the optimiser, of other ones than `sgd`"),
    "optimizer.clip_norm": Field(
        0.0,
        "gradients whose norm over all trained parameters is larger are scaled down to it; 0: off",
    ),
    "optimizer.schedule": Field("constant", "`constant`, `cosine` (to 0) or `steps`"),
    "optimizer.restarts": Field(
        0, "times that the cosine begins again at the full rate, in equal parts (Vaze et al. 2022)"
    ),
    "optimizer.boundaries": Field((), "epochs after which the rate falls, of the schedule `steps`"),
    "optimizer.factor": Field(0.1, "by which it falls"),
    "optimizer.warmup_epochs": Field(
        0.0,
        "epochs in which the learning rate rises linearly; at most half of the training",
    ),
    "train.batch_size": Field(64, "over all devices and processes"),
    "train.epochs": Field(20, "rounds through the training examples"),
    "train.steps": Field(0, "length in steps, in place of the epochs; 0: the epochs count"),
    "train.ema": Field(
        0.0,
        "decay of an [average of the parameters](training.md#averaged-parameters) over the steps, "
        "which is evaluated and used in their place (0.999, say); 0: off",
    ),
    "train.evaluate_every": Field(1.0, "epochs between evaluations on the validation part"),
    "train.checkpoint_every": Field(
        200, "steps between checkpoints, besides one after every evaluation"
    ),
    "train.log_every": Field(10, "steps that one record of the metrics sums up"),
    "train.keep": Field(2, "newest checkpoints kept, beside the best"),
    "kernels.find": Field(
        False,
        "before the first step, [measure](kernels.md#training) what computes it fastest, as far as "
        "the database does not know",
    ),
}
"""The fields of every run."""


def common() -> Config:
    """Returns the fields that every run has, at their defaults."""
    return _built(COMMON)


def of_task(task: str = OPEN_SET) -> Config:
    """Returns the whole configuration of a task, at its defaults: where configuration files start.

    Args:
      task: its dotted path, ``"package.module:Class"``.

    Raises:
      ValueError: there is no such task.
    """
    config = _built(fields_of(task))
    config.task = task
    return config


def fields_of(task: str) -> Fields:
    """Returns the fields of a task's runs, the common ones first.

    Args:
      task: its dotted path. Its class method ``fields`` declares its own; one that is common too
        gets another default so.

    Raises:
      ValueError: there is no such task.
    """
    return {**COMMON, **getattr(resolve(task), "fields", dict)()}


def of_variant(
    variants: Mapping[str, Callable[[Config], None]],
    variant: str,
    *,
    task: str = OPEN_SET,
    tasks: Mapping[str, str] | None = None,
) -> Config:
    """Returns a task's configuration as a variant changes it: all that a ``get_config`` has to do.

    Args:
      variants: name to the function that sets its fields.
      variant: which of them.
      task: dotted path of what is trained.
      tasks: of the variants that train something else, by their names.

    Raises:
      ValueError: there is no such variant or task.
    """
    if variant not in variants:
        raise ValueError(f"variant: got {variant!r}, wanted one of {', '.join(variants)}")
    config = of_task((tasks or {}).get(variant, task))
    variants[variant](config)
    return config


def retasked(config: Config, task: str) -> Config:
    """Returns the configuration of another task, with the values of the fields that both have."""
    made, given = of_task(task), config.copy_and_resolve_references()
    for name in fields_of(task):
        group, last = _group(made, name)
        if name != "task" and _has(given, name):
            group[last] = _group(given, name)[0][last]
    return made


def completed(recorded: Mapping[str, Any]) -> Config:
    """Returns a recorded configuration with the fields that its task has today.

    Fields that came later have their defaults, or what stood for them before. The fields of other
    tasks, which every run once recorded, took no part and are left out.

    Args:
      recorded: the content of a run's ``config.json``.

    Raises:
      ValueError: its task is not on the import path.
    """
    fields = fields_of(recorded["task"]) if "task" in recorded else COMMON
    config = _built(fields)
    for name, field in fields.items():
        if field.earlier is not None:
            group, last = _group(config, name)
            group[last] = field.earlier
    with config.unlocked(), config.ignore_type():
        config.update(_without_other_tasks(recorded, fields))
        if "box_shift" not in recorded.get("augment", {}):  # from before there were boxes
            config.data.options = _ONCE_SILENT.get(config.data.name, {}) | dict(config.data.options)
    if "name" not in recorded.get("optimizer", {}):  # from before "unset" had a value of its own
        for name, field in fields.items():
            group, last = _group(config, name)
            if field.formerly is not None and group[last] == field.formerly:
                group[last] = None
    return _locked(config, fields)


def check_complete(config: Config) -> None:
    """Refuses a configuration that lacks fields of its task.

    Raises:
      ValueError: a field is missing, as where ``--config.task`` alone is another.
    """
    missing = [name for name in fields_of(config.task) if not _has(config, name)]
    if missing:
        raise ValueError(
            f"task: {config.task} needs {', '.join(missing)}, which this configuration does not "
            f"have: it has to start from jaxatr.config.of_task({config.task!r})"
        )


def table(fields: Fields) -> str:
    """Returns fields as a table in Markdown: name, default and meaning."""
    rows = ["| field | default | meaning |", "|---|---|---|"]
    rows += [f"| `{name}` | `{one.default!r}` | {one.meaning} |" for name, one in fields.items()]
    return "\n".join(rows)


def _built(fields: Fields) -> Config:
    config = cast(Config, ConfigDict())
    for name, field in fields.items():
        group = config
        *groups, last = name.split(".")
        for part in groups:
            if part not in group:
                group[part] = ConfigDict()
            group = group[part]
        if field.default is None:
            group[last] = config_dict.placeholder(field.kind)
        else:
            is_open = isinstance(field.default, Mapping)
            group[last] = ConfigDict(field.default) if is_open else field.default
    return _locked(config, fields)


def _locked(config: Config, fields: Fields) -> Config:
    """Locks a configuration, so that a misspelt field is an error; open groups take any name."""
    config.lock()
    for name, field in fields.items():
        if isinstance(field.default, Mapping):
            group, last = _group(config, name)
            group[last].unlock()
    return config


def _group(config: Config, name: str) -> tuple[Config, str]:
    """Returns the group that holds a field, and the field's name in it."""
    *groups, last = name.split(".")
    for part in groups:
        config = config[part]
    return config, last


def _has(config: Config, name: str) -> bool:
    *groups, last = name.split(".")
    for part in groups:
        if part not in config:
            return False
        config = config[part]
    return last in config


def _without_other_tasks(recorded: Mapping[str, Any], fields: Fields) -> dict[str, Any]:
    kept = {
        group: {name: leaf for name, leaf in value.items() if f"{group}.{name}" in fields}
        if group in _ONCE_COMMON
        else value
        for group, value in recorded.items()
        if group not in _ONCE_COMMON or any(name.startswith(f"{group}.") for name in fields)
    }
    for field in set(_ONCE_COMMON_FIELDS) - set(fields):
        group, name = field.split(".")
        if name in kept.get(group, {}):
            kept[group] = {other: leaf for other, leaf in kept[group].items() if other != name}
    return kept
