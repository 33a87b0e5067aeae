"""Golden values for optimizers with groups of parameters: writes optim-groups.json beside this file.

Run: OMP_NUM_THREADS=1 python make_optim_groups.py   (torch 2.13; the version is written beside the values)
"""

import json
import math
import os

import torch

STEPS = 6
# The second group has a separate rate, and one more setting; every step scales both rates, like a schedule.
CASES = [
    ("sgd", {"learningRate": 0.1, "momentum": 0.9}, {"learningRate": 0.01, "momentum": 0.0}),
    ("adam", {"learningRate": 0.05}, {"learningRate": 0.2, "betas": [0.5, 0.9]}),
    ("adamw", {"learningRate": 0.05, "weightDecay": 0.2}, {"learningRate": 0.005}),
    ("adamw", {"learningRate": 0.05, "amsgrad": True}, {"learningRate": 0.1, "amsgrad": False, "weightDecay": 0.0}),
    ("rmsprop", {"learningRate": 0.02}, {"learningRate": 0.001, "centered": True}),
    ("adagrad", {"learningRate": 0.1}, {"learningRate": 0.5, "initialAccumulatorValue": 0.5}),
]
CLASSES = {
    "sgd": torch.optim.SGD,
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
    "rmsprop": torch.optim.RMSprop,
    "adagrad": torch.optim.Adagrad,
}
PYTHON_NAMES = {"learningRate": "lr", "weightDecay": "weight_decay", "initialAccumulatorValue": "initial_accumulator_value"}


def python_options(options):
    return {PYTHON_NAMES.get(name, name): value for name, value in options.items()}


def factor(step):
    return 1 / (1 + step)


def run(name, shared, own):
    parameters = [torch.tensor([0.5, -1.0, 2.0]), torch.tensor([[1.5, -0.25]])]
    for parameter in parameters:
        parameter.requires_grad_()
    first = {**python_options(shared)}
    second = {**python_options(shared), **python_options(own)}
    # PyTorch's Adagrad reads the initial accumulator only from the defaults, so its groups are separate optimizers.
    optimizers = (
        [CLASSES[name]([parameters[0]], **first), CLASSES[name]([parameters[1]], **second)]
        if name == "adagrad"
        else [CLASSES[name]([{"params": [parameters[0]]}, {"params": [parameters[1]], **python_options(own)}], **first)]
    )
    groups = [group for optimizer in optimizers for group in optimizer.param_groups]
    rates = [group["lr"] for group in groups]
    trajectory = []
    for step in range(STEPS):
        for group, rate in zip(groups, rates):
            group["lr"] = rate * factor(step)
        for index, parameter in enumerate(parameters):
            noise = torch.tensor([math.sin(3 * step + index + i) for i in range(parameter.numel())]).view(parameter.shape)
            parameter.grad = (0.3 * parameter + noise).detach()
        for optimizer in optimizers:
            optimizer.step()
        trajectory.append([parameter.flatten().tolist() for parameter in parameters])
    return {"name": name, "options": shared, "group": own, "trajectory": trajectory}


def main():
    made = {"version": torch.__version__, "cases": [run(*case) for case in CASES]}
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "optim-groups.json"), "w") as file:
        json.dump(made, file)
        file.write("\n")


if __name__ == "__main__":
    main()
