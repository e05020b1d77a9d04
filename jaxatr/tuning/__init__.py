"""The sub-commands of ``jaxatr tune``.

An operation that describes its problems by options (:class:`jaxatr.kernels.options.Command`) gets
one automatically. The others are modules here with ``define_flags()`` and ``main(arguments)``.
"""
