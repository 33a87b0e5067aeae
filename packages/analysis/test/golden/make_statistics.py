"""Reference values for the statistics, to 30 digits with mpmath. Run: python make_statistics.py > statistics.json"""

import json

import mpmath as mp

mp.mp.dps = 30


def t_cdf(t, df):
    t, df = mp.mpf(t), mp.mpf(df)
    tail = mp.betainc(df / 2, mp.mpf(1) / 2, 0, df / (df + t * t), regularized=True) / 2
    return 1 - tail if t > 0 else tail


def t_quantile(p, df):
    return mp.findroot(lambda t: t_cdf(t, df) - p, (mp.mpf(0.5), mp.mpf(3)), solver="anderson", tol=1e-25)


def normal_quantile(p):
    return mp.sqrt(2) * mp.erfinv(2 * mp.mpf(p) - 1)


def wilson(k, n, confidence):
    # The ends solve |p_hat - p| = z sqrt(p (1 - p) / n): found as roots, not by the closed formula under test.
    z, share = normal_quantile((1 + mp.mpf(confidence)) / 2), mp.mpf(k) / n
    a, b, c = 1 + z * z / n, -(2 * share + z * z / n), share * share
    return [float(root) for root in sorted(mp.polyroots([a, b, c], maxsteps=200, extraprec=200), key=mp.re)]


def mcnemar(b, c):
    n = b + c
    return float(min(mp.mpf(1), 2 * mp.fsum(mp.binomial(n, k) for k in range(min(b, c) + 1)) / mp.mpf(2) ** n))


json.dump(
    {
        "versions": {"mpmath": mp.__version__},
        "logGamma": [[x, float(mp.loggamma(x))] for x in (0.1, 0.5, 1.5, 3.0, 12.25, 170.5, 2500.0)],
        "normalCdf": [[x, float(mp.ncdf(x))] for x in (-7.5, -3.2, -1.0, 0.0, 0.3, 1.96, 2.9999, 3.0001, 6.0)],
        "normalQuantile": [[p, float(normal_quantile(p))] for p in (1e-10, 0.001, 0.025, 0.3, 0.9, 0.975, 0.9999)],
        "studentTCdf": [
            [t, df, float(t_cdf(t, df))] for t, df in ((-4.5, 3), (-1.0, 1), (0.0, 5), (0.7, 2.5), (2.0, 30), (12.0, 8))
        ],
        "studentTQuantile": [
            [p, df, float(t_quantile(mp.mpf(p), df))] for p, df in ((0.6, 1), (0.975, 1), (0.975, 9), (0.995, 30), (0.95, 500))
        ],
        "wilson": [
            [k, n, confidence, *wilson(k, n, confidence)]
            for k, n, confidence in ((1, 10, 0.95), (5, 10, 0.95), (81, 263, 0.95), (15, 148, 0.99), (199, 200, 0.9))
        ],
        "mcnemar": [[b, c, mcnemar(b, c)] for b, c in ((0, 1), (1, 9), (3, 15), (40, 70), (300, 420), (5, 5), (900, 3000))],
    },
    __import__("sys").stdout,
    indent=1,
)
