"""JAX's persistent compilation cache, which saves recompiling when a run is started again."""

import os
import warnings
from pathlib import Path

import jax

from jaxatr import files
from jaxatr.jax_internals import compilation_cache

VARIABLE = "JAXATR_COMPILATION_CACHE"


def enable_compilation_cache(path: str | os.PathLike | None = None) -> Path | None:
    """Enables JAX's persistent compilation cache. Call it before anything is compiled.

    Args:
      path: the cache folder, or ``"off"``. Defaults to the environment variable
        ``JAXATR_COMPILATION_CACHE`` (also a folder or ``off``), then to JAX's own setting
        (``JAX_COMPILATION_CACHE_DIR``), then to ``xla`` in the user's cache folder
        (:func:`jaxatr.files.cache_folder`).

    Returns:
      The folder in use; ``None`` if the cache is off or the folder cannot be created.
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
        warnings.warn(f"compiled programs are not cached: {error}", stacklevel=2)
        return None
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_enable_compilation_cache", True)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.02)
    compilation_cache.reset_cache()  # JAX reads its settings only once, possibly before this call
    return folder
