"""Target recognition in images with JAX.

What is it, do we know it at all, what else looks like it, and which pixels say so.
"""

__version__ = "0.1.0"
