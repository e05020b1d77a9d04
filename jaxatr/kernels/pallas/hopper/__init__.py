"""Kernels for NVIDIA Hopper GPUs (Mosaic GPU).

The tests lower them for CUDA and run them in Mosaic's interpreter. Their results and times on an
H200 are recorded in ``experiments/device/results/h200``.
"""
