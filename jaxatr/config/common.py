"""The fields that every run has."""

from jaxatr import parts
from jaxatr.config.field import Field, Fields


def _listed(package: str, *others: str) -> str:
    """Lists the parts of a folder, except its other files, in Markdown."""
    return ", ".join(f"`{name}`" for name in parts.files(package, *others))


OPEN_SET = "jaxatr.tasks.open_set:OpenSet"

COMMON: Fields = {
    "seed": Field(
        0,
        "random seed of parameters, example order, augmentation and validation split",
    ),
    "task": Field(OPEN_SET, "the task to train, `module:Class`"),
    "data.name": Field(
        "simulated",
        f"a [source](data.md), {_listed('jaxatr.data.sources')}; `my.module:Source`, the name of a "
        "prepared set, or any TFDS name",
    ),
    "data.source": Field(
        "",
        "the [folder, archive or file](data.md) that the source reads; usually needed until the "
        "set is prepared",
    ),
    "data.data_dir": Field(
        "",
        "folder of prepared data sets; empty: `$JAXATR_DATA_DIR`, else the user's cache folder",
    ),
    "data.options": Field(
        {},
        "[options of the source](data.md#options-of-the-sources): "
        "`--config.data.options.layout=class/split`",
    ),
    "data.train_split": Field("train", "the training split, of which only known classes are used"),
    "data.test_split": Field("test", "the test split, with known and unknown classes"),
    "data.validation": Field(
        0.1,
        "fraction of the known training examples held out for validation; 0: none, "
        "so no best checkpoint and no fitted γ",
    ),
    "data.validation_seed": Field(
        None,
        "random seed of the validation split; unset: `seed`. Members of an "
        "[ensemble](open_set.md#ensembles) need the same value",
        int,
    ),
    "data.fold": Field(
        "",
        "validate on this fold of the known training examples, in place of `data.validation`: "
        "`2/5` is the second of five. [`train --repeats=folds:5`](training.md#repeats) sets it",
    ),
    "data.group_by": Field(
        "",
        "column whose equal values stay together in validation or in one "
        "[fold](training.md#repeats), such as `serial`, `group` of a table, or `folder` for that "
        "of the file; empty: none",
    ),
    "data.select.range_m": Field(
        (),
        "ranges in metres to keep in training and test; empty: all. Needs range metadata",
    ),
    "data.select.band": Field(
        (),
        "bands to keep in training and test; empty: all. Needs band metadata",
    ),
    "data.blank_center": Field(
        0,
        "side in pixels of a centre square [blanked](open_set.md#the-target-or-the-background) "
        "before cropping; 0: off",
    ),
    "data.center_crop": Field(
        0,
        "side in pixels of the centre square that is cropped first; smaller images are refused; "
        "0: none",
    ),
    "data.square": Field(False, "pad the shorter side with zeros to a square before resizing"),
    "data.size": Field(0, "side in pixels to resize to; 0: no resizing"),
    "data.bands": Field(
        "",
        "[bands](data.md#bands) to use, by number from 1 or by name; empty: all",
    ),
    "data.preview_bands": Field(
        "",
        "one or three [bands that pictures show](data.md#bands); empty: red, green and blue, or "
        "the first three",
    ),
    "data.channels": Field(
        0, "channels of a chip; 1 and 3 also convert between gray and RGB; 0: unchanged"
    ),
    "data.box_margin": Field(
        0.0, "margin of a chip around its box, as a fraction of the longer side"
    ),
    "data.box_error": Field(
        0.0,
        "also evaluate on test chips whose boxes are off by up to this fraction of their side; "
        "needs images larger than `data.center_crop`; 0: off",
    ),
    "data.normalize": Field(
        True,
        "normalise images; `False` for a [network from a file](onnx.md#a-network-as-backbone) "
        "that normalises its input",
    ),
    "data.normalize_by": Field(
        "",
        "normalisation constants: `data`, those of the training images, or a [published "
        "network](training.md#published-networks)'s; empty: that in `model.pretrained`, else "
        "`data`",
    ),
    "data.skip_corrupt": Field(
        False, "skip and list corrupt files when the set is prepared, instead of stopping"
    ),
    "open_set.split": Field(
        "closed",
        "known classes: `known:tank,car` (the rest is unknown), `unknown:bus`, a `.json` file of "
        "names, or a [named split](data.md#splits-into-known-and-unknown)",
    ),
    "open_set.split_seed": Field(0, "random seed of the random splits"),
    "open_set.hold_out": Field(
        0,
        "number of known classes that are held out in place of the unknown ones; 0: off",
    ),
    "open_set.hold_out_turn": Field(
        0,
        "which are held out: 0: the first ones drawn, 1: the next, and so on, cyclically",
    ),
    "augment.rotate_degrees": Field(0.0, "rotate by an angle of up to ± this"),
    "augment.flip_horizontal": Field(False, "flip left to right with probability 0.5"),
    "augment.flip_vertical": Field(False, "flip top to bottom with probability 0.5"),
    "augment.shift": Field(0, "shift by up to this many pixels along each axis"),
    "augment.box_shift": Field(
        0.0,
        "shift the box's centre by up to this fraction of its side along each axis; the "
        "surroundings of `data.center_crop`, or a reflection, fill the border",
    ),
    "augment.box_scale": Field(0.0, "lengthen or shorten the box's side by up to this fraction"),
    "model.backbone": Field(
        "resnet18",
        f"{_listed('jaxatr.models.backbones', 'backbone')} or [your own](backbone.md), "
        "`my.module:Class`",
    ),
    "model.onnx": Field(
        "",
        "an ONNX file whose network is the [backbone](onnx.md#a-network-as-backbone), instead of "
        "`model.backbone`; needs the extra `onnx`",
    ),
    "model.output": Field(
        "",
        "the ONNX graph's node or value that holds the features; empty: the only output",
    ),
    "model.stem": Field(
        "7x7",
        "stem of residual backbones: `7x7` (stride 2 and pooling), or `3x3` for images of about "
        "32 pixels",
    ),
    "model.width": Field(
        64,
        "channels of a residual backbone's first stage; each later stage doubles them",
    ),
    "model.dtype": Field("float32", "compute type of built-in backbones: `float32` or `bfloat16`"),
    "model.args": Field({}, "further arguments of the backbone's constructor"),
    "model.head_bias": Field(True, "closed-set and binary classifiers have a bias"),
    "model.pretrained": Field(
        "",
        "[initial weights](training.md#starting-from-pretrained-weights): a [published "
        "network](training.md#published-networks), which becomes the backbone, or for a built-in "
        "one a safetensors or PyTorch file or a run's folder; empty: random",
    ),
    "model.weights_dir": Field(
        "",
        "folder of published networks' weights; empty: `$JAXATR_WEIGHTS_DIR` and the installed "
        "packages",
    ),
    "model.pretrained_channels": Field(
        "same",
        "`same`: the pretrained network takes as many channels as the data has; `sum`: its first "
        "convolution is [adapted](training.md#starting-from-pretrained-weights), as a published "
        "network's always is to other numbers than 1 and 3",
    ),
    "model.freeze": Field(
        "",
        "parts of the backbone that are not trained: `statistics` (of batch norms), `backbone`, "
        "or named parts (`stem,stage1`); empty: none",
    ),
    "optimizer.name": Field(
        "sgd",
        "`sgd`, the name of an optax optimiser (`adamw`, `lamb`, `lion`, `muon` …), or "
        "[your own](training.md#the-optimiser), `my.module:function`",
    ),
    "optimizer.learning_rate": Field(1e-3, "peak learning rate, before the schedule"),
    "optimizer.backbone_factor": Field(
        1.0, "factor of the backbone's learning rate; below 1 for pretrained weights"
    ),
    "optimizer.momentum": Field(0.9, "momentum of `sgd`"),
    "optimizer.nesterov": Field(False, "Nesterov momentum in `sgd`"),
    "optimizer.weight_decay": Field(
        5e-4,
        "weight decay, decoupled if the optimiser has its own (`adamw`), else added to the "
        "gradient",
    ),
    "optimizer.decay": Field(
        None,
        "parameters that decay: `all`, or `kernels`, without biases and norms (fewer than two "
        "axes); unset: `all` for `sgd`, else `kernels`",
        str,
    ),
    "optimizer.args": Field({}, "further arguments of the optimiser, except for `sgd`"),
    "optimizer.clip_norm": Field(
        0.0,
        "clip gradients to this global norm; 0: off",
    ),
    "optimizer.schedule": Field("constant", "`constant`, `cosine` (to 0) or `steps`"),
    "optimizer.restarts": Field(
        0,
        "warm restarts of the `cosine` schedule, in cycles of equal length (Vaze et al. 2022)",
    ),
    "optimizer.boundaries": Field((), "epochs after which `steps` lowers the learning rate"),
    "optimizer.factor": Field(0.1, "by which `steps` multiplies the learning rate"),
    "optimizer.warmup_epochs": Field(
        0.0,
        "epochs of linear warm-up; at most half of the training",
    ),
    "data.added": Field(
        "",
        "table of [further training images](enrolment.md#what-to-label-next) with the columns "
        "`path` and `label`",
    ),
    "data.corrections": Field(
        "",
        "table of [corrected labels](data.md#labels-that-may-be-wrong) with the columns `path` "
        "and `label`",
    ),
    "train.batch_size": Field(64, "examples of a step, over all devices and processes"),
    "train.epochs": Field(20, "passes over the training examples"),
    "train.steps": Field(0, "length in steps, overrides `train.epochs`; 0: unset"),
    "train.ema": Field(
        0.0,
        "decay of a [moving average of the parameters](training.md#averaged-parameters), such as "
        "0.999; 0: off",
    ),
    "train.remat": Field(
        False,
        "keep less for the backward pass and [compute the rest again](training.md#less-memory)",
    ),
    "train.end_with_best": Field(
        None,
        "end with the parameters of the [best "
        "evaluation](training.md#never-worse-than-the-beginning), the initial ones included; "
        "unset: if `model.pretrained` is set",
        bool,
    ),
    "train.evaluate_every": Field(1.0, "epochs between evaluations on the validation split"),
    "train.checkpoint_every": Field(
        200, "steps between checkpoints, besides one after every evaluation"
    ),
    "train.log_every": Field(10, "steps over which logged metrics are averaged"),
    "train.trackers": Field(
        "tensorboard",
        "where the figures of the training [are shown](training.md#watching-it): "
        f"{_listed('jaxatr.training.trackers', 'tracker')}, or several with commas; empty: nowhere",
    ),
    "train.keep": Field(2, "latest checkpoints to keep, besides the best"),
    "kernels.find": Field(
        False,
        "before the first step, [measure](kernels.md#training) problems that are not in the "
        "database",
    ),
}
"""The fields of every run."""
