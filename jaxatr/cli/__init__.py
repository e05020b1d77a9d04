"""The commands: flags in, library call, exit code out."""
