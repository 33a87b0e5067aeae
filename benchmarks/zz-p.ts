import { autocastLinear, noGrad, randn, scope, fusedAttention } from "@astra-rl/torch";
function t(f){ const a=[]; for(let i=0;i<12;i++){const s=performance.now(); scope(()=>void f()); a.push(performance.now()-s);} a.sort((x,y)=>x-y); return a[6]; }
for (const [m,n,k] of [[4,3072,768],[8,3072,768],[16,3072,768],[32,3072,768],[64,3072,768],[600,3072,768],[600,768,3072],[600,2304,768],[256,50257,768],[16,50257,768],[2048,2048,2048]] as const) {
  const x=randn([m,k]).to("bfloat16"), w=randn([n,k]).to("bfloat16"), wf=randn([n,k]);
  const a=t(()=>noGrad(()=>autocastLinear(x,w,null,{dtype:"bfloat16"})));
  const b=m>64?t(()=>noGrad(()=>autocastLinear(x,wf,null,{dtype:"bfloat16"}))):NaN;
  const xf=x.to("float32");
  const c=t(()=>noGrad(()=>autocastLinear(xf,wf,null,{dtype:"float32"})));
  const g=2*m*n*k/1e6;
  console.log(m,n,k,"bf16",a.toFixed(2),(g/a).toFixed(0),"GF/s", (n*k*2/a/1e6).toFixed(1)+"GB/s","master",b.toFixed(2),(g/b).toFixed(0),"f32",c.toFixed(2),(g/c).toFixed(0));
}
