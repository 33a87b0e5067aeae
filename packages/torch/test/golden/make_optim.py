"""Golden values for optimizers, gradient clipping and schedules: writes optim.json next to this file.

Run: OMP_NUM_THREADS=1 python make_optim.py   (torch 2.13, transformers 5)
The tests read only optim.json; they never need Python.
"""

import json
import os
import platform

import torch
import transformers
from transformers import (
    get_constant_schedule_with_warmup,
    get_cosine_schedule_with_warmup,
    get_linear_schedule_with_warmup,
)

SEED = 20261
STEPS = 10
SHAPES = {"matrix": [2, 3], "vector": [3], "scalar": []}
# `vector` has no gradient on these steps: it must stay unchanged, and so must its step count.
ABSENT = {"vector": [0, 3, 4]}

# The warm-up covers a learning rate that changes between steps.
WARM_UP = [0.0, 0.004, 0.008, 0.012, 0.016, 0.02, 0.02, 0.01, 0.005, 0.001]

CASES = [
    ("sgd", {}, None),
    ("sgd", {"learningRate": 0.1, "momentum": 0.9}, None),
    ("sgd", {"learningRate": 0.1, "momentum": 0.9, "dampening": 0.3}, None),
    ("sgd", {"learningRate": 0.1, "momentum": 0.9, "nesterov": True, "weightDecay": 0.05}, None),
    ("sgd", {"learningRate": 0.1, "momentum": 0.5, "weightDecay": 0.2}, WARM_UP),
    ("adam", {}, None),
    ("adam", {"learningRate": 0.05, "betas": [0.8, 0.95], "epsilon": 1e-4, "weightDecay": 0.1}, None),
    ("adam", {"learningRate": 0.05, "amsgrad": True}, None),
    ("adam", {"learningRate": 0.05}, WARM_UP),
    ("adamw", {}, None),
    ("adamw", {"learningRate": 0.05, "betas": [0.8, 0.95], "epsilon": 1e-4, "weightDecay": 0.2}, None),
    ("adamw", {"learningRate": 0.05, "betas": [0.0, 0.9], "weightDecay": 0.0}, None),
    ("adamw", {"learningRate": 0.05, "amsgrad": True, "weightDecay": 0.1}, None),
    ("adamw", {"learningRate": 0.05, "weightDecay": 0.3}, WARM_UP),
    ("rmsprop", {}, None),
    ("rmsprop", {"alpha": 0.9, "epsilon": 1e-4, "weightDecay": 0.1}, None),
    ("rmsprop", {"momentum": 0.9}, None),
    ("rmsprop", {"centered": True}, None),
    ("rmsprop", {"learningRate": 0.02, "centered": True, "momentum": 0.8, "weightDecay": 0.05}, WARM_UP),
    ("adagrad", {}, None),
    ("adagrad", {"learningRate": 0.1, "learningRateDecay": 0.2, "weightDecay": 0.1}, None),
    ("adagrad", {"learningRate": 0.1, "initialAccumulatorValue": 0.5, "epsilon": 1e-3}, WARM_UP),
]

CLASSES = {
    "sgd": torch.optim.SGD,
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
    "rmsprop": torch.optim.RMSprop,
    "adagrad": torch.optim.Adagrad,
}
PYTHON_NAMES = {
    "learningRate": "lr",
    "epsilon": "eps",
    "weightDecay": "weight_decay",
    "learningRateDecay": "lr_decay",
    "initialAccumulatorValue": "initial_accumulator_value",
}


def start_values():
    generator = torch.Generator().manual_seed(SEED)
    initial = {n: torch.randn(s, generator=generator, dtype=torch.float64) for n, s in SHAPES.items()}
    gradients = [
        {
            n: None if i in ABSENT.get(n, []) else torch.randn(s, generator=generator, dtype=torch.float64)
            for n, s in SHAPES.items()
        }
        for i in range(STEPS)
    ]
    # A tiny and an exactly zero gradient, for which epsilon and 0/0 matter.
    gradients[2]["matrix"][0, 0] = 0.0
    gradients[3]["matrix"][0, 1] = 1e-9
    return initial, gradients


