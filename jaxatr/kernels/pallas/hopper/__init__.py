"""Kernels for NVIDIA's Hopper through Mosaic GPU.

They are checked by lowering for cuda, and by Mosaic's interpreter where jax has one (0.11 and
later). No run on a GPU has proven them yet: neither their speed, nor that they fit in shared
memory, nor their results.
"""
