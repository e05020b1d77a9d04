"""The console: a trained run behind an HTTP API, with a page to drop chips on.

``engine`` is what a run answers about a batch of chips; ``batcher`` gathers requests into batches
of fixed sizes for it; ``intake`` makes chips of what was uploaded, within limits; ``guard`` and
``connections`` refuse what is too large, too slow or not allowed; ``app`` is the API and the page;
``server`` runs them. Everything of the web comes with the extra ``serve``, and is imported late.
"""

from jaxatr.serving.options import Options

__all__ = ["Options"]
