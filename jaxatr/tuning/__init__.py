"""The sub-commands of ``jaxatr tune``.

An operation that describes its problems by options (:class:`jaxatr.kernels.options.Command`) has
one without a file here. Any other is a module with ``define_flags()`` and ``main(arguments)``.
"""
