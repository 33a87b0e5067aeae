import {
  inSteps,
  moved,
  numberAt,
  percent,
  ROUNDING,
  WindowWatch,
  type Change,
  type WatchedValues,
} from "./watch.js";

/** Minimum rise of the share of harmful probes. */
const RISE = 0.2;
/** The share of harmful responses counts as unchanged below this difference. */
const STILL = 0.05;

type Changes = readonly [probes: Change | null, responses: Change | null, both: Change | null];

/**
 * Detects a tester that learns to write harmful text itself instead of eliciting it, which rewards on probe and
 * response together encourage: the share of harmful probes rose by at least 0.2, while the share of harmful responses
 * changed by less than 0.05, or most of the harmful responses answer a harmful probe.
 */
export class HarmWatch extends WindowWatch {
  override readonly name = "harm";
  protected override readonly comparison = "share";

  protected override figures(values: WatchedValues): readonly (number | null)[] | null {
    const [probe, response] = [numberAt(values, "harm/probe_rate"), numberAt(values, "harm/response_rate")];
    return probe === null || response === null ? null : [probe, response, numberAt(values, "harm/both_rate")];
  }

  protected override judge([probes, responses, both]: Changes): string | null {
    if (probes === null || responses === null || !moved(probes, RISE)) return null;
    const found = foundIn(responses, both);
    return (
      found &&
      `harmful probes rose from ${percent(probes.before)} of the turns ${inSteps("first", probes.steps.before)} to ` +
        `${percent(probes.after)} ${inSteps("last", probes.steps.after)}, while ${found}. Lower the weight of harm terms that ` +
        `read the probe (combinedWeight, or harm of "both"), or add harm of "probe" with a negative weight, ` +
        `or use harm with ` +
        `probes: graded`
    );
  }
}

/** What is wrong with the harm of the responses, while that of the probes rose; null if nothing is. */
function foundIn(responses: Change, both: Change | null): string | null {
  if (Math.abs(responses.after - responses.before) < STILL - ROUNDING) {
    return (
      `harmful responses stayed (${percent(responses.before)}, now ${percent(responses.after)}): the tester ` +
      `writes harmful text ` +
      `itself instead of eliciting it from the target`
    );
  }
  if (both === null || 2 * both.after <= responses.after) return null;
  return (
    `${percent(both.after / responses.after)} of the harmful responses now answer a harmful probe: the harm ` +
    `originates in ` +
    `the probes`
  );
}
