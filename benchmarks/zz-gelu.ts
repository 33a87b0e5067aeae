import { randn, scope, noGrad, setThreads } from "@astra-rl/torch";
// @ts-ignore
import { geluTanh } from "../packages/lm/dist/families/gelu-tanh.js";
setThreads(1);
const bench = (name: string, f: () => void) => { const ts: number[] = []; for (let i = 0; i < 25; i++) { const s = performance.now(); scope(() => { f(); }); ts.push(performance.now() - s); } ts.sort((a, b) => a - b); console.log(name.padEnd(30), ts[0]!.toFixed(3), ts[12]!.toFixed(3), "ms"); };
for (const rows of [16, 760]) {
  const xb = randn([rows, 3072]).to("bfloat16"); const g = xb.clone(); const xg = xb.detach().clone().requiresGrad_();
  noGrad(() => { bench(rows + " aten fwd", () => void xb.gelu({ approximate: "tanh" })); bench(rows + " ours fwd", () => void geluTanh(xb)); });
  bench(rows + " aten f+b", () => { xg.gelu({ approximate: "tanh" }).backward(g); xg.grad = null; });
  bench(rows + " ours f+b", () => { geluTanh(xg).backward(g); xg.grad = null; });
}
