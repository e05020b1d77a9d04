"""Kernels for NVIDIA's Hopper through Mosaic GPU.

They are checked by lowering for cuda, and by Mosaic's interpreter. No run on a GPU has proven them
yet: neither their speed, nor that they fit in shared memory, nor their results.
"""
