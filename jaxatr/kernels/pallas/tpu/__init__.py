"""Kernels for TPUs (Pallas TPU).

They are tested by lowering for TPU and with Pallas's interpreter. They have not been run on a TPU
yet.
"""
