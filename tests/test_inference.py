import numpy as np

from jaxatr.inference import stacked_batches


def test_arrays_may_be_read_into_one_buffer():
    buffer = np.zeros(2)

    def read():
        for number in range(5):
            buffer[...] = number
            yield buffer

    found = [(batch[:, 0].tolist(), count) for batch, count in stacked_batches(read(), 3)]
    assert found == [([0, 1, 2], 3), ([3, 4, 4], 2)]
