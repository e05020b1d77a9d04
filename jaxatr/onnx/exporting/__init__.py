"""The parts of :func:`jaxatr.onnx.export`: from a traced function to a checked file.

``trace`` gives a jaxpr with a free batch size. ``translate`` walks it and asks a rule for each
primitive (``elementwise``, ``shaping``, ``reduction``, ``contraction``, ``convolution``,
``pooling``, ``indexing``, ``control``) to add nodes to a ``graph``. ``patterns``, ``layout`` and
``cleanup`` make that graph one that a person would have written; ``write`` turns it into a file.
"""
