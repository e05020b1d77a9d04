"""The accepted error of a result, as MIOpen's driver has it.

See :func:`jaxatr.kernels.benchmark.relative_error`.
"""

from collections.abc import Mapping

import jax

from jaxatr.kernels.device import Device

PLAIN = {"float32": 1.5e-6, "float16": 8.2e-3, "bfloat16": 8 * 8.2e-3, "float64": 1e-13}


def of_products(dtype: str, device: Device, table: Mapping[str, float]) -> float:
    """Returns the accepted error of what is made of matrix products; integers must be exact.

    Unless jax's ``default_matmul_precision`` asks for more, products of ``float32`` are rounded as
    TF32 on a GPU, whose fraction is that of ``float16``, and as ``bfloat16`` on a TPU.
    """
    precise = jax.config.values["jax_default_matmul_precision"] in ("highest", "float32")
    if dtype == "float32" and not precise:
        dtype = {"cpu": "float32", "gpu": "float16"}.get(device.platform, "bfloat16")
    return table.get(dtype, 0.0)
