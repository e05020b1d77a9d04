"""Kernels for NVIDIA Hopper GPUs (Mosaic GPU).

They are tested by lowering for CUDA and with Mosaic's interpreter. They have not been run on a GPU
yet, so neither their results nor their speed nor their use of shared memory is proven there.
"""
