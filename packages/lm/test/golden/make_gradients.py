"""Gradients that transformers gives for every causal family, and what a low-rank update of its projections changes.

    python3 make_gradients.py            (torch 2.13, transformers 5.18; versions are written beside the values)
    python3 make_gradients.py phi3       only these; the others keep their values

Reads the checkpoints of make_families.py and writes gradients-expected.json. Of each gradient g there are its norm and
its products with cos(0), cos(1), cos(2), … and with cos(0), cos(2), cos(4), …; gradients are those of minus the sum of the
log-probabilities in float64. The update adds 2 · B A to each target projection, with matrices that the test makes
likewise.
"""

import json
import os
import sys

import torch
import transformers

HERE = os.path.dirname(os.path.abspath(__file__))
FAMILIES = os.path.join(HERE, "families")

# Longer than the sliding windows of the checkpoints.
ROWS = [
    {"context": [5, 9, 17, 33, 8, 250, 11, 2, 40, 77], "continuation": [41, 42, 9, 17, 100, 101, 33]},
    {"context": [7], "continuation": [3, 8, 250, 11, 2]},
]
TARGETS = {"gpt-neox": ["query_key_value", "dense_h_to_4h"], "phi3": ["qkv_proj", "gate_up_proj"], "phi4-mini": ["qkv_proj", "o_proj"]}
RANK, SCALE = 2, 2.0


def pattern(rows, columns, step):
    """0.1 · cos(step · i), row by row."""
    return 0.1 * torch.cos(step * torch.arange(rows * columns, dtype=torch.float64)).reshape(rows, columns)


def scored(model):
    rows = []
    for row in ROWS:
        context, continuation = row["context"], row["continuation"]
        logits = model(torch.tensor([context + continuation])).logits[0].log_softmax(-1)
        rows.append(torch.stack([logits[len(context) + k - 1, token] for k, token in enumerate(continuation)]))
    return rows


def summary(gradient):
    flat = gradient.double().flatten()
    at = torch.arange(flat.numel(), dtype=torch.float64)
    sums = [flat.norm(), (flat * torch.cos(at)).sum(), (flat * torch.cos(2 * at)).sum()]
    return [float(f"{value.item():.8g}") for value in sums]


def values(name):
    folder = os.path.join(FAMILIES, name)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float64).eval()
    rename = {"lm_head.weight": "embed_out.weight"} if model.config.model_type == "gpt_neox" else {}
    named = {
        rename.get(key, key.replace("model.language_model.", "model.")): parameter
        for key, parameter in model.named_parameters()
        if "vision_tower" not in key and "multi_modal_projector" not in key
    }
    rows = scored(model)
    (-sum(row.sum() for row in rows)).backward()
    gradients = {key: summary(parameter.grad) for key, parameter in named.items()}
    targets = TARGETS.get(name, ["q_proj", "v_proj", "down_proj"])
    matrices = {}
    for key, parameter in named.items():
        if any(key.endswith(f".{target}.weight") for target in targets):
            output, inner = parameter.shape
            matrices[key] = (pattern(RANK, inner, 1.0), pattern(output, RANK, 0.7))
    with torch.no_grad():
        for key, (a, b) in matrices.items():
            named[key] += SCALE * b @ a
            named[key].grad = None
    rows = scored(model)
    (-sum(row.sum() for row in rows)).backward()
    adapter = {}
    for key, (a, b) in matrices.items():
        gradient = SCALE * named[key].grad
        adapter[key.removesuffix(".weight")] = {"a": summary(b.T @ gradient), "b": summary(gradient @ a.T)}
    logprobs = [[round(value, 7) for value in row.tolist()] for row in rows]
    return {"gradients": gradients, "lora": {"targetModules": targets, "logprobs": logprobs, "gradients": adapter}}


def main():
    path = os.path.join(HERE, "gradients-expected.json")
    names = []
    for name in sorted(os.listdir(FAMILIES)):
        with open(os.path.join(FAMILIES, name, "config.json")) as file:
            if not json.load(file)["architectures"][0].endswith("ForSequenceClassification"):
                names.append(name)
    kept = {}
    if sys.argv[1:]:
        with open(path) as file:
            kept = json.load(file)["models"]
    made = {name: kept[name] if name in kept and name not in sys.argv[1:] else values(name) for name in names}
    expected = {
        "versions": {"torch": torch.__version__, "transformers": transformers.__version__},
        "rows": ROWS,
        "rank": RANK,
        "scale": SCALE,
        "models": made,
    }
    with open(path, "w") as file:
        json.dump(expected, file)
        file.write("\n")


if __name__ == "__main__":
    main()
