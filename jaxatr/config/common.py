"""The fields that every run has."""

from jaxatr.config.field import Field, Fields

OPEN_SET = "jaxatr.tasks.open_set:OpenSet"

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
        "for `image_folder`, and needed there: the folder or archive of class folders, or the "
        "table of images; for `dsiac`, `mstar` and `fgvc_aircraft` where they are not prepared yet",
    ),
    "data.data_dir": Field(
        "",
        "where prepared sets lie; empty: `$JAXATR_DATA_DIR`, else the user's cache folder",
    ),
    "data.options": Field(
        {},
        "of the data set's builder. `simulated`: `ranges`, `bands`, `aspects`, `seed`, `size`, "
        "`crop`, `surround`, `turns`; "
        "`image_folder`: `test_fraction`, `layout`, `table`; `dsiac`: `band`, `ranges`, `time`, "
        "`every`, `classes`, `size`; `mstar`: `serials`; `fgvc_aircraft`: `level`, `coarse`, "
        "`size`. The command line can change the options that the configuration file names",
    ),
    "data.train_split": Field("train", "the split whose known classes are trained on"),
    "data.test_split": Field("test", "the split that is evaluated on, known and unknown classes"),
    "data.validation": Field(
        0.1,
        "share of the known training examples that is held out; 0: none, and then no best "
        "checkpoint and no fitted γ",
    ),
    "data.validation_seed": Field(
        None,
        "of the draw of the validation part; unset: `seed`. Runs with one value and seeds of their "
        "own share it, as the members of an [ensemble](open_set.md#ensembles) have to",
        int,
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
    "data.blank_center": Field(
        0,
        "side in pixels of the centre square that is blanked in every image, before it is cut: a "
        "control of how much is told by the target's surroundings; 0: none",
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
        "whether images are normalised; `False` for a [network from a file]"
        "(onnx.md#a-network-as-backbone) that does so itself",
    ),
    "data.normalize_by": Field(
        "",
        "by what: `data`, the training images' mean and deviation, or a [published network]"
        "(training.md#published-networks), its constants; empty: those of the one that "
        "`model.pretrained` names, else `data`",
    ),
    "data.skip_corrupt": Field(
        False, "leave the corrupt images of an `image_folder` out, rather than stop at the first"
    ),
    "open_set.split": Field(
        "closed",
        "which classes are known: `known:tank,car` (the rest is unknown), `unknown:bus`, a `.json` "
        "file of names, or a [named split](data.md#splits-into-known-and-unknown)",
    ),
    "open_set.split_seed": Field(0, "of the random splits"),
    "open_set.hold_out": Field(
        0,
        "so many known classes stand in for the unknown ones, and the unknown ones stay away "
        "altogether",
    ),
    "open_set.hold_out_turn": Field(
        0, "which of them: 0 the first that are drawn, 1 the next, and so on, round and round"
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
        "`resnet18`, `resnet34`, `resnet50`, `resnet101`, `mobilenet_v2`, `efficientnet_lite0`, "
        "`efficientnet_lite2` or [your own](backbone.md), `my.module:Class`",
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
        "of the residual backbones: `7x7` (stride 2 and pooling), or `3x3` for images of about 32 "
        "pixels",
    ),
    "model.width": Field(
        64,
        "of the residual backbones: channels of the first stage; each later one doubles them",
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
        "a [published network](training.md#published-networks) by its name, which becomes the "
        "backbone, or a safetensors file, one of PyTorch's or another run's folder, with whose "
        "weights a built-in backbone [begins](training.md#starting-from-pretrained-weights); "
        "empty: random ones",
    ),
    "model.weights_dir": Field(
        "",
        "where files of published networks lie; empty: `$JAXATR_WEIGHTS_DIR`, and the installed "
        "packages",
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
    "train.end_with_best": Field(
        None,
        "evaluate the beginning too, and end with the parameters of the [best evaluation]"
        "(training.md#never-worse-than-the-beginning); unset: where `model.pretrained` is set",
        bool,
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
