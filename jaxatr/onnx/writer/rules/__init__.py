"""Rules that translate primitives to ONNX nodes; every module of this folder registers its own."""

import importlib
import pkgutil

for _found in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_found.name}")
