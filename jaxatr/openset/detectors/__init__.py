"""The package's scores, a file each, which :mod:`jaxatr.openset.registry` finds by their place.

Every module of this folder declares one score as ``SCORE``, or several variants, such as one for
each stage of the network, as ``SCORES``. The names of variants begin with the module's. The first
line of the module's docstring describes them in the table of the documentation.
"""
