"""Quadruplets of a reference, a positive, a sibling and a negative, over a whole data set.

These are the selections of Karaman et al. (2019), "Quadruplet Selection Methods for Deep Embedding
Learning", section 3.3, by Euclidean distance between embeddings:

- The *negative* is the nearest example of another coarse class.
- The *positive* belongs to the reference's fine class, and the *sibling* to another fine class of
  its coarse class. Both lie farther from the reference than the negative does. Of these, method 1
  takes the ones nearest to the negative, method 2 those nearest to the reference. If no example is
  far enough, the one farthest from the reference is taken; the paper states this for method 2 and
  leaves it open for method 1.
"""

from functools import partial
from typing import Literal, NamedTuple, get_args

import jax
import jax.numpy as jnp

from jaxatr.mining.classes import Classes, order_classes
from jaxatr.mining.nearest import nearest_members
from jaxatr.typing import Array, Bool, Float, Int, Key

Method = Literal["nearest_to_negative", "nearest_to_reference", "random"]
SiblingClass = Literal["any", "drawn"]


class Quadruplets(NamedTuple):
    """One quadruplet per reference, as indices into the data set.

    Attributes:
      reference: the given references.
      positive: another example of the reference's fine class.
      sibling: an example of the same coarse class, but another fine class.
      negative: an example of another coarse class.
      valid: whether all three exist; otherwise their indices are the reference's.
    """

    reference: Int[Array, " r"]
    positive: Int[Array, " r"]
    sibling: Int[Array, " r"]
    negative: Int[Array, " r"]
    valid: Bool[Array, " r"]


@partial(jax.jit, static_argnames=("method", "sibling_class", "block_size"))
def quadruplets(
    embeddings: Float[Array, "n d"],
    fine: Int[Array, " n"],
    coarse: Int[Array, " n"],
    references: Int[Array, " r"],
    *,
    method: Method = "nearest_to_reference",
    key: Key,
    sibling_class: SiblingClass | None = None,
    block_size: int = 512,
) -> Quadruplets:
    """Selects a quadruplet for each reference (section 3.3).

    No array of size ``n * n`` is created: only the distances of ``block_size`` references to a
    chunk of examples exist at a time. Random draws depend on a reference's index, not on its
    position in ``references``, so the references can be divided among devices without changing the
    result. Ties go to the lower index.

    Args:
      embeddings: embeddings of the whole data set. Non-finite ones are never selected, except by
        ``"random"``, which ignores the embeddings.
      fine: fine class of each example; numbers may be reused under another coarse class.
      coarse: coarse class of each example.
      references: indices of the examples to select for; one outside ``[0, n)`` gives an invalid
        quadruplet.
      method: ``"nearest_to_negative"`` is the paper's method 1, ``"nearest_to_reference"`` its
        method 2; ``"random"`` draws each member uniformly from all suitable examples.
      key: random key of the draws.
      sibling_class: ``"any"`` selects the sibling from all suitable fine classes; ``"drawn"`` first
        draws one of them uniformly. By default only method 2 draws: the paper chooses its members
        "after selecting the labels".
      block_size: references per block.

    Raises:
      ValueError: the method or sibling class is unknown, the block size is below 1, the data set is
        empty, or the labels do not match the embeddings in length.
    """
    if method not in get_args(Method):
        raise ValueError(f"method: got {method!r}, wanted one of {', '.join(get_args(Method))}")
    if sibling_class not in (None, *get_args(SiblingClass)):
        raise ValueError(f"sibling_class: got {sibling_class!r}, wanted 'any' or 'drawn'")
    if block_size < 1:
        raise ValueError(f"block_size: got {block_size}, wanted at least 1")
    if not len(embeddings):
        raise ValueError("embeddings: got none, wanted at least one")
    for name, labels in (("fine", fine), ("coarse", coarse)):
        if len(labels) != len(embeddings):
            raise ValueError(
                f"{name}: got {len(labels)} labels, wanted {len(embeddings)}, one per embedding"
            )
    if sibling_class is None:
        sibling_class = "drawn" if method == "nearest_to_reference" else "any"
    classes = order_classes(fine, coarse)
    inside = (references >= 0) & (references < len(embeddings))
    given = references.astype(jnp.int32)
    references = jnp.where(inside, given, 0)
    keys = jax.vmap(partial(jax.random.fold_in, key))(references)
    drawn = _drawn_class(classes, references, keys) if sibling_class == "drawn" else None
    if method == "random":
        members = _random(classes, references, keys, drawn)
    else:
        members = nearest_members(
            embeddings,
            classes,
            references,
            drawn,
            from_negative=method == "nearest_to_negative",
            block_size=block_size,
        )
    valid = jnp.stack([inside, *(member >= 0 for member in members)]).all(0)
    positive, sibling, negative = (jnp.where(valid, member, given) for member in members)
    return Quadruplets(given, positive, sibling, negative, valid)


def _drawn_class(classes: Classes, references: Int[Array, " r"], keys: Array) -> Int[Array, " r"]:
    """Draws one of the other fine classes of each reference's coarse class; -1 if there is none."""
    first, own = classes.first_sibling[references], classes.fine[references]
    others = classes.siblings[references] - 1
    drawn = first + _draw(keys, 0, others)
    return jnp.where(others > 0, drawn + (drawn >= own).astype(jnp.int32), -1)


def _random(
    classes: Classes, references: Int[Array, " r"], keys: Array, drawn: Array | None
) -> tuple[Array, Array, Array]:
    """Draws positive, sibling and negative uniformly; -1 if there is none.

    In the classes' order, a coarse class is a range and a fine class a range within it. To draw
    from outside a range, a position among the remaining ones is drawn and moved past the range.
    """
    of = Classes(*(column[references] for column in classes))

    def outside(draw: int, start, count, hole_start, hole_count):
        remaining = count - hole_count
        place = start + _draw(keys, draw, remaining)
        place = jnp.where(place >= hole_start, place + hole_count, place)
        return jnp.where(remaining > 0, classes.order[place % len(classes.order)], -1)

    positive = outside(1, of.fine_start, of.fine_count, of.place, 1)
    negative = outside(3, 0, len(classes.order), of.coarse_start, of.coarse_count)
    if drawn is None:
        limits = of.coarse_start, of.coarse_count, of.fine_start, of.fine_count
        return positive, outside(2, *limits), negative
    # Every member of a class gives the position of the class.
    starts = jnp.zeros_like(classes.fine_start).at[classes.fine].set(classes.fine_start)
    counts = jnp.zeros_like(classes.fine_count).at[classes.fine].set(classes.fine_count)
    place = starts[drawn] + _draw(keys, 2, counts[drawn])
    sibling = jnp.where(drawn >= 0, classes.order[place % len(classes.order)], -1)
    return positive, sibling, negative


def _draw(keys: Array, number: int, count: Array) -> Int[Array, " r"]:
    """Draws a number below each count, or 0 for a count of 0; ``number`` distinguishes draws."""

    def one(key: Key, limit: Array) -> Array:
        return jax.random.randint(jax.random.fold_in(key, number), (), 0, limit, jnp.int32)

    limits = jnp.broadcast_to(count, keys.shape[:1])  # raw keys have a further axis
    return jax.vmap(one)(keys, jnp.maximum(limits, 1))
