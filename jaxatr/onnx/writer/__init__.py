"""Exports functions and networks as ONNX files.

``trace`` traces a function to a jaxpr with a free batch size. ``translate`` walks the jaxpr and
calls a rule for each primitive (``rules`` has a module for each family), which adds nodes to a
``graph``. ``fusion``, ``layout`` and ``cleanup`` simplify the graph, and ``serialisation`` writes
it.
"""
