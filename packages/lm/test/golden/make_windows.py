"""Log-probabilities that transformers gives for the ways in which config.json asks for sliding windows.

    python3 make_windows.py            (torch 2.13, transformers 5.18, safetensors; versions are written beside the values)

Reads the checkpoints of make_families.py and writes windows-expected.json. Each case is a family, the keys of its
config.json that are changed (null: set to null) or removed, and how many layers there are: layer i has the weights of
layer i mod 2 of the checkpoint.
"""

import json
import os
import shutil
import tempfile

import torch
import transformers
from safetensors.torch import load_file, save_file

HERE = os.path.dirname(os.path.abspath(__file__))
WINDOW = 8
USED = {"use_sliding_window": True, "sliding_window": WINDOW}
ABSENT = ["layer_types", "max_window_layers"]

CASES = []
for family in ("qwen2", "qwen3"):
    CASES += [
        {"name": "no max_window_layers, 2 layers", "family": family, "changed": USED, "removed": ABSENT},
        {"name": "no max_window_layers, 30 layers", "family": family, "changed": USED, "removed": ABSENT, "layers": 30},
        {"name": "max_window_layers 0", "family": family, "changed": {**USED, "max_window_layers": 0}, "removed": ABSENT[:1]},
        {"name": "max_window_layers 1", "family": family, "changed": {**USED, "max_window_layers": 1}, "removed": ABSENT[:1]},
        {
            "name": "layer_types before max_window_layers",
            "family": family,
            "changed": {**USED, "max_window_layers": 0, "layer_types": ["sliding_attention", "full_attention"]},
            "removed": [],
        },
        {
            "name": "layer_types null",
            "family": family,
            "changed": {**USED, "max_window_layers": 1, "layer_types": None},
            "removed": [],
        },
        {
            "name": "not used",
            "family": family,
            "changed": {**USED, "use_sliding_window": False, "max_window_layers": 0},
            "removed": ABSENT[:1],
        },
        {
            "name": "used, but null",
            "family": family,
            "changed": {**USED, "sliding_window": None, "max_window_layers": 0},
            "removed": ABSENT[:1],
        },
        {
            "name": "used without a size",
            "family": family,
            "changed": {"use_sliding_window": True, "max_window_layers": 0},
            "removed": [ABSENT[0], "sliding_window"],
        },
    ]
CASES += [
    {"name": "a window", "family": "mistral", "changed": {"sliding_window": WINDOW}, "removed": []},
    {"name": "null", "family": "mistral", "changed": {"sliding_window": None}, "removed": []},
    {"name": "absent", "family": "mistral", "changed": {}, "removed": ["sliding_window"]},
    {"name": "absent, beyond 4096", "family": "mistral", "changed": {"max_position_embeddings": 8192}, "removed": ["sliding_window"], "length": 4110},
]


def values(case):
    source = os.path.join(HERE, "families", case["family"])
    folder = tempfile.mkdtemp()
    with open(os.path.join(source, "config.json")) as file:
        config = json.load(file)
    config.update(case["changed"])
    for key in case["removed"]:
        config.pop(key, None)
    layers = case.get("layers", 2)
    config["num_hidden_layers"] = layers
    with open(os.path.join(folder, "config.json"), "w") as file:
        json.dump(config, file)
    tensors = load_file(os.path.join(source, "model.safetensors"))
    repeated = {}
    for name, tensor in tensors.items():
        if not name.startswith("model.layers."):
            repeated[name] = tensor
            continue
        _, _, number, rest = name.split(".", 3)
        for layer in range(int(number), layers, 2):
            repeated[f"model.layers.{layer}.{rest}"] = tensor.clone()
    save_file(repeated, os.path.join(folder, "model.safetensors"), {"format": "pt"})
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    shutil.rmtree(folder)
    length = case.get("length", 40)
    # Any ids do; the test computes them likewise.
    ids = [(7 * at * at + 3 * at) % 331 for at in range(length)]
    with torch.no_grad():
        logits = model(torch.tensor([ids])).logits[0].log_softmax(-1)
    last = range(length - 12, length)
    return [logits[at - 1, ids[at]].item() for at in last]


def main():
    rows = [{**case, "logprobs": values(case)} for case in CASES]
    versions = {"torch": torch.__version__, "transformers": transformers.__version__}
    with open(os.path.join(HERE, "windows-expected.json"), "w") as file:
        json.dump({"versions": versions, "cases": rows}, file, indent=1)
        file.write("\n")


main()