def flat(tensor):
    return tensor.detach().reshape(-1).tolist()


def trajectory(name, options, rates, dtype, initial, gradients):
    parameters = {n: torch.nn.Parameter(t.to(dtype).clone()) for n, t in initial.items()}
    keywords = {PYTHON_NAMES.get(k, k): tuple(v) if isinstance(v, list) else v for k, v in options.items()}
    optimizer = CLASSES[name](parameters.values(), foreach=False, **keywords)
    result = []
    for i in range(STEPS):
        if rates is not None:
            optimizer.param_groups[0]["lr"] = rates[i]
        for n, parameter in parameters.items():
            gradient = gradients[i][n]
            parameter.grad = None if gradient is None else gradient.to(dtype)
        optimizer.step()
        result.append({n: flat(p) for n, p in parameters.items()})
    return result


def clipping(dtype):
    generator = torch.Generator().manual_seed(SEED + 1)
    cases = []
    for scale, max_norm in [(1.0, 1.0), (1.0, 100.0), (1e-3, 1.0), (50.0, 10.0), (1.0, 0.0), (0.0, 1.0)]:
        gradients = [torch.randn(s, generator=generator, dtype=torch.float64).mul(scale) for s in ([4, 2], [3], [])]
        parameters = [torch.nn.Parameter(torch.zeros_like(g, dtype=dtype)) for g in gradients]
        for parameter, gradient in zip(parameters, gradients):
            parameter.grad = gradient.to(dtype, copy=True)
        norm = torch.nn.utils.clip_grad_norm_(parameters, max_norm, foreach=False)
        cases.append(
            {
                "gradients": [flat(g) for g in gradients],
                "maxNorm": max_norm,
                "norm": norm.item(),
                "clipped": [flat(p.grad) for p in parameters],
            }
        )
    return cases


def schedules():
    parameter = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([parameter], lr=1.0)
    cases = []
    for warm_up, total in [(0, 10), (4, 12), (10, 10), (1, 1)]:
        makers = {
            "constant": get_constant_schedule_with_warmup(optimizer, warm_up),
            "linear": get_linear_schedule_with_warmup(optimizer, warm_up, total),
            "cosine": get_cosine_schedule_with_warmup(optimizer, warm_up, total),
        }
        for name, schedule in makers.items():
            # Only the steps of the run: after its end transformers' cosine rises again, while ours stays at 0.
            factors = [float(schedule.lr_lambdas[0](step)) for step in range(total)]
            cases.append({"name": name, "warmupSteps": warm_up, "totalSteps": total, "factors": factors})
    return cases


def main():
    initial, gradients = start_values()
    cases = []
    for name, options, rates in CASES:
        double = trajectory(name, options, rates, torch.float64, initial, gradients)
        single = trajectory(name, options, rates, torch.float32, initial, gradients)
        cases.append(
            {
                "name": name,
                "options": options,
                "learningRates": rates,
                "float64": double,
                # The step numbers (1-based) that are kept for float32.
                "float32": {"1": single[0], "5": single[4], "10": single[9]},
            }
        )
    golden = {
        "made": {
            "script": "make_optim.py",
            "torch": torch.__version__,
            "transformers": transformers.__version__,
            "python": platform.python_version(),
            "seed": SEED,
        },
        "shapes": SHAPES,
        "initial": {n: flat(t) for n, t in initial.items()},
        "gradients": [{n: None if g is None else flat(g) for n, g in row.items()} for row in gradients],
        "cases": cases,
        "clipping": {"float64": clipping(torch.float64), "float32": clipping(torch.float32)},
        "schedules": schedules(),
    }
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "optim.json")
    with open(path, "w") as file:
        json.dump(golden, file, separators=(",", ":"))
        file.write("\n")


if __name__ == "__main__":
    main()
