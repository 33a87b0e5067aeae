// The command line. It may use every other folder; none of them may import it. Rules for all commands: results on
// stdout, everything else on stderr; model output is shown only through visible() or escaped JSON; exit code 0 =
// success, 2 = wrong usage or configuration, 1 = failed run, 3 = a run that is inconclusive about the target.
export { main } from "./main.js";
export { visible } from "../report/index.js";
