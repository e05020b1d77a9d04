"""Fixtures for the tests of the export."""

import jax
import numpy as np
import pytest


@pytest.fixture
def exported(tmp_path):
    """Exports a model, and compares onnxruntime's outputs with jax's at several batch sizes.

    With ``apart`` each row of the outputs belongs to one example and must not depend on others.
    """
    pytest.importorskip("onnx")
    onnxruntime = pytest.importorskip("onnxruntime")
    from jaxatr.onnx import export

    def run(model, variables, *inputs, apart=False, atol=1e-4, **options):
        path = tmp_path / "model.onnx"
        made = export(model, variables, [array[:2] for array in inputs], path, **options)
        session = onnxruntime.InferenceSession(path)
        names = [given.name for given in session.get_inputs()]
        call = jax.jit(getattr(model, "apply", model))
        expected = []
        for size in (3, 1):
            given = [np.asarray(array)[:size] for array in inputs]
            if apart and expected:
                expected = [array[:size] for array in expected]
            else:
                expected = list(map(np.asarray, jax.tree.leaves(call(variables, *given))))
            found = session.run(None, dict(zip(names, given, strict=True)))
            outputs = [output.name for output in session.get_outputs()]
            for name, one, other in zip(outputs, found, expected, strict=True):
                assert one.dtype == other.dtype and one.shape == other.shape, name
                one, other = np.float64(one), np.float64(other)
                np.testing.assert_allclose(one, other, rtol=1e-4, atol=atol, err_msg=name)
        return made

    return run


@pytest.fixture(scope="session")
def count():
    """The function that counts a model's nodes, of one operator or in total."""

    def nodes(model, op=None):
        return sum(op in (None, node.op_type) for node in model.graph.node)

    return nodes
