"""transformers' outputs for every token of some rows: log-probability, entropy, and a fixed linear head on the last
hidden state, with gradients. Writes token-outputs.json next to this file.

Run: python3 make_token_outputs.py   (torch 2.13, transformers 5.18; versions are written beside the values)
"""

import json
import math
import os

import torch
import transformers

HERE = os.path.dirname(os.path.abspath(__file__))
FAMILIES = ["gpt2", "families/llama2", "families/mistral", "families/qwen3"]
ROWS = [([5, 9, 17, 33], [40, 41, 42]), ([5, 9, 17, 33], [40, 11]), ([7], [3, 8, 25, 11, 2])]


def head(width):
    """The weights that the test makes by the same formula; the bias is 0.25."""
    return torch.tensor([math.sin(i + 1) / math.sqrt(width) for i in range(width)])


def outputs(model, context, continuation):
    result = model(torch.tensor([context + continuation]), output_hidden_states=True)
    before = slice(len(context) - 1, len(context) + len(continuation) - 1)
    logs = result.logits[0, before].log_softmax(-1)
    states = result.hidden_states[-1][0, before]  # behind the final norm
    return {
        "logprobs": logs[torch.arange(len(continuation)), continuation],
        "entropy": torch.distributions.Categorical(logits=logs).entropy(),
        "head": states @ head(states.shape[-1]) + 0.25,
    }


def main():
    made = {}
    for family in FAMILIES:
        model = transformers.AutoModelForCausalLM.from_pretrained(os.path.join(HERE, family), dtype=torch.float32).eval()
        rows = [outputs(model, *row) for row in ROWS]
        # Weights that distinguish all numbers.
        loss = sum(
            (weight * (values * torch.tensor([math.cos(k + row) for k in range(len(values))])).sum())
            for row, each in enumerate(rows)
            for weight, values in ((0.5, each["logprobs"]), (1.0, each["entropy"]), (2.0, each["head"]))
        )
        loss.backward()
        gradients = {
            name: {"norm": parameter.grad.norm().item(), "first": parameter.grad.flatten()[:4].tolist()}
            for name, parameter in model.named_parameters()
        }
        made[family] = {
            "rows": [{name: values.tolist() for name, values in each.items()} for each in rows],
            "gradients": gradients,
        }
    versions = {"torch": torch.__version__, "transformers": transformers.__version__}
    with open(os.path.join(HERE, "token-outputs.json"), "w") as file:
        json.dump({"versions": versions, "inputs": ROWS, "families": made}, file)
        file.write("\n")


if __name__ == "__main__":
    main()
