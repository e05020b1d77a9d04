import errno
import os
from pathlib import PurePosixPath

import pytest

from jaxatr.data.files_below import file_states, files_below, iterate_visible


@pytest.fixture
def root(tmp_path):
    for name in ("a/z.arf", "a/b/y.agt", "c.met"):
        path = tmp_path / "root" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    return tmp_path / "root"


def test_all_files_sorted_by_path(root):
    wanted = [PurePosixPath(name) for name in ("a/b/y.agt", "a/z.arf", "c.met")]
    assert files_below(root) == wanted
    (root / "a/round").symlink_to(root)
    (root / "same.arf").symlink_to(root / "a/z.arf")
    assert files_below(root) == wanted


def test_links_that_lead_out_are_followed(root):
    outside = root.parent / "outside"
    outside.mkdir()
    (outside / "file").write_text("")
    (outside / "back").symlink_to(outside)
    (outside / "home").symlink_to(root)
    (root / "a/link").symlink_to(outside)
    (root / "one").symlink_to(outside / "file")
    (root / "nothing").symlink_to(root.parent / "gone")
    wanted = ["a/b/y.agt", "a/link/file", "a/z.arf", "c.met", "one"]
    assert [str(path) for path in files_below(root)] == wanted


def test_a_missing_folder_is_named(tmp_path):
    with pytest.raises(ValueError, match="there is no folder .*gone"):
        files_below(tmp_path / "gone")
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match="file is a file, wanted a folder"):
        files_below(tmp_path / "file")


def test_a_folder_that_cannot_be_listed_is_an_error_at_its_place(root, monkeypatch):
    whole = os.scandir

    def scandir(path):
        if os.fspath(path) == str(root / "a/b"):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return whole(path)

    monkeypatch.setattr(os, "scandir", scandir)
    closed, *others = iterate_visible(root)
    assert isinstance(closed.error, PermissionError) and closed.path == PurePosixPath("a/b")
    assert [str(one.path) for one in others] == ["a/z.arf", "c.met"]
    assert not any(one.error for one in others)
    with pytest.raises(PermissionError, match="a/b"):
        files_below(root)


def test_links_in_a_circle_outside_lead_to_nothing(root):
    (root.parent / "one").symlink_to(root.parent / "other")
    (root.parent / "other").symlink_to(root.parent / "one")
    (root / "b").symlink_to(root.parent / "one")
    files, passed = walked(root)
    assert files == ["a/b/y.agt", "a/z.arf", "c.met"] and passed == {"b": "links to nothing"}


def test_the_state_changes_with_a_file(root):
    paths = files_below(root)
    before = file_states(root, paths)
    assert file_states(root, paths) == before and before[0][:2] == ["a/b/y.agt", 9]
    (root / "a/z.arf").write_text("other")
    assert file_states(root, paths) != before


def test_a_link_to_a_hidden_file_is_followed(root):
    """git-annex and DVC keep the contents in hidden folders."""
    hidden = root / ".git/annex/object"
    hidden.parent.mkdir(parents=True)
    hidden.write_text("")
    (root / "a/x.png").symlink_to(hidden)
    assert walked(root) == (["a/b/y.agt", "a/x.png", "a/z.arf", "c.met"], {})


def walked(root):
    """Returns the paths of files, and those that are passed over with the reason."""
    found = [(str(one.path), one.passed) for one in iterate_visible(root)]
    return [path for path, passed in found if not passed], dict(one for one in found if one[1])


def test_links_are_followed_and_each_folder_is_read_once(root):
    again, nothing = "folders that are read at another path", "links to nothing"
    outside = root.parent / "outside"
    (outside / "inner").mkdir(parents=True)
    (outside / "inner/file").write_text("")
    (outside / "home").symlink_to(root)
    (root / "a/file").symlink_to(root / "c.met")
    (root / "a/first").symlink_to(outside / "inner")
    (root / "a/link").symlink_to(outside)
    (root / "a/round").symlink_to(root)
    (root / "a/up").symlink_to(root.parent)
    (root / "gone").symlink_to(root.parent / "gone")
    (root / "itself").symlink_to("itself")
    (root / "second").symlink_to(outside)
    files, passed = walked(root)
    assert files == ["a/b/y.agt", "a/file", "a/first/file", "a/z.arf", "c.met"]
    assert passed == {
        **dict.fromkeys(["a/link/home", "a/link/inner", "a/round", "second"], again),
        **dict.fromkeys(["a/up/root", "a/up/outside"], again),
        **dict.fromkeys(["gone", "itself"], nothing),
    }
    assert "itself" not in map(str, files_below(root))


def test_a_folder_is_read_at_its_own_place_and_not_at_a_link_before_it(root):
    (root / "0").symlink_to(root / "a")
    assert walked(root) == (
        ["a/b/y.agt", "a/z.arf", "c.met"],
        {"0": "folders that are read at another path"},
    )


def test_a_hidden_folder_is_read_through_the_first_link(root):
    (root / ".store/x").mkdir(parents=True)
    (root / ".store/x/file").write_text("")
    (root / "d").symlink_to(root / ".store/x")
    (root / "e").symlink_to(root / ".store/x")
    files, passed = walked(root)
    assert "d/file" in files and list(passed) == ["e"]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_a_pipe_is_passed_over(root):
    os.mkfifo(root / "pipe.png")
    assert walked(root)[1] == {"pipe.png": "devices, pipes and sockets"}
