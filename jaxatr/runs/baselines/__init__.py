"""Trainings beside a finished run, for scores that need one.

Such a score names the function that does it, :attr:`jaxatr.openset.OwnTraining.train`. Those of the
package's scores are the files of this folder.
"""

from jaxatr.runs.baselines.beside import BASELINES, Beside, check_baselines, train_baseline

__all__ = ["BASELINES", "Beside", "check_baselines", "train_baseline"]
