"""Methods of explanation: every module of this folder declares its own as ``METHOD``.

Each module has a function ``name(predict, images, *, targets=None, ...)`` too, which gives
``[b, h, w]`` and knows no model. ``predict`` maps float images ``[b, h, w, c]``, in the unit that
the caller uses, to logits ``[b, k]``, each row from its own image alone (batch normalisation as at
test time). Grad-CAM and Grad-CAM++ take a network in two parts instead: ``features`` and ``head``,
with ``head(features(images))`` the logits.

- **The class** is ``targets``, or the prediction's own, right or wrong.
- **The values** are in [0, 1], each map from its own least to its own greatest value; a constant
  map is 0 everywhere. With ``raw=True`` they are the method's own.
- **Compiled code** is kept for each function object: give the same one at each call. A
  ``jax.tree_util.Partial(network, variables)`` makes the variables arguments of that code, not
  constants in it, so that other variables need no new compilation; whatever else it holds must bear
  to become an array too.
- **Loops** over copies and steps are on the host, each turn compiled: on a CPU, XLA takes four
  times as long for convolutions within a loop of its own. Under a ``jax.jit`` of the caller they
  unroll; LIME, whose superpixels are found on the host, cannot be under one.
- **Memory** of the methods that try masked copies (RISE, LIME, occlusion) is that of one forward
  pass of ``batch_size`` copies; of the others, that of one backward pass of all images.
- **Random methods** take a ``key``; every image gets the same draws, so that its map does not
  depend on the images next to it, nor on ``batch_size``, but for rounding.
"""

import importlib
import pkgutil
from collections.abc import Collection, Mapping

from jaxatr.explain.method import Method
from jaxatr.resolve import nearest, resolve


def _methods() -> dict[str, Method]:
    modules = (
        importlib.import_module(f"{__name__}.{found.name}")
        for found in pkgutil.iter_modules(__path__)
    )
    return {module.METHOD.name: module.METHOD for module in modules}


#: By name; each needs nothing but the network, and a surrogate can be compared with it.
METHODS: dict[str, Method] = _methods()


def find_method(name: str, among: Mapping[str, Method] = METHODS) -> Method:
    """Finds a method by its name, by an alias, or by the dotted path of a user's own.

    Args:
      name: ``"rise"``, ``"gradcam"`` or ``"my.module:METHOD"``.
      among: the methods that have a name, by it.

    Raises:
      ValueError: there is no such method, or the path names something else, or a method whose name
        is taken: records could not tell the two apart.
    """
    if ":" in name:
        return _users_own(name)
    for method in among.values():
        if name in (method.name, *method.aliases):
            return method
    raise ValueError(
        f"method: got {name!r}, wanted one of {', '.join(among)} or 'module:NAME' of your own"
        f"{nearest(name, among)}"
    )


def _users_own(path: str) -> Method:
    found = resolve(path)
    if not isinstance(found, Method):
        raise ValueError(
            f"method: {path} is of type {type(found).__name__}, wanted a jaxatr.explain.Method"
        )
    if found.name == "surrogate" or METHODS.get(found.name, found) is not found:
        raise ValueError(f"method: {path} is called {found.name!r}, as a method of jaxatr is")
    return found


def find_methods(names: str | Collection[str]) -> tuple[Method, ...]:
    """Finds several methods, each once, in the order given.

    Args:
      names: ``"all"`` of :data:`METHODS`, names with commas between them, or a collection of names,
        each for :func:`find_method`.

    Raises:
      ValueError: there is no such method, or two have one name.
    """
    wanted = [name for name in names.split(",") if name] if isinstance(names, str) else [*names]
    if wanted == ["all"]:
        return tuple(METHODS.values())
    found: dict[str, Method] = {}
    for name in wanted:
        method = find_method(name)
        if found.setdefault(method.name, method) is not method:
            raise ValueError(f"methods: two of {', '.join(wanted)} are called {method.name!r}")
    return tuple(found.values())


def method_title(name: str) -> str:
    """Looks up the name in print of a recorded method; of a surrogate or a user's, the same."""
    return METHODS[name].title if name in METHODS else name
