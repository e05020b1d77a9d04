"""Every field of a run's configuration, with its default: the one base that configs override."""

from collections.abc import Callable, Mapping

from ml_collections import ConfigDict

from jaxatr.typing import Config


def of_variant(
    variants: Mapping[str, Callable[[Config], None]], variant: str, *, task: str | None = None
) -> Config:
    """Returns the base as a variant changes it: what a configuration file's ``get_config`` does.

    Args:
      variants: name to the function that sets its fields.
      variant: which of them.
      task: what is trained, unless the variant says otherwise; by default the base's.

    Raises:
      ValueError: there is no such variant.
    """
    if variant not in variants:
        raise ValueError(f"variant: got {variant!r}, wanted one of {', '.join(variants)}")
    config = base()
    config.task = task or config.task
    variants[variant](config)
    return config


def base() -> Config:
    """Returns the configuration that every file in ``configs/`` starts from.

    An empty string or 0 means "not set" where the comment says so; all fields can be overridden on
    the command line, ``--config.optimizer.learning_rate=0.1``.
    """
    config = ConfigDict()
    config.seed = 0  # of everything drawn: parameters, order, augmentation, validation part
    config.task = "jaxatr.tasks.open_set:OpenSet"

    config.data = data = ConfigDict()
    data.name = "simulated"  # simulated, image_folder, the name of a prepared set, any TFDS name
    data.source = ""  # for image_folder: the folder or archive
    data.data_dir = ""  # where prepared data is kept; empty: the user's cache folder
    data.options = ConfigDict()  # of the data set's builder
    data.coarse = ""  # a name of jaxatr.data.hierarchy; empty: the data set's own coarse classes
    data.train_split = "train"
    data.test_split = "test"
    data.validation = 0.1  # share of the known training examples held out
    data.select = ConfigDict({"range_m": (), "band": ()})  # values to keep; empty: all
    data.center_crop = 0  # pixels; 0: none
    data.square = False  # pad to a square
    data.size = 0  # resize to this side in pixels; 0: as it is
    data.channels = 0  # 1 or 3; 0: as it is
    data.normalize = True  # by the training images' mean and deviation; else raw units go in
    data.skip_corrupt = False

    config.augment = augment = ConfigDict()
    augment.rotate_degrees = 0.0  # uniformly in ± this
    augment.flip_horizontal = False
    augment.flip_vertical = False
    augment.shift = 0  # shift-crop by up to this many pixels

    config.model = model = ConfigDict()
    model.backbone = "resnet18"  # a built-in name or "my.module:Class"
    model.onnx = ""  # a file whose network, up to model.output, is the backbone in its place
    model.output = ""  # name of a node or value in it; by default its only output
    model.stem = "7x7"  # of the built-in backbones; "3x3" for images of about 32 pixels
    model.width = 64  # channels of the built-in backbones' first stage
    model.dtype = "float32"  # of the computation: float32 or bfloat16
    model.args = ConfigDict()  # further arguments of the backbone
    model.head_bias = True
    model.pretrained = ""  # safetensors file or run folder whose backbone to begin with
    model.pretrained_channels = "same"  # or "sum": its stem adapted to the images' channels

    config.loss = loss = ConfigDict()
    loss.open = "cbc"  # cbc, bce (the ablation), none (a plain classifier)
    loss.open_weight = 1.0
    loss.entropy_weight = 0.1

    config.embedding = embedding = ConfigDict()  # of the task jaxatr.tasks.embedding:Embedding
    embedding.loss = "quadruplet"  # or semi_hard_triplet, lifted_structure, n_pairs …
    embedding.dimension = 1024  # of the layer that embeds; 0: the backbone's features
    embedding.unit_length = True  # bring embeddings to length 1
    embedding.class_weights = (0.08, 0.25)  # of the coarse and the fine cross-entropy; 0: off
    embedding.margin = 0.0  # of a loss that forms its tuples in the batch; 0: its own default
    embedding.per_class = 4  # images of a class in a batch for such a loss

    config.quadruplet = quadruplet = ConfigDict()  # equations 3, 5 and 6
    quadruplet.margins = (0.7, 0.3)
    quadruplet.global_margins = (0.7, 0.3)
    quadruplet.global_weights = (1.0, 1.0)
    quadruplet.eta = 1.0
    quadruplet.reduction = "sum"  # over the quadruplets of a batch, or mean

    config.mining = mining = ConfigDict()  # the selection of quadruplets
    mining.method = "nearest_to_reference"  # method 2; nearest_to_negative is method 1; random
    mining.sibling_class = ""  # any or drawn; empty: as the paper has the method
    mining.refresh = 1.0  # epochs between two selections
    mining.refresh_steps = 0  # overrides refresh where not 0
    mining.block_size = 512  # references at a time, which decides the memory

    config.surrogate = surrogate = ConfigDict()  # whose student is config.model, with attention
    surrogate.deltas = (
        "last"  # what a stage hands to the explanation network: last, sum or features
    )
    surrogate.width = 64  # channels of the explanation network's last upsample block

    config.track = track = ConfigDict()  # of the task jaxatr.tasks.track:TrackOpenSet
    track.frames = 8  # a longer track is cut into pieces of so many chips
    track.hidden = 128  # components of the LSTM's state; 0: no LSTM, single chips and their mean
    track.chip_weight = 1.0  # of the loss of single chips beside that of tracks; 0: off

    config.optimizer = optimizer = ConfigDict()  # stochastic gradient descent
    optimizer.learning_rate = 1e-3
    optimizer.momentum = 0.9
    optimizer.nesterov = False
    optimizer.weight_decay = 5e-4
    optimizer.schedule = "constant"  # constant, cosine (to 0) or steps
    optimizer.boundaries = ()  # epochs after which the rate falls, of the schedule steps
    optimizer.factor = 0.1  # by which it falls
    optimizer.warmup_epochs = 0.0

    config.train = train = ConfigDict()
    train.batch_size = 64  # over all devices
    train.epochs = 20
    train.steps = 0  # overrides epochs where not 0
    train.evaluate_every = 1.0  # epochs between evaluations on the validation part
    train.checkpoint_every = 200  # steps
    train.log_every = 10  # steps that a record of the metrics sums up
    train.keep = 2  # newest checkpoints kept, beside the best

    config.kernels = kernels = ConfigDict()
    kernels.find = False  # measure, before the first step, what computes it fastest

    config.open_set = open_set = ConfigDict()
    open_set.split = "closed"  # a name of jaxatr.data.known_unknown
    open_set.split_seed = 0
    open_set.hold_out = 0  # known classes that stand in for the unknown ones, which stay away
    open_set.negatives = ""  # file of images that train as one more class, of no known target
    open_set.gamma = 0.9  # acceptance threshold on the binary classifier's probability
    open_set.tpr = 0.95  # true-positive rate for which another γ is fitted on validation data

    config.distillation = distillation = ConfigDict()  # of jaxatr.tasks.distillation:Distillation
    distillation.target = ""  # the network that is explained: its run's folder, or another form
    distillation.end_to_end = False  # train student and explanation network at once, equation 10
    distillation.temperature = 1.0  # t of equation 6
    distillation.alpha = 0.5  # of the target's answer against the label's, equation 4
    distillation.objective = "mask"  # of the map: equation 9, or curves: insertion and deletion
    distillation.insertion_weight = 1.0  # against deletion, where the objective is curves
    distillation.masks = 0  # random ones of each image and step, beside the curves; 0: none
    distillation.masks_weight = 0.5  # of what they say of the pixels
    distillation.masks_contrast = 4.0  # of the map that they ask for
    distillation.scorer = "target"  # of the masked image in equation 9, or student
    distillation.l1_weight = 1e-5  # λ of equation 8
    distillation.l1 = "sum"  # over the pixels of a saliency map, or mean
    distillation.area = 0.1  # the share of the pixels that a saliency map is to mark
    distillation.area_weight = 0.0  # of that prior on the map; 0: only the norm keeps it small
    distillation.judged = 200  # examples, evenly spread, whose insertion and deletion are measured
    distillation.pixels_per_step = 0  # of insertion and deletion; 0: one row of the chip
    distillation.rise_samples = 8000  # masks of RISE, where an evaluation compares with it
    distillation.lime_samples = 1000  # of LIME, likewise

    config.explanation = explanation = ConfigDict()  # the training of the explanation network alone
    explanation.epochs = 16.0
    explanation.steps = 0  # overrides epochs where not 0
    explanation.learning_rate = 0.1
    explanation.schedule = "steps"
    explanation.boundaries = (10.0, 12.0, 14.0)  # epochs after which the rate falls

    config.gan = gan = ConfigDict()  # the generator of G-OpenMax
    gan.noise = 64  # components of its noise
    gan.width = 16  # channels of the generator's last and of the discriminator's first map
    gan.steps = 1000  # of the generator, and as many of the discriminator
    gan.learning_rate = 2e-4
    gan.threshold = 0.5  # an image is kept where no known class has a higher probability
    gan.images = 0  # how many are kept; 0: as many as a known class has on average
    return config
