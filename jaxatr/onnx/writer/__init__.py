"""The parts of :func:`jaxatr.onnx.export`: from a traced function to a checked file.

``trace`` gives a jaxpr with a free batch size. ``translate`` walks it and asks a rule for each
primitive (``rules`` has a module for each family) to add nodes to a ``graph``. ``fusion``,
``layout`` and ``cleanup`` make that graph one that a person would have written; ``serialisation``
writes it.
"""
