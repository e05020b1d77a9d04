"""Kernels for TPU through Pallas TPU.

They are checked by lowering for tpu and by Pallas's interpreter. No run on a TPU has proven them
yet.
"""
