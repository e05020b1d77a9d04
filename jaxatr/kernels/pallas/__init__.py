"""Kernels for accelerators, put together from parts: loading tiles, the product, and epilogues.

``hopper`` is for NVIDIA's Hopper through Mosaic GPU, ``tpu`` for TPU through Pallas TPU. What is
the same on both stands here.
"""
