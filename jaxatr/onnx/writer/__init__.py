"""Exports functions and networks as ONNX files.

``trace`` traces a function to a jaxpr with a free batch size. ``translate`` walks the jaxpr and
calls a rule for each primitive, which adds nodes to a ``graph``; ``rules`` has a module for each
family of primitives. ``fusion``, ``layout`` and ``cleanup`` simplify the graph, and
``serialisation`` writes it.
"""
