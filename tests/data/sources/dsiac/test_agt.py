import pytest

from jaxatr.data.sources import dsiac


@pytest.fixture
def read(tmp_path):
    def reader(text):
        path = tmp_path / "clip.agt"
        path.write_bytes(text if isinstance(text, bytes) else text.encode("latin-1"))
        return dsiac.read_agt(path)

    return reader


def plain(truth):
    """Returns everything that is read, without byte offsets."""
    return {
        number: [(t.kind, t.ply, t.aspect_deg, t.range_m, t.pixel, t.box) for t in targets]
        for number, targets in truth.frames.items()
    }


EXAMPLE = """Agt
 {
  SenSect
   {
    Fov      3.4 2.6
    SenUpd
     {
      Time      2005 256  9  9 56 637
      Range     520.34
      Keyword   "Frame# 1"
     }
   }
  TgtSect
   {
    Comment "by hand"
    TgtUpd
     {
      Time     2005 256  9  9 56 637
      Keyword  "Frame# 1"
      Tgt
       {
        TgtType     "ZSU23-4"
        PlyId       "007"
        Aspect      123.45
        Range       384
        PixLoc      -3 322
        PixBox      62 317 82 327
        TgtAbs
         {
          Utm          323252 4305776 33
          LatLong      38 52 59 "N" 77 02 16 "W"
         }
       }
      Tgt { TgtType "T72" PlyId "8" Aspect -90 PixLoc 5. 6.5 }
     }
   }
 }
"""


def test_the_example(read):
    truth = read(EXAMPLE)
    assert plain(truth) == {
        1: [
            ("ZSU23-4", "7", 123.45, 384.0, (-3.0, 322.0), (62.0, 317.0, 82.0, 327.0)),
            ("T72", "8", 270.0, None, (5.0, 6.5), None),
        ]
    }
    assert truth.fov_deg == (3.4, 2.6) and truth.problems == ()
    assert EXAMPLE[truth.frames[1][0].at :].startswith("Tgt\n")
    place = next(truth.tree.walk("tgtabs"))
    assert place.statements[1].values == ["38", "52", "59", "N", "77", "02", "16", "W"]


def test_a_whole_file(dsiac_files, read, unchecked):
    frames = {n: [dsiac_files.target(pixel=(n, 2 * n), aspect=n / 5)] for n in range(1, 1801)}
    truth = read(dsiac_files.agt(frames))
    assert truth.problems == () and truth.fov_deg is None
    assert plain(truth) == {
        n: [("T72", "54", n / 5 % 360, 1000.0, (float(n), 2.0 * n), None)] for n in frames
    }


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace("\n", "\r\n"),
        lambda text: " ".join(text.split()),
        lambda text: text.replace("  ", "\t"),
        lambda text: text.replace("{", '{ Weather "fog" Humidity 80 percent Wind { 3 4 }\n'),
        lambda text: text.replace("   Aspect", "Stranger than fiction\n Aspect"),
        lambda text: text.replace('Keyword  "Frame# 1"', 'Comment "Frame 1"'),
        lambda text: text.replace("Keyword", "KEYWORD").replace("TgtUpd", "tgtupd"),
        lambda text: 'no header that anyone knows 12 "x"\n' + text,
        lambda text: text + "} } }",
        lambda text: text.rstrip("} \n"),
        lambda text: text.replace('"by hand"', '"by hand'),
        lambda text: text.replace("by hand", "K\xe4fer \xff\x00"),
        lambda text: text.replace("   }\n  TgtSect", "  TgtSect"),  # SenSect is never closed
    ],
)
def test_violations_of_the_specification_do_no_harm(read, change):
    whole, broken = read(EXAMPLE), read(change(EXAMPLE))
    if change(EXAMPLE).endswith("6.5"):  # the last target is truncated and loses its fields
        assert plain(broken)[1] == plain(whole)[1][:1]
    else:
        assert plain(broken) == plain(whole)


