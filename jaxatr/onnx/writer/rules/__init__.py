"""Rules that translate primitives to ONNX nodes; every module of this folder registers its own."""

from jaxatr import parts

parts.modules(__name__)
