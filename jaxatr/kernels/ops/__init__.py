"""The operations, one room each."""
