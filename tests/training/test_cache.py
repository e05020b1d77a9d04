"""The folder of the compilation cache."""

import jax
import jax.numpy as jnp
import pytest
from jax.experimental.compilation_cache import compilation_cache

from jaxatr.training import enable_compilation_cache


@pytest.fixture(autouse=True)
def settings(compiled, monkeypatch, tmp_path):
    """An empty home folder without settings; the cache of this folder is restored afterwards."""
    for name in ("JAXATR_COMPILATION_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    jax.config.update("jax_compilation_cache_dir", None)
    yield
    enable_compilation_cache(compiled)


def test_the_default_is_in_the_users_cache_folder(tmp_path, monkeypatch):
    assert enable_compilation_cache() == tmp_path / ".cache/jaxatr/xla"
    jax.config.update("jax_compilation_cache_dir", None)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert enable_compilation_cache() == tmp_path / "xdg/jaxatr/xla"


def test_a_folder_that_cannot_be_made_is_reported_and_nothing_is_kept(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.warns(UserWarning, match="compiled programs are not cached: .*file"):
        assert enable_compilation_cache(tmp_path / "file" / "xla") is None


def test_a_folder_can_be_given(tmp_path, monkeypatch):
    jax.config.update("jax_compilation_cache_dir", str(tmp_path / "jax"))
    assert enable_compilation_cache() == tmp_path / "jax"
    monkeypatch.setenv("JAXATR_COMPILATION_CACHE", str(tmp_path / "variable"))
    assert enable_compilation_cache() == tmp_path / "variable"
    assert enable_compilation_cache(tmp_path / "argument") == tmp_path / "argument"


def test_programs_are_kept_unless_it_is_off(tmp_path, monkeypatch):
    def compile_something(size):
        jax.jit(lambda x: jnp.linalg.svd(x @ x.T)[1])(jnp.ones((size, size))).block_until_ready()

    folder = enable_compilation_cache(tmp_path / "on")
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    compile_something(5)
    kept = len(list(folder.iterdir()))
    assert kept > 0
    monkeypatch.setenv("JAXATR_COMPILATION_CACHE", "off")
    assert enable_compilation_cache() is None
    compilation_cache.reset_cache()
    compile_something(7)
    assert len(list(folder.iterdir())) == kept
