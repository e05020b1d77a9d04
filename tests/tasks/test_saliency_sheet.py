"""The examples of a surrogate's evaluation whose maps are recorded."""

import numpy as np

from jaxatr.tasks.distillation.sheet import arrays_to_record, evenly_spread


def test_rows_are_spread_over_all_classes():
    labels = np.repeat(np.arange(6), [390, 300, 250, 250, 200, 96])  # as a part has them
    chosen = labels[evenly_spread(np.arange(len(labels)), 200)]
    assert len(chosen) == 200
    counts = np.bincount(chosen) / 200 - np.bincount(labels) / len(labels)
    assert np.abs(counts).max() < 0.01
    assert evenly_spread(np.array([3, 5, 8]), 9).tolist() == [3, 5, 8]
    assert evenly_spread(np.array([3, 5, 8]), 1).tolist() == [3]
    assert evenly_spread(np.zeros(0, int), 4).tolist() == []


def test_the_sheet_of_a_report():
    insertion = np.array([0.5, 0.1, 0.9, 0.3, 0.3, 0.8, 0.7, 0.2])
    maps = np.linspace(0, 1, 8)[:, None, None] * np.ones((8, 2, 2))
    values = {"surrogate": {"insertion": insertion}, "lime": {"insertion": insertion / 2}}
    arrays = arrays_to_record(values, {"surrogate": maps, "lime": 1 - maps}, each=3)
    assert arrays["sheet_worst"].tolist() == [1, 7, 3]  # of equal ones, the first
    assert arrays["sheet_drawn"].tolist() == [0, 4, 6]
    rows = [1, 7, 3, 0, 4, 6]
    assert arrays["lime_map"].dtype == np.uint8
    np.testing.assert_allclose(arrays["lime_map"] / 255, 1 - maps[rows], atol=0.002)
    np.testing.assert_array_equal(arrays["lime_insertion"], insertion / 2)
