import pytest

pytest.importorskip("onnx")

from jaxatr.onnx.codegen.paths import LEAF, common, counted, words  # noqa: E402


@pytest.mark.parametrize(
    "name, stem",
    [
        ("layer1.0.conv1.weight", "layer1.0.conv1"),
        ("layer1.0.downsample.0.weight", "layer1.0.downsample.0"),
        ("gpu_0/res2_0_branch2a_w_0", "gpu_0/res2_0_branch2a"),
        ("bn1.running_var", "bn1"),
        ("weight", "weight"),
        ("dense/kernel:0", "dense/kernel:0"),
    ],
)
def test_a_weight_s_name_has_its_layer_s(name, stem):
    assert LEAF.sub("", name) == stem


def test_words_in_common():
    assert common([words("layer1.0.conv1"), words("layer1.0.bn1")]) == ("layer1", "0")
    assert common([words("a"), words("b")]) == ()
    assert common([]) == ()


@pytest.mark.parametrize("names", [["a1", "a3"], ["a1", "b2"], ["a", "b"], ["a09", "a10"]])
def test_names_that_do_not_count_up(names):
    assert counted(names) is None
