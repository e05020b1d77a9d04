"""Files are written atomically, and errors name invalid paths as given."""

import pytest

from jaxatr import files


def test_a_path_that_cannot_be_a_file_is_named(tmp_path):
    with pytest.raises(OSError) as missing:
        files.write_text(tmp_path / "none" / "x.html", "text")
    assert (
        str(missing.value) == f"{tmp_path / 'none' / 'x.html'}: there is no folder {tmp_path}/none"
    )
    with pytest.raises(OSError) as folder:
        files.write_text(tmp_path, "text")
    assert str(folder.value) == f"{tmp_path} is a folder, wanted a file's name"
    assert not list(tmp_path.iterdir())


def test_an_error_leaves_the_file_as_it_was(tmp_path):
    files.write_text(tmp_path / "x", "before")
    with pytest.raises(RuntimeError), files.replacing(tmp_path / "x") as file:
        file.write(b"half")
        raise RuntimeError
    assert (tmp_path / "x").read_text() == "before" and len(list(tmp_path.iterdir())) == 1


def test_a_lock_is_waited_for_until_its_time_is_over(tmp_path):
    asked = []
    with files.locked(tmp_path / "lock"):
        with pytest.raises(TimeoutError, match="lock is held by another process"):
            with files.locked(tmp_path / "lock", seconds=0.0):
                pass
        with pytest.raises(TimeoutError, match="lock is held by another process"):
            with files.locked(tmp_path / "lock", given_up=lambda: asked.append(1) or True):
                pass
    assert asked == [1]
    with files.locked(tmp_path / "lock", seconds=0.0):
        pass
