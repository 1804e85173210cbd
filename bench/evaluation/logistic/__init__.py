"""Multinomial logistic regression by preconditioned L-BFGS: the solver under the linear probe.

It minimises (1/n) sum_i cross-entropy_i + (strength / 2n) |W|^2 over weights W and a bias without penalty, which is
scikit-learn's `LogisticRegression(C=1/strength)`. The following makes it fast without moving the optimum. The bias is
free, so features are centred. The penalty does not change under rotation, so features are rotated to their principal
axes, where the curvature is nearly diagonal and known, and L-BFGS starts from it. A fit may start from another
strength's solution. `Problem` holds rotated rows and logits in memory; `StreamedProblem` reads rows in chunks.
"""

from bench.evaluation.logistic.descent import MAX_GAP, ProbeRows, Solution
from bench.evaluation.logistic.problem import Problem
from bench.evaluation.logistic.rows import Labelled
from bench.evaluation.logistic.streamed import StreamedProblem

__all__ = ["MAX_GAP", "Labelled", "ProbeRows", "Problem", "Solution", "StreamedProblem"]
