"""Saliency maps: which pixels of an image speak for a class.

Every method takes functions and knows no model: ``name(predict, images, *, targets=None, ...)``
gives ``[b, h, w]``. ``predict`` maps float images ``[b, h, w, c]``, in the unit that the caller
uses, to logits ``[b, k]``, each row from its own image alone (batch normalisation as at test time).
:func:`grad_cam` and :func:`grad_cam_plus_plus` take a network in two parts instead: ``features``
and ``head``, with ``head(features(images))`` the logits.

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

from jaxatr.explainers.grad_cam import grad_cam, grad_cam_plus_plus
from jaxatr.explainers.integrated_gradients import integrated_gradients
from jaxatr.explainers.lime import lime
from jaxatr.explainers.occlusion import occlusion
from jaxatr.explainers.rise import rise, rise_masks
from jaxatr.explainers.smoothgrad import smoothgrad
from jaxatr.explainers.superpixels import quickshift

__all__ = [
    "grad_cam",
    "grad_cam_plus_plus",
    "integrated_gradients",
    "lime",
    "occlusion",
    "quickshift",
    "rise",
    "rise_masks",
    "smoothgrad",
]
