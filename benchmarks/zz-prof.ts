import { AdamW, scope, noGrad, setThreads } from "@astra-rl/torch";
import { initializeGPT2, tokenLogprobs } from "@astra-rl/lm";
// @ts-ignore
import { addon } from "../packages/torch/dist/native.js";
// @ts-ignore
import { operatorNames } from "../packages/torch/dist/operator-names.generated.js";
const T = Number(process.env.T ?? 1); setThreads(T);
const a = addon() as any; const orig = a.call.bind(a); const t: Record<string, [number, number]> = {}; let on = false;
const patched: any = { __proto__: a };
try { a.call = (op: number, ...rest: unknown[]) => { if (!on) return orig(op, ...rest); const s = performance.now(); const r = orig(op, ...rest); const e = performance.now() - s; const n = operatorNames[op]; (t[n] ??= [0, 0])[0] += e; t[n]![1]++; return r; }; } catch (e) { console.log("cannot patch", e); }
const model = initializeGPT2({ vocabSize: 50257, contextLength: 1024, hiddenSize: 768, layers: 12, heads: 12, bosId: 0, eosId: 0 }, 0, { computeDtype: "bfloat16" });
const params = [...model.namedParameters().values()]; params.forEach((p) => p.requiresGrad_());
const opt = new AdamW(params, { learningRate: 1e-5 });
const prompt = (r: number, n: number) => Array.from({ length: n }, (_, k) => 300 + ((r * 131 + k * 17) % 3000));
const rows = Array.from({ length: 8 }, (_, r) => ({ context: prompt(r >> 1, 128), continuation: prompt(100 + r, 32) }));
for (let i = 0; i < 3; i++) { on = i === 2; let s = performance.now();
 const c = { tokensRead: 0 };
 let f = 0, b = 0;
 scope(() => { const l = tokenLogprobs(model, rows, { counters: c }).sum().neg(); f = performance.now() - s; s = performance.now(); l.backward(); b = performance.now() - s; });
 s = performance.now(); opt.step(); opt.zeroGrad(); const o = performance.now() - s;
 console.log("tokens", c.tokensRead, "fwd", f.toFixed(0), "bwd", b.toFixed(0), "opt", o.toFixed(0)); }
for (const [n, [ms, k]] of Object.entries(t).sort((x, y) => y[1][0] - x[1][0]).slice(0, 22)) console.log(n.padEnd(28), ms.toFixed(1).padStart(8), "ms", k);
console.log("rss", process.resourceUsage().maxRSS / 1024);
