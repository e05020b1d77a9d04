"""Options and limits of a console."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Limits:
    """Limits on the time and memory that clients can use.

    Attributes:
      pixels: pixels of an image, checked before it is decoded.
      body: bytes of a request.
      images: images in a request, and boxes that a request gives.
      targets: targets of a scene that are answered; those with lower scores are counted only.
      scenes: scenes that are decoded or searched at once; further ones get status 503.
      held: total bytes of all requests in progress.
      requests: concurrent requests; further ones get status 503.
      connections: concurrent connections.
      waiting: chips waiting for a batch; requests with more get status 503.
      head_seconds: time for a request's head to arrive.
      body_seconds: time for a request's body to arrive.
      write_seconds: time in which a client must read something of a response that is sent to it.
      answer_seconds: time to answer a request, after which it is abandoned.
      drain_seconds: time to finish the requests in progress when the server stops.
    """

    pixels: int = 1 << 24
    body: int = 32 << 20
    images: int = 64
    targets: int = 1000
    scenes: int = 4
    held: int = 256 << 20
    requests: int = 256
    connections: int = 1024
    waiting: int = 1024
    head_seconds: float = 10.0
    body_seconds: float = 30.0
    write_seconds: float = 10.0
    answer_seconds: float = 30.0
    drain_seconds: float = 30.0


@dataclasses.dataclass(frozen=True)
class Options:
    """Options of a console.

    Attributes:
      host: address to listen on.
      port: port to listen on; 0 for any free one.
      token: the token that requests need; empty for none.
      hosts: host names of the server for browsers, besides IP addresses and ``localhost``.
      batches: batch sizes to compile, ascending.
      marks: file of the marks; empty for ``marks.jsonl`` in the run's folder.
      label: table of chips to label or of labels to check; empty for none.
      labels: file of the labels that users give; empty for ``TABLE-labels.csv`` beside the table.
      record: file to which a row is appended for each prediction; empty for none.
      certificate, key: TLS certificate and key files; empty for none.
      limits: limits on time and memory.
    """

    host: str = "127.0.0.1"
    port: int = 8000
    token: str = ""
    hosts: tuple[str, ...] = ()
    batches: tuple[int, ...] = (1, 4, 16, 32)
    marks: str = ""
    label: str = ""
    labels: str = ""
    record: str = ""
    certificate: str = ""
    key: str = ""
    limits: Limits = Limits()

    def __post_init__(self):
        """Checks the batch sizes.

        Raises:
          ValueError: they are not positive and ascending.
        """
        if not self.batches or self.batches[0] < 1 or list(self.batches) != sorted({*self.batches}):
            listed = ",".join(map(str, self.batches))
            raise ValueError(
                f"batches: got {listed or 'none'}, wanted ascending sizes such as 1,4,16,32"
            )
