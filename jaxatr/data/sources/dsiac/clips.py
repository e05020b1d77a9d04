"""Discovery of the database's clips: imagery with its ground truth and metric files."""

from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from jaxatr.data.reasons import Reasons
from jaxatr.data.sources.dsiac.names import SCENARIOS, ClipName, clip_name

ARF, AGT, METRIC = ".arf", ".agt", ".bbox_met"
_LAYOUT = "cegr/arf/*.arf, cegr/agt/*.agt, i1co/arf/*.arf, i1co/agt/*.agt and Metric/*.bbox_met"


@dataclass(frozen=True)
class Clip:
    """A clip with imagery.

    Attributes:
      name: its parsed name.
      range_m: range of its scenario.
      time: ``"day"`` or ``"night"``.
      arf: the file with the imagery.
      agt: the file with the ground truth, or None.
      metric: the file with the boxes, or None; known copies have none for visible clips.
    """

    name: ClipName
    range_m: int
    time: str
    arf: Path
    agt: Path | None
    metric: Path | None


def find_clips(root: Path, paths: list[PurePosixPath], left_out: Reasons) -> list[Clip]:
    """Finds the clips among the files below a folder, sorted by name.

    Files are recognised by name, ignoring case, in any subfolder.

    Args:
      root: the folder.
      paths: paths of its files, relative to it.
      left_out: collects imagery that does not show a vehicle.

    Raises:
      ValueError: there is no imagery, or two files have the same name.
    """
    files: dict[str, dict[str, PurePosixPath]] = {ARF: {}, AGT: {}, METRIC: {}}
    for path in paths:
        kind = files.get(path.suffix.lower())
        if kind is None:
            continue
        first = kind.setdefault(path.stem.lower(), path)
        if first != path:
            raise ValueError(f"{root / first} and {root / path} have the same name")
    if not files[ARF]:
        raise ValueError(f"no imagery below {root}; looked for {_LAYOUT}")
    clips = []
    for stem, path in sorted(files[ARF].items()):
        name = clip_name(stem)
        if name is None:
            left_out.add("files not named like a clip (such as cegr02003_0001)", str(path))
        elif name.scenario not in SCENARIOS:
            left_out.add("clips of scenarios without vehicles", str(path))
        else:
            beside = [files[kind].get(stem) for kind in (AGT, METRIC)]
            agt, metric = (root / other if other else None for other in beside)
            clips.append(Clip(name, *SCENARIOS[name.scenario], root / path, agt, metric))
    return clips
