"""Names that are unique in a whole model."""

from dataclasses import dataclass, field


@dataclass
class UniqueNames:
    """Hands out unique names.

    Attributes:
      taken: all names in use.
      counts: number of names derived from each prefixed name.
    """

    taken: set[str] = field(default_factory=set)
    counts: dict[str, int] = field(default_factory=dict)

    def fresh(self, name: str, prefix: str) -> str:
        """Returns an unused name: the given one if it is free, else one with the prefix."""
        unique, prefixed = name, f"{prefix}/{name}".lstrip("/")
        while not unique or unique in self.taken:
            count = self.counts[prefixed] = self.counts.get(prefixed, 0) + 1
            unique = prefixed if count == 1 else f"{prefixed}_{count}".lstrip("/")
        self.taken.add(unique)
        return unique
