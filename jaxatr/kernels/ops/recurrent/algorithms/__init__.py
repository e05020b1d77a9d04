"""The algorithms, a file each, found by their place (:mod:`jaxatr.parts`)."""

from jaxatr.kernels.ops.recurrent.algorithm import Algorithm
from jaxatr.parts import Parts

#: All algorithms by name.
ALGORITHMS = Parts(__name__, Algorithm, field="algorithm")
