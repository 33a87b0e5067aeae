/**
 * Distribution functions for intervals and tests, in double precision.
 *
 * Normal and Student's t only: both are thin layers over two special functions (log-gamma and the regularised
 * incomplete beta), evaluated by Lanczos' sum and by Lentz's continued fraction.
 */

import { UsageError } from "@astra-rl/base";

// Lanczos (1964) with g = 607/128, coefficients as tabulated by Godfrey; relative error below 1e-15 for x > 0.
const LANCZOS_G = 607 / 128;
const LANCZOS = [
  0.9999999999999971, 57.15623566586292, -59.59796035547549, 14.136097974741746, -0.4919138160976202,
  3.399464998481189e-5, 4.652362892704858e-5, -9.837447530487956e-5, 0.0001580887032249125,
  -0.00021026444172410488, 0.00021743961811521265, -0.0001643181065367639, 8.441822398385275e-5,
  -2.6190838401581408e-5, 3.6899182659531625e-6,
] as const;

/** log Γ(x) for x > 0. */
export function logGamma(x: number): number {
  let sum: number = LANCZOS[0];
  for (let k = 1; k < LANCZOS.length; k++) sum += LANCZOS[k]! / (x + k - 1);
  const shifted = x + LANCZOS_G - 0.5;
  return (x - 0.5) * Math.log(shifted) - shifted + 0.5 * Math.log(2 * Math.PI) + Math.log(sum);
}

/** I_x(a, b), the regularised incomplete beta function, for a, b > 0 and x in [0, 1]. */
export function regularizedIncompleteBeta(x: number, a: number, b: number): number {
  if (x <= 0) return 0;
  if (x >= 1) return 1;
  // The continued fraction converges fast only left of the mean; the reflection covers the other side.
  if (x > (a + 1) / (a + b + 2)) return 1 - regularizedIncompleteBeta(1 - x, b, a);
  const logFront = logGamma(a + b) - logGamma(a) - logGamma(b) + a * Math.log(x) + b * Math.log1p(-x);
  const tiny = 1e-300;
  let c = 1;
  let d = 1 - ((a + b) * x) / (a + 1);
  d = 1 / (Math.abs(d) < tiny ? tiny : d);
  let fraction = d;
  for (let m = 1; m <= 500; m++) {
    for (const numerator of [
      (m * (b - m) * x) / ((a + 2 * m - 1) * (a + 2 * m)),
      (-(a + m) * (a + b + m) * x) / ((a + 2 * m) * (a + 2 * m + 1)),
    ]) {
      d = 1 + numerator * d;
      d = 1 / (Math.abs(d) < tiny ? tiny : d);
      c = 1 + numerator / c;
      if (Math.abs(c) < tiny) c = tiny;
      fraction *= d * c;
    }
    if (Math.abs(d * c - 1) < 1e-16) break;
  }
  return (Math.exp(logFront) * fraction) / a;
}

/** P(T ≤ t) for Student's t with `degrees` > 0 degrees of freedom. */
export function studentTCdf(t: number, degrees: number): number {
  const tail = 0.5 * regularizedIncompleteBeta(degrees / (degrees + t * t), degrees / 2, 0.5);
  return t > 0 ? 1 - tail : tail;
}

/** The p-quantile of Student's t distribution. Infinite at p = 0 and 1. */
export function studentTQuantile(p: number, degrees: number): number {
  requireProbability("studentTQuantile", p);
  if (!(degrees > 0)) {
    throw new UsageError(
      "out-of-range",
      `studentTQuantile: degrees of freedom must be greater than 0, got ${degrees}`,
    );
  }
  if (p === 0) return -Infinity;
  if (p === 1) return Infinity;
  if (p === 0.5) return 0;
  // Work in the lower tail, where the distribution function keeps its relative precision.
  if (p > 0.5) return -studentTQuantile(1 - p, degrees);
  let low = -1;
  while (studentTCdf(low, degrees) > p) low *= 2;
  return bisect((t) => studentTCdf(t, degrees) - p, low, 0);
}

/** Φ(x), the standard normal distribution function. */
export function normalCdf(x: number): number {
  const upper = normalUpperTail(Math.abs(x));
  return x > 0 ? 1 - upper : upper;
}

/** The p-quantile of the standard normal distribution. Infinite at p = 0 and 1. */
export function normalQuantile(p: number): number {
  requireProbability("normalQuantile", p);
  if (p === 0) return -Infinity;
  if (p === 1) return Infinity;
  if (p === 0.5) return 0;
  if (p > 0.5) return -normalQuantile(1 - p);
  let low = -1;
  while (normalUpperTail(-low) > p) low *= 2;
  return bisect((x) => normalUpperTail(-x) - p, low, 0);
}

/** 1 − Φ(x) for x ≥ 0: a power series near the middle, Lentz's continued fraction in the tail. */
function normalUpperTail(x: number): number {
  const density = Math.exp((-x * x) / 2) / Math.sqrt(2 * Math.PI);
  if (x < 3) {
    // Φ(x) − ½ = φ(x)·(x + x³/3 + x⁵/(3·5) + …)
    let term = x;
    let sum = x;
    for (let k = 3; Math.abs(term) > 1e-18 * Math.abs(sum); k += 2) {
      term *= (x * x) / k;
      sum += term;
    }
    return 0.5 - density * sum;
  }
  // Q(x) = φ(x) / (x + 1/(x + 2/(x + 3/(x + …)))), evaluated from the inside out.
  let fraction = x;
  for (let k = 200; k >= 1; k--) fraction = x + k / fraction;
  return density / fraction;
}

/** The root of an increasing function between `low` (negative value) and `high` (positive value), to the last bit. */
function bisect(increasing: (x: number) => number, low: number, high: number): number {
  for (;;) {
    const middle = low + (high - low) / 2;
    if (middle === low || middle === high) return middle;
    if (increasing(middle) < 0) low = middle;
    else high = middle;
  }
}

function requireProbability(where: string, p: number): void {
  if (!(p >= 0 && p <= 1)) throw new UsageError("out-of-range", `${where}: p must lie in [0, 1], got ${p}`);
}
