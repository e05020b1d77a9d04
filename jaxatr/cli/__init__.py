"""The commands: they parse flags, call the library and return an exit code."""
