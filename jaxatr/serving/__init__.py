"""The console: serves a trained run with an HTTP API and a page for dropping chips.

``engine`` predicts a batch of chips; ``batcher`` groups requests into batches of fixed sizes;
``intake`` decodes uploads within limits; ``guard`` and ``connections`` refuse requests that are too
large, too slow or not allowed; ``console`` holds the state; ``app`` is the API and the page;
``server`` runs them. The web packages come with the extra ``serve`` and are imported late.
"""

from jaxatr.serving.options import Options

__all__ = ["Options"]
