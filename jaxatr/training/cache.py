"""jax's persistent compilation cache: the second start of a run does not compile again."""

import os
import warnings
from pathlib import Path

import jax
from jax.experimental.compilation_cache import compilation_cache

from jaxatr import files

VARIABLE = "JAXATR_COMPILATION_CACHE"


def enable_compilation_cache(path: str | os.PathLike | None = None) -> Path | None:
    """Keeps compiled programs in a folder, from here on: call it before anything is compiled.

    Args:
      path: the folder, or ``"off"``. Default: what the environment variable
        ``JAXATR_COMPILATION_CACHE`` says (also a folder or ``off``), else the folder that jax was
        given itself (``JAX_COMPILATION_CACHE_DIR``), else ``xla`` in the user's cache folder
        (:func:`jaxatr.files.cache_folder`).

    Returns:
      The folder in use, ``None`` when it is off or cannot be created.
    """
    configured = jax.config.values["jax_compilation_cache_dir"]
    chosen = str(path or os.environ.get(VARIABLE) or configured or "")
    if chosen == "off":
        jax.config.update("jax_enable_compilation_cache", False)
        return None
    folder = Path(chosen).expanduser() if chosen else files.cache_folder() / "xla"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        warnings.warn(f"compiled programs are not kept: {error}", stacklevel=2)
        return None
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_enable_compilation_cache", True)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)
    compilation_cache.reset_cache()  # jax looks at its settings once, and that may have been before
    return folder
