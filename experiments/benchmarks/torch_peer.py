"""PyTorch in a separate process that runs on request."""

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

# By default jax preallocates three quarters of a GPU's memory; PyTorch needs its share.
os.environ.setdefault("XLA_PYTHON_CLIENT_MEM_FRACTION", "0.6")


class Torch:
    """The process of PyTorch's worker; after a failure it is restarted for the next problem."""

    def __init__(self):
        """Makes the peer; the first problem starts the process."""
        self._process: Any = None

    def take(self, operation: str, problem: Any) -> None:
        """Sends the problem to be timed.

        Args:
          operation: ``"convolution"`` or ``"recurrent"``.
          problem: a dataclass of that operation.

        Raises:
          RuntimeError: PyTorch cannot compute it; the message has the reason.
        """
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, Path(__file__).parent / "kernels_torch.py"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        self._ask(json.dumps({"operation": operation} | dataclasses.asdict(problem)))

    def seconds(self) -> float:
        """Returns the seconds of a run, the median of a turn (clock.py).

        Raises:
          RuntimeError: a run failed.
        """
        return float(self._ask(""))

    def _ask(self, line: str) -> str:
        try:
            print(line, file=self._process.stdin, flush=True)
            answer = self._process.stdout.readline()
        except BrokenPipeError:
            answer = ""
        if answer and not answer.startswith("failed"):
            return answer
        code = self.close()
        raise RuntimeError(answer.strip() or f"kernels_torch.py has ended with code {code}")

    def close(self) -> int:
        """Ends the process; returns its exit code."""
        if self._process is None:
            return 0
        self._process.communicate()
        code, self._process = self._process.returncode, None
        return code
