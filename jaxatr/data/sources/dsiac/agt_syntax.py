"""The syntax of AGT ground truth: a tree of blocks that loses nothing and fails on nothing.

The grammar is ``Name { … }`` for blocks and ``Name value …`` for statements, and files that break
it are common: names nobody knows, braces left out, strings without an end. What is wrong is noted,
and what is whole is kept.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

# How deep a block belongs: one that is opened while another of its depth is open ends that one,
# so that one lost brace costs one block.
_DEPTHS = {
    "agt": 0,
    "prjsect": 1,
    "sensect": 1,
    "tgtsect": 1,
    "senupd": 2,
    "tgtupd": 2,
    "tgt": 3,
    "tgtsenrel": 4,
    "tgtabs": 4,
}
_FIELDS = frozenset(
    "comment keyword aspect azimuth elevation fov latlong name obscuration pitch pixbox pixloc "
    "pixrange plyid range roll scenario site stake tgttype time utm".split()
)
_TOKEN = re.compile(r'"(?P<string>[^"\n]*)"|(?P<mark>[{}\n"])|(?P<word>[^\s{}"]+)')
_NAME = re.compile(r"[A-Za-z_]\w*")


@dataclass
class Statement:
    """A name and what follows it.

    Attributes:
      name: in lower case.
      at: the byte at which it stands.
      values: numbers, words and strings, the strings without their quotes.
      whole: False if one of its strings has no end.
    """

    name: str
    at: int
    values: list[str] = field(default_factory=list)
    whole: bool = True


@dataclass
class Block:
    """A name and what its braces hold.

    Attributes:
      name: in lower case.
      at: the byte at which it stands.
      statements: in it, known and unknown ones.
      blocks: in it.
      closed: whether a brace of its own ends it.
    """

    name: str
    at: int
    statements: list[Statement] = field(default_factory=list)
    blocks: list["Block"] = field(default_factory=list)
    closed: bool = False

    def walk(self, name: str) -> Iterator["Block"]:
        """Yields the blocks of that name below this one, in the order of the file."""
        waiting = [*reversed(self.blocks)]
        while waiting:
            block = waiting.pop()
            if block.name == name:
                yield block
            waiting += reversed(block.blocks)


def parse(text: str) -> tuple[Block, list[str]]:
    """Returns the file's blocks below a nameless one, and what is wrong with it.

    Args:
      text: one character a byte, so that places can be given as bytes.

    Returns:
      ``(root, problems)``; each problem names its byte.
    """
    parser = _Parser()
    for token in _TOKEN.finditer(text):
        parser.take(token)
    return parser.finish(len(text))


class _Parser:
    def __init__(self) -> None:
        self._root = Block("", 0)
        self._open = [self._root]
        self._depths: list[tuple[int, int]] = []  # of the open ones that have one, and their place
        self._problems: list[str] = []
        self._statement: Statement | None = None
        self._new_line = True
        self._word: tuple[str, int] | None = None  # the last token, if it was one

    def take(self, token: re.Match[str]) -> None:
        word, mark, at = token["word"], token["mark"], token.start()
        if mark == "\n":
            self._new_line = True  # a brace on the next line still belongs to the word
            return
        if word is not None:
            self._take_word(word, at)
        elif mark == "{":
            self._open_block(at)
        elif mark == "}":
            self._close_block(at)
        else:
            self._take_string(token["string"], at)
        self._word = (word, at) if word is not None else None
        self._new_line = False

    def finish(self, end: int) -> tuple[Block, list[str]]:
        for block in self._open[1:]:
            self._problems.append(f"byte {end}: the file ends within {block.name} of {block.at}")
        return self._root, self._problems

    def _take_word(self, word: str, at: int) -> None:
        name = word.lower()
        is_name = name in _FIELDS or name in _DEPTHS
        if is_name or self._statement is None or (self._new_line and _NAME.fullmatch(word)):
            self._statement = Statement(name, at)
            self._open[-1].statements.append(self._statement)
        else:
            self._statement.values.append(word)

    def _take_string(self, string: str | None, at: int) -> None:
        if string is None:
            self._problems.append(f"byte {at}: a string without an end")
        if self._statement is None:
            self._problems.append(f"byte {at}: a string without a name")
        elif string is None:
            self._statement.whole = False
        else:
            self._statement.values.append(string)

    def _open_block(self, at: int) -> None:
        name, at = self._block_name(at)
        if (depth := _DEPTHS.get(name)) is not None:
            ends = len(self._open)
            while self._depths and self._depths[-1][0] >= depth:
                ends = self._depths.pop()[1]
            for block in self._open[ends:]:
                self._problems.append(f"byte {at}: {block.name} of {block.at} is not closed")
            del self._open[ends:]
            self._depths.append((depth, len(self._open)))
        block = Block(name, at)
        self._open[-1].blocks.append(block)
        self._open.append(block)
        self._statement = None

    def _block_name(self, at: int) -> tuple[str, int]:
        """Takes the word before the brace back from where it was put."""
        if self._word is None:
            self._problems.append(f"byte {at}: a block without a name")
            return "", at
        word, place = self._word
        statements = self._open[-1].statements
        if statements[-1].at == place:
            statements.pop()
        else:
            statements[-1].values.pop()
        return word.lower(), place

    def _close_block(self, at: int) -> None:
        self._statement = None
        if len(self._open) == 1:
            self._problems.append(f"byte {at}: a brace that closes nothing")
        else:
            self._open.pop().closed = True
            if self._depths and self._depths[-1][1] == len(self._open):
                self._depths.pop()
