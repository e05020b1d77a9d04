"""The options of a console, and its limits."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Limits:
    """Bounds on the time and memory that anybody may cost.

    Attributes:
      pixels: of an image; more are refused before it is unpacked.
      body: bytes of a request.
      images: in a request.
      held: bytes of all requests that are being read or answered.
      requests: at once; more are told to come again.
      connections: at once.
      waiting: chips that wait for a batch; beyond that a request is told to come again.
      head_seconds: for a request's head to arrive.
      body_seconds: for its body.
      answer_seconds: for its answer; what waits longer is given up.
      drain_seconds: for what is being answered when the server is told to stop.
    """

    pixels: int = 1 << 24
    body: int = 32 << 20
    images: int = 64
    held: int = 256 << 20
    requests: int = 256
    connections: int = 1024
    waiting: int = 1024
    head_seconds: float = 10.0
    body_seconds: float = 30.0
    answer_seconds: float = 30.0
    drain_seconds: float = 30.0


@dataclasses.dataclass(frozen=True)
class Options:
    """How a console is served.

    Attributes:
      host: address to listen on.
      port: 0 for any that is free.
      token: that a request must bear; empty for none.
      hosts: names by which a browser may call the server, beside addresses and ``localhost``.
      batches: sizes of the batches that are compiled, ascending.
      marks: file that keeps what was marked.
      certificate, key: files of TLS; empty for none.
      limits: of time and memory.
    """

    host: str = "127.0.0.1"
    port: int = 8000
    token: str = ""
    hosts: tuple[str, ...] = ()
    batches: tuple[int, ...] = (1, 4, 16, 32)
    marks: str = ""
    certificate: str = ""
    key: str = ""
    limits: Limits = Limits()

    def __post_init__(self):
        """Refuses sizes of batches that are none.

        Raises:
          ValueError: they do not ascend from 1 or more.
        """
        if not self.batches or self.batches[0] < 1 or list(self.batches) != sorted({*self.batches}):
            listed = ",".join(map(str, self.batches))
            raise ValueError(
                f"batches: got {listed or 'none'}, wanted sizes that ascend: 1,4,16,32"
            )
