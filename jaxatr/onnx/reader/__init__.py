"""Loads ONNX files as executable models.

:mod:`proto` reads and checks the file, :mod:`lowering` turns its graph into a :mod:`program`,
:mod:`variables` divides its arrays into parameters, running statistics and constants, and
:mod:`model` holds the resulting function. :mod:`inspection` lists a file's nodes.
"""
