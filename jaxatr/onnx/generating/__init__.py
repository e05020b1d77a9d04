"""From a program to the source of a flax module.

:mod:`steps` turns calls into layers and applications of operators, :mod:`blocks` finds what
repeats, :mod:`paths` names it all, :mod:`printing` and :mod:`source` write it down.
"""
