"""The sub-commands of ``python -m jaxatr.tune``: a module each.

A sub-command of another operation is one more module with ``define_flags()`` and
``main(arguments)``: it makes problems of its flags and hands them to
:func:`jaxatr.tuning.driver.drive`.
"""
