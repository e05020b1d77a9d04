"""Explanation methods, a file each, found by their place (:mod:`jaxatr.parts`).

Each module also has a function ``name(predict, images, *, targets=None, ...)``, which computes maps
``[b, h, w]`` and works with any model. ``predict`` maps float images ``[b, h, w, c]``, in the
caller's unit, to logits ``[b, k]``; each row must depend on its own image alone (batch
normalisation in test mode). Grad-CAM and Grad-CAM++ take a network in two parts instead,
``features`` and ``head``, with ``head(features(images))`` the logits.

- **Class**: ``targets``, or by default the predicted class, right or wrong.
- **Values**: each map is scaled to [0, 1] by its own minimum and maximum; a constant map is 0
  everywhere. With ``raw=True`` the values are in the method's own unit.
- **Compilation** is cached per function object, so pass the same one at each call. With a
  ``jax.tree_util.Partial(network, variables)``, the variables are arguments of the compiled code
  instead of constants, so that new values need no compilation; everything else it binds has to be
  convertible to an array too.
- **Loops** over copies and steps run on the host, with a compiled body, because XLA on CPUs is four
  times slower at convolutions inside its own loops. Under the caller's ``jax.jit`` they are
  unrolled. LIME cannot run under jit, because it computes superpixels on the host.
- **Memory**: methods that evaluate masked copies (RISE, LIME, occlusion) need that of one forward
  pass on ``batch_size`` copies; the others need that of one backward pass on all images.
- **Randomness**: random methods take a ``key`` and use the same draws for every image, so that up
  to rounding a map does not depend on the other images of the batch or on ``batch_size``.
"""

from collections.abc import Collection, Mapping
from types import MappingProxyType

from jaxatr.explain.method import Method
from jaxatr.parts import Parts

#: The package's methods, by name.
METHODS = Parts(__name__, Method, field="method")


def find_method(name: str, more: Mapping[str, Method] = MappingProxyType({})) -> Method:
    """Looks up a method by its name or an alias, or imports a user's own.

    Args:
      name: a name such as ``"rise"``, an alias such as ``"gradcam"``, or an import path such as
        ``"my.module:METHOD"``.
      more: methods to choose from besides the package's, by name.

    Raises:
      ValueError: the method does not exist, the path leads to something else, or the user's method
        has the name of one of the package, which would make records ambiguous.
    """
    if name in more:
        return more[name]
    if name not in METHODS and ":" not in name:
        for method in METHODS.values():
            if name in method.aliases:
                return method
    method = METHODS.find(name)
    if method.name == "surrogate":
        raise ValueError(f"method: {name} has the name of a built-in one, {method.name!r}")
    return method


def find_methods(names: str | Collection[str]) -> tuple[Method, ...]:
    """Looks up several methods, in the given order and without repetitions.

    Args:
      names: ``"all"`` for those in :data:`METHODS`, comma-separated names, or a collection of
        names; each is looked up by :func:`find_method`.

    Raises:
      ValueError: a method does not exist, or two different methods have the same name.
    """
    wanted = [name for name in names.split(",") if name] if isinstance(names, str) else [*names]
    if wanted == ["all"]:
        return tuple(METHODS.values())
    found: dict[str, Method] = {}
    for name in wanted:
        method = find_method(name)
        if found.setdefault(method.name, method) is not method:
            raise ValueError(f"methods: two of {', '.join(wanted)} have the name {method.name!r}")
    return tuple(found.values())


def method_title(name: str) -> str:
    """Returns the title of a recorded method; surrogates and users' methods keep their names."""
    return METHODS[name].title if name in METHODS else name
