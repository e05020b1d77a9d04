"""Tolerances for results, in the error measure of :func:`jaxatr.kernels.benchmark.relative_error`.

The values are those of MIOpen's driver.
"""

from collections.abc import Mapping

import jax

from jaxatr.kernels.device import Device

PLAIN = {"float32": 1.5e-6, "float16": 8.2e-3, "bfloat16": 8 * 8.2e-3, "float64": 1e-13}


def full_precision() -> bool:
    """Returns whether jax's ``default_matmul_precision`` asks for float32 products."""
    return jax.config.values["jax_default_matmul_precision"] in ("highest", "float32")


def of_products(dtype: str, device: Device, table: Mapping[str, float]) -> float:
    """Returns the tolerance for results of matrix products; it is 0 for integers.

    Unless jax's ``default_matmul_precision`` asks for more, ``float32`` products are computed in
    TF32 on a GPU, with the mantissa of ``float16``, and in ``bfloat16`` on a TPU.
    """
    if dtype == "float32" and not full_precision():
        dtype = {"cpu": "float32", "gpu": "float16"}.get(device.platform, "bfloat16")
    return table.get(dtype, 0.0)
