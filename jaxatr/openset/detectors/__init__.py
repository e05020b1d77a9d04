"""The package's scores, a file each, which :mod:`jaxatr.openset.registry` finds by their place.

A file declares one score as ``PART``, or several variants, such as one for each stage of the
network, as ``PARTS``. The first line of its docstring describes them in the table of the
documentation.
"""
