"""The clips of a copy of the database: which files belong together, and what they were taken of."""

from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from jaxatr.data.reasons import Reasons
from jaxatr.data.sources.dsiac.names import SCENARIOS, ClipName, clip_name

ARF, AGT, METRIC = ".arf", ".agt", ".bbox_met"
_LAYOUT = "cegr/arf/*.arf, cegr/agt/*.agt, i1co/arf/*.arf, i1co/agt/*.agt and Metric/*.bbox_met"


@dataclass(frozen=True)
class Clip:
    """A clip of which there is imagery.

    Attributes:
      name: its name, taken apart.
      range_m: of its scenario.
      time: ``"day"`` or ``"night"``.
      arf: the imagery.
      agt: the ground truth, or None where there is none.
      metric: the boxes, or None; the visible clips have none in the copies that are known.
    """

    name: ClipName
    range_m: int
    time: str
    arf: Path
    agt: Path | None
    metric: Path | None


def find_clips(root: Path, paths: list[PurePosixPath], left_out: Reasons) -> list[Clip]:
    """Returns the clips among the files below a folder, by name.

    Files are told by their names, in upper or lower case, in whatever folder they lie.

    Args:
      root: the folder.
      paths: of its files, relative to it.
      left_out: is told of imagery that is of no vehicle.

    Raises:
      ValueError: there is no imagery, or two files claim to be the same.
    """
    found: dict[str, dict[str, PurePosixPath]] = {ARF: {}, AGT: {}, METRIC: {}}
    for path in paths:
        kind = found.get(path.suffix.lower())
        if kind is None:
            continue
        first = kind.setdefault(path.stem.lower(), path)
        if first != path:
            raise ValueError(f"{root / first} and {root / path} have the same name")
    if not found[ARF]:
        raise ValueError(f"no imagery below {root}; looked for {_LAYOUT}")
    clips = []
    for stem, path in sorted(found[ARF].items()):
        name = clip_name(stem)
        if name is None:
            left_out.add("files without a clip's name, as cegr02003_0001 is one", str(path))
        elif name.scenario not in SCENARIOS:
            left_out.add("clips whose scenario is none of the vehicles'", str(path))
        else:
            beside = [found[kind].get(stem) for kind in (AGT, METRIC)]
            agt, metric = (root / other if other else None for other in beside)
            clips.append(Clip(name, *SCENARIOS[name.scenario], root / path, agt, metric))
    return clips