@pytest.mark.parametrize(
    "before, after, place",
    [
        ("PixLoc      -3 322", "PixLoc      -3 32 2", 4),
        ("PixLoc      -3 322", "PixLoc      -3", 4),
        ("PixLoc      -3 322", "PixLoc      -3 3x2", 4),
        ("PixLoc      -3 322", "PixLoc      -3 1e999", 4),
        ("PixLoc      -3 322", "PixLoc      nan inf", 4),
        ("PixLoc      -3 322", "PixLoc -3 322\nPixLoc 4 4", 4),
        ("PixBox      62 317 82 327", "PixBox      62 317 82", 5),
        ("Aspect      123.45", "Aspect      1234.5", 2),
        ("Range       384", "Range       384 m", 3),
        ('"ZSU23-4"', '"ZSU23-4', 0),
        ('"007"', '"007"\nPlyId "9"', 1),
    ],
)
def test_a_value_in_doubt_is_not_used(read, before, after, place):
    truth = read(EXAMPLE.replace(before, after))
    wanted = [list(row) for row in plain(read(EXAMPLE))[1]]
    wanted[0][place] = None
    assert [list(row) for row in plain(truth)[1]] == wanted
    assert len(truth.problems) >= 1 and all(text.startswith("byte ") for text in truth.problems)


def test_a_target_cut_short_is_not_used(dsiac_files, read, unchecked):
    text = dsiac_files.agt({n: [dsiac_files.target(pixel=(n, 345))] for n in (1, 2, 3)})
    whole = plain(read(text))
    for end in range(text.index("Frame# 3") + 9, text.rindex("Tgt")):
        assert plain(read(text[:end])) == {**whole, 3: []}
    for end in range(text.rindex("PixLoc"), text.rindex("Speed")):
        truth = read(text[:end])
        assert plain(truth)[3] == [] and plain(truth)[2] == whole[2]
        assert any("the file ends within tgt" in problem for problem in truth.problems)


def test_a_lost_brace_costs_one_block(dsiac_files, read, unchecked):
    frames = {n: [dsiac_files.target(pixel=(n, 9))] for n in (1, 2, 3)}
    text = dsiac_files.agt(frames)
    places = [i for i, character in enumerate(text) if character in "{}"]
    whole = plain(read(text))
    for place in places:
        found = plain(read(text[:place] + text[place + 1 :]))
        assert sum(found.get(n) == whole[n] for n in whole) >= 2, text[place - 40 : place + 1]


def test_frames_that_several_updates_claim_are_not_used(dsiac_files, read):
    text = dsiac_files.agt({n: [dsiac_files.target()] for n in (1, 2, 3)})
    truth = read(text.replace("Frame# 3", "Frame# 2"))
    assert set(truth.frames) == {1}
    assert sum("frame 2 has several updates" in problem for problem in truth.problems) == 2


def test_updates_without_any_frame_number_count_in_order(dsiac_files, read):
    targets = [[dsiac_files.target(pixel=(n, 0))] for n in range(3)]
    truth = read(dsiac_files.agt(dict(enumerate(targets, 7)), note=None))
    assert [truth.frames[n][0].pixel[0] for n in (1, 2, 3)] == [0, 1, 2]
    assert "no update has a frame number: counted in order" in truth.problems[0]
    some = dsiac_files.agt(dict(enumerate(targets, 7))).replace('Keyword  "Frame# 8"', "")
    assert set(read(some).frames) == {7, 9}
    assert set(read(some.replace("Frame# 7", "Frame# 0")).frames) == {9}


def test_a_target_out_of_place_is_noted(read):
    text = EXAMPLE.replace("      Tgt { Tgt", "     }\n Tgt { Tgt")
    truth = read(text)
    assert len(truth.frames[1]) == 1
    assert any("a Tgt outside of every TgtUpd" in problem for problem in truth.problems)


@pytest.mark.parametrize("fov", ["3.4 2.6\n Fov 4 3", "0 2.6", "120 90", "3.4", "wide"])
def test_a_field_of_view_in_doubt_is_not_used(read, fov):
    truth = read(EXAMPLE.replace("3.4 2.6", fov))
    assert truth.fov_deg is None and truth.problems


@pytest.mark.parametrize(
    "content, match",
    [
        (b"", "byte 0: no TgtUpd in the file"),
        (b"Agt { TgtSect { } }", "byte 19: no TgtUpd in the file"),
        (b"\xbb\xbb\xba\xad" * 9, "byte 36: no TgtUpd"),
        (b"{" * 5_000, "byte 0: a block without a name"),
        (b"}" * 1000, "byte 0: an unmatched closing brace"),
        (b'TgtUpd { Keyword "Frame# 1" ', None),
        (b'TgtUpd { Keyword "Frame# 1 } ', "byte 17: an unterminated string"),
    ],
)
def test_a_file_without_a_frame_is_refused(read, content, match):
    if match is None:
        assert plain(read(content)) == {1: []}
    else:
        with pytest.raises(ValueError, match=f"clip.agt: {match}.*none of its frames can be used"):
            read(content)
