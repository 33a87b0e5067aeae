"""Golden values of packages/analysis/test/golden-statistics.test.ts, from SciPy and statsmodels.

    python3 make_statistics.py > statistics.json     # scipy 1.17.1, statsmodels 0.15.0
"""

import json

import numpy as np
import scipy
import statsmodels
from scipy import stats
from statsmodels.stats.contingency_tables import mcnemar
from statsmodels.stats.inter_rater import cohens_kappa
from statsmodels.stats.multitest import multipletests
from statsmodels.stats.proportion import proportion_confint

random = np.random.default_rng(1)
counts = [(0, 20), (1, 20), (10, 20), (20, 20), (3, 500), (77, 128), (128, 128)]
tables = [(5, 3, 9, 12), (0, 1, 8, 4), (10, 0, 0, 10), (3, 40, 44, 100), (1, 12, 2, 1)]
families = [[0.01, 0.02, 0.03], [0.5, 0.001, 0.04, 0.04], [0.9], [0.2, 0.2, 0.2, 0.2, 0.2]]
pairs = [random.normal(size=(12, 2)).round(3).tolist(), (random.normal(size=(9, 2)) + [0, 0.8]).round(3).tolist()]


def permutation(rows):
    first, second = np.array(rows).T
    result = stats.permutation_test(
        (second, first), lambda a, b: np.mean(a - b), permutation_type="samples", n_resamples=np.inf
    )
    return float(result.pvalue)


print(
    json.dumps(
        {
            "versions": {"scipy": scipy.__version__, "statsmodels": statsmodels.__version__},
            "wilson": [
                {"successes": k, "trials": n, "interval": [float(x) for x in proportion_confint(k, n, 0.05, "wilson")]}
                for k, n in counts
            ],
            "upper": [
                {"successes": k, "trials": n, "bound": float(proportion_confint(k, n, 0.1, "beta")[1])}
                for k, n in counts
            ],
            "mcnemar": [
                {"table": t, "p": float(mcnemar([[t[0], t[1]], [t[2], t[3]]], exact=True).pvalue)} for t in tables
            ],
            "kappa": [
                {"table": t, "kappa": float(cohens_kappa(np.array([[t[0], t[1]], [t[2], t[3]]])).kappa)} for t in tables
            ],
            "holm": [{"p": p, "adjusted": multipletests(p, method="holm")[1].tolist()} for p in families],
            "permutation": [{"pairs": p, "p": permutation(p)} for p in pairs],
        },
        indent=1,
    )
)
