"""Additional trainings beside a finished run, for scores that need one.

Such a score names its training function in :attr:`jaxatr.openset.OwnTraining.train`. Those of the
package's scores are in the modules of this folder.
"""

from jaxatr.runs.baselines.beside import BASELINES, Beside, check_baselines, train_baseline

__all__ = ["BASELINES", "Beside", "check_baselines", "train_baseline"]
