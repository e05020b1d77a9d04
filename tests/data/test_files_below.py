from pathlib import PurePosixPath

import pytest

from jaxatr.data.files_below import file_states, files_below


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


@pytest.mark.parametrize("target", ["outside", "outside/file"])
def test_links_may_not_lead_out(root, target):
    (root.parent / "outside").mkdir()
    (root.parent / "outside/file").write_text("")
    (root / "a/link").symlink_to(root.parent / target)
    with pytest.raises(ValueError, match="a/link is a link that leads out of the data folder"):
        files_below(root)


def test_a_missing_folder_is_named(tmp_path):
    with pytest.raises(ValueError, match="there is no folder .*gone"):
        files_below(tmp_path / "gone")


def test_the_state_changes_with_a_file(root):
    paths = files_below(root)
    before = file_states(root, paths)
    assert file_states(root, paths) == before and before[0][:2] == ["a/b/y.agt", 9]
    (root / "a/z.arf").write_text("other")
    assert file_states(root, paths) != before
