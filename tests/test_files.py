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
