"""Validation of the configuration fields of open-set recognition."""

from collections.abc import Callable

import jax

from jaxatr import data, losses
from jaxatr.data import augmentations
from jaxatr.resolve import nearest, resolve
from jaxatr.tasks.limits import check_limits
from jaxatr.tasks.open_set.deciders import AUTO, score_of
from jaxatr.typing import Config

_OPEN_LOSSES = {"cbc": losses.cbc, "bce": losses.one_vs_rest_bce, "none": None}
_TEST = "all"  # the group of the run's test examples


def find_open_loss(name: str) -> Callable[..., jax.Array] | None:
    """Returns the loss of the binary classifiers: ``(open_logits [b, k], labels [b]) -> [b]``.

    Args:
      name: ``cbc``, ``bce``, ``none`` (which returns None) or ``my.module:function``.

    Raises:
      ValueError: there is no such loss.
    """
    if name in _OPEN_LOSSES:
        return _OPEN_LOSSES[name]
    if ":" not in name:
        raise ValueError(
            f"loss.open: got {name!r}, wanted one of {', '.join(_OPEN_LOSSES)} or "
            f"'my.module:function'{nearest(name, _OPEN_LOSSES)}"
        )
    return resolve(name)


def check_fields(config: Config) -> None:
    """Checks values that would otherwise fail during training or silently spoil it.

    Raises:
      ValueError: a value is invalid; the message names its field.
    """
    find_open_loss(config.loss.open)
    for group, name in (("loss", "class_weights"), ("train", "balance")):
        given = config[group].get(name, data.UNBALANCED)
        if given not in data.BALANCES:
            wanted = ", ".join(data.BALANCES)
            raise ValueError(f"{group}.{name}: got {given!r}, wanted one of {wanted}")
    augmentations.check(dict(config.augment))
    parse_sources(config.open_set.get("outside", ""))
    if config.open_set.negatives and config.loss.open != "none":
        raise ValueError(
            f"open_set.negatives: got images and loss.open={config.loss.open!r}, wanted 'none', "
            "because the binary classifiers have no class for negatives"
        )
    fields = config.open_set
    if fields.score != AUTO:
        try:
            score_of(fields.score)
        except ValueError as error:
            raise ValueError(f"open_set.score: {error}") from error
    if "mix" in config:  # only tasks on single images have these fields
        mix = config.mix
        check_limits(
            config,
            mix__mixup=(mix.mixup >= 0, "0 (off) or more"),
            mix__cutmix=(mix.cutmix >= 0, "0 (off) or more"),
            mix__probability=(0 <= mix.probability <= 1, "a probability in [0, 1]"),
        )
    if "outside_most" in fields:
        check_limits(
            config,
            open_set__outside_most=(fields.outside_most >= 0, "0 (all) or more"),
            open_set__test_shift=(fields.test_shift >= 0, "0 (off) or more pixels"),
            open_set__box_error=(0 <= fields.box_error <= 0.5, "a share in [0, 0.5]; 0 is off"),
        )
    check_limits(
        config,
        loss__label_smoothing=(0 <= config.loss.label_smoothing < 1, "a share in [0, 1)"),
        loss__logit_norm=(config.loss.logit_norm >= 0, "0 (off) or more"),
        open_set__gamma=(0 <= fields.gamma <= 1, "a probability in [0, 1]"),
        open_set__tpr=(0 < fields.tpr <= 1, "a share in (0, 1]"),
    )


def parse_sources(text: str) -> dict[str, str]:
    """Parses ``"near=SOURCE,far=SOURCE"`` into sources by group.

    Raises:
      ValueError: the syntax is invalid, or a name is repeated or reserved.
    """
    sources: dict[str, str] = {}
    for item in filter(None, text.split(",")):
        name, _, source = item.partition("=")
        if not name.isidentifier() or not source:
            raise ValueError(
                f"open_set.outside: got {item!r}, wanted NAME=SOURCE, such as near=FOLDER"
            )
        if name in sources or name == _TEST:
            raise ValueError(f"open_set.outside: the name {name!r} is taken: choose another")
        sources[name] = source
    return sources


def check_sources(config: Config) -> None:
    """Checks that the configured sources exist.

    Raises:
      ValueError: the syntax is invalid, or a source does not exist.
    """
    for name, source in parse_sources(config.open_set.get("outside", "")).items():
        try:
            data.check_others(source, data_dir=config.data.data_dir or None)
        except ValueError as error:
            raise ValueError(f"open_set.outside: {name}: {error}") from error


def note_of(split: data.KnownUnknown) -> str:
    """Returns a warning about a run without a configured split; empty otherwise."""
    if split.name != "closed":
        return ""
    if split.unknown:
        names = ", ".join(split.unknown)
        return f"classes without training examples are unknown: {names}"
    return (
        "no class is unknown, so the evaluation omits AUROC, OSCR and FPR: "
        "--config.open_set.split=known:A,B sets the known classes; the rest is unknown"
    )
