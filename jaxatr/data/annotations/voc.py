"""Pascal VOC: an XML file for each image."""

from pathlib import Path
from xml.etree import ElementTree

from jaxatr.data.annotations.scene import PARTS, Collector
from jaxatr.files import read_regular

SUFFIX = ".xml"


def read(path: Path, into: Collector, below: Path) -> None:
    """Reads the boxes of one file.

    Pixels count from 1 in VOC, and a box includes its last pixel.

    Args:
      path: the file.
      into: takes the boxes.
      below: the folder that was given, which ``path`` is in.
    """
    name = str(path.relative_to(below))
    try:
        root = ElementTree.fromstring(read_regular(path))
    except (ElementTree.ParseError, OSError, ValueError, LookupError) as error:
        into.problem(name, f"not a readable XML file ({error})")
        return
    file_name = root.findtext("filename", "").strip()
    folder = path.parent.relative_to(below)
    image = _image(into, folder, file_name, path.stem)
    if image is None:
        into.problem(name, f"there is no image {file_name or path.stem} in {into.root}")
        return
    parts = {one for one, stems in _parts(below, into).items() if path.stem in stems}
    try:
        stated = [int(root.findtext(f"size/{side}", "0")) for side in ("height", "width")]
    except ValueError:
        stated = [0, 0]
    size = (stated[0], stated[1]) if all(stated) else None
    for part in parts or {""}:
        into.scene(image, part, size)
    for place, one in enumerate(root.iter("object")):
        sides = [one.findtext(f"bndbox/{side}", "nothing") for side in _SIDES]
        try:
            x0, y0, x1, y1 = map(float, sides)
        except ValueError:
            into.problem(f"{name}: object {place}", f"got a box {sides}, wanted numbers")
            continue
        into.box(
            image,
            (x0 - 1, y0 - 1, x1, y1),
            one.findtext("name", ""),
            f"{name}: object {place}",
            difficult=one.findtext("difficult", "0").strip() == "1",
        )


_SIDES = ("xmin", "ymin", "xmax", "ymax")


def _image(into: Collector, folder: Path, file_name: str, stem: str) -> str | None:
    """Finds the image of a file of annotations, below the scenes' folder."""
    names = [file_name] if file_name and into.is_below(file_name) else []
    names += [f"{stem}{suffix}" for suffix in (".jpg", ".png", ".tif", ".jpeg", ".bmp", ".npy")]
    for name in names:
        for place in (folder, folder.parent / "JPEGImages", Path(), Path("JPEGImages")):
            if into.has(found := (place / name).as_posix()):
                return found
    return None


def _parts(below: Path, into: Collector) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for base in (below, below.parent):
        for path in sorted((base / "ImageSets" / "Main").glob("*.txt")):
            if path.stem not in PARTS:
                continue
            try:
                lines = read_regular(path).decode("utf-8-sig").splitlines()
            except (OSError, UnicodeDecodeError) as error:
                into.problem(str(path), f"not a readable text file ({error})")
                continue
            found.setdefault(PARTS[path.stem], set()).update(line.strip() for line in lines)
    return found
