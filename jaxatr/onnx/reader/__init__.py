"""From a file to a model that runs.

:mod:`proto` reads and checks the file, :mod:`lowering` makes a :mod:`program` of its graph,
:mod:`variables` divides its arrays into parameters, running statistics and constants, and
:mod:`model` is the function that comes of it. :mod:`inspection` lists a file's nodes.
"""
