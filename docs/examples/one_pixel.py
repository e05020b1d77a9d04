"""A kernel of one pixel, as one product of the pixels and the kernel."""

from jaxatr.kernels.solver import Solver


def run(layout, problem, x, w):
    pixels, kernel = x.reshape(-1, x.shape[-1]), w[0, 0]
    y = pixels @ kernel if layout == "rows" else (kernel.T @ pixels.T).T
    return y.reshape(problem.y_shape)


class OnePixel(Solver):
    """Says which problems it takes, how it can be tuned, and how it computes them."""

    name = "one_pixel"
    version = 1  # raised with every change: earlier measurements no longer count
    run = staticmethod(run)  # given the configuration's values, the problem and two arrays

    def applies(self, problem, device):
        whole = problem.w_shape[:2] == problem.stride == (1, 1) and problem.groups == 1
        plain = whole and problem.padding == ((0, 0), (0, 0)) and problem.floating
        return plain and problem.direction == "forward"

    def workspace_bytes(self, problem):
        return 0

    def configs(self, problem):  # may be left out; a default that is always valid first
        return [(("layout", layout),) for layout in ("rows", "columns")]


PART = OnePixel()
