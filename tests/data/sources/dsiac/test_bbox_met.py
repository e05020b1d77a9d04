import pytest

from jaxatr.data.sources import dsiac


@pytest.fixture
def read(tmp_path):
    def reader(text):
        path = tmp_path / "clip.bbox_met"
        path.write_bytes(text.encode("latin-1"))
        return dsiac.read_corners(path)

    return reader


def test_every_line_is_a_corner(dsiac_files, read):
    rows = [(1, "054", 10, 20), (1, "55", 30.5, -4), (1800, "A-7", 0, 511)]
    corners = read(dsiac_files.metric(rows))
    assert corners.of == {(1, "54"): (10, 20), (1, "55"): (30.5, -4), (1800, "A-7"): (0, 511)}
    assert corners.problems == ()
    spaced = dsiac_files.metric(rows).replace(",", " ,\t").replace("\n", "\r\n\r\n")
    assert read(spaced).of == corners.of
    quoted = dsiac_files.metric(rows).replace("054", '"054"')
    assert read(quoted).of == corners.of


def test_an_empty_file_has_no_targets(read):
    assert read("").of == {} and read("\n\n").of == {}


@pytest.mark.parametrize(
    "line, match",
    [
        ("one,two", "a line of 2 columns, wanted 18"),
        ("site,na,base,cegr,02003,x1,54,3,NULL,1,2,3,4,5,6,7,8,9", "frame: got 'x1'"),
        ("site,na,base,cegr,02003,0,54,3,NULL,1,2,3,4,5,6,7,8,9", "frame: got '0'"),
        ("site,na,base,cegr,02003,2,54,3,NULL,NULL,2,3,4,5,6,7,8,9", "corner: got 'NULL', '2'"),
        ("site,na,base,cegr,02003,2,54,3,NULL,1,inf,3,4,5,6,7,8,9", "corner: got '1', 'inf'"),
        ("site,na,base,cegr,02003,2,54,3,NULL,1,2,3,4,5,6,7,8,9,10", "a line of 19 columns"),
    ],
)
def test_a_line_that_cannot_be_used_is_left_out(dsiac_files, read, line, match):
    good = dsiac_files.metric([(1, 54, 10, 20)])
    corners = read(good + line + "\n" + dsiac_files.metric([(3, 54, 1, 2)]))
    assert corners.of == {(1, "54"): (10, 20), (3, "54"): (1, 2)}
    assert corners.problems[0].startswith(f"byte {len(good)}: {match}")
    with pytest.raises(ValueError, match=f"clip.bbox_met: byte 0: {match}.*none of its lines"):
        read(line)


def test_lines_that_contradict_each_other_are_left_out(dsiac_files, read):
    rows = [(1, 54, 10, 20), (2, 54, 10, 20), (1, "054", 10, 21), (2, 54, 10, 20)]
    corners = read(dsiac_files.metric(rows))
    assert corners.of == {(2, "54"): (10, 20)}
    assert "another box of target 54 in frame 1" in corners.problems[0]
