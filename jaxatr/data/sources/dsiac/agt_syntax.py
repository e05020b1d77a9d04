"""A fault-tolerant parser of AGT ground truth, which keeps the whole file as a tree of blocks.

The grammar is ``Name { … }`` for blocks and ``Name value …`` for statements. Files that violate it
are common: unknown names, missing braces, unterminated strings. Problems are reported, and
everything intact is kept.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

# The nesting depth of each block. Opening a block closes any open block of the same depth or
# deeper, so that a missing brace costs one block only.
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
    """A name and its values.

    Attributes:
      name: in lower case.
      at: byte offset in the file.
      values: numbers, words and strings, the strings without their quotes.
      complete: False if one of its strings is unterminated.
    """

    name: str
    at: int
    values: list[str] = field(default_factory=list)
    complete: bool = True


@dataclass
class Block:
    """A name and the content of its braces.

    Attributes:
      name: in lower case.
      at: byte offset in the file.
      statements: its statements, known and unknown ones.
      blocks: its inner blocks.
      closed: whether it is closed by a brace of its own.
    """

    name: str
    at: int
    statements: list[Statement] = field(default_factory=list)
    blocks: list["Block"] = field(default_factory=list)
    closed: bool = False

    def walk(self, name: str) -> Iterator["Block"]:
        """Yields the blocks of this name below this one, in file order."""
        waiting = [*reversed(self.blocks)]
        while waiting:
            block = waiting.pop()
            if block.name == name:
                yield block
            waiting += reversed(block.blocks)


def parse(text: str) -> tuple[Block, list[str]]:
    """Parses a file into a nameless root block and a list of problems.

    Args:
      text: the file's content, one character per byte, so that positions are byte offsets.

    Returns:
      ``(root, problems)``; each problem gives its byte offset.
    """
    parser = _Parser()
    for token in _TOKEN.finditer(text):
        parser.take(token)
    return parser.finish(len(text))


class _Parser:
    def __init__(self) -> None:
        self._root = Block("", 0)
        self._open = [self._root]
        self._depths: list[tuple[int, int]] = []  # (depth, index) of open blocks with a known depth
        self._problems: list[str] = []
        self._statement: Statement | None = None
        self._new_line = True
        self._word: tuple[str, int] | None = None  # the last token, if it was a word

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
            self._problems.append(f"byte {at}: an unterminated string")
        if self._statement is None:
            self._problems.append(f"byte {at}: a string without a name")
        elif string is None:
            self._statement.complete = False
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
        """Removes the word before the brace from its statement, and returns it with its offset."""
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
            self._problems.append(f"byte {at}: an unmatched closing brace")
        else:
            self._open.pop().closed = True
            if self._depths and self._depths[-1][1] == len(self._open):
                self._depths.pop()
