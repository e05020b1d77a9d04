"""From a program to the source of a flax module.

:mod:`steps` and :mod:`recognition` turn calls into layers and applications of operators,
:mod:`repetition` and :mod:`blocks` find what repeats, :mod:`paths` names it all, :mod:`classes`,
:mod:`printing` and :mod:`source` write it down.
"""
