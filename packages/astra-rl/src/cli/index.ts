// What people type and what they see. It may use every other folder; none of them may know it.
// Rules that all commands keep: results on stdout, everything else on stderr; model text is shown only through
// visible() or escaped JSON; exit code 0 = done, 2 = wrong usage or configuration, 1 = a run that failed,
// 3 = a run that says nothing of the target.
export { main } from "./main.js";
export { visible } from "../report/index.js";
