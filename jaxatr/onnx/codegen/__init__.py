"""Generates the source code of a flax module from a program.

:mod:`steps` and :mod:`recognition` turn calls into layers and operator calls, :mod:`repetition`
and :mod:`blocks` find repeated structure, :mod:`paths` chooses names, and :mod:`classes`,
:mod:`printing` and :mod:`source` write the code.
"""
