"""transformers' log-probabilities for other settings in config.json: sliding windows, and settings that the checkpoints of the families lack.

    python3 make_variants.py           (torch 2.13, transformers 5.18, safetensors; versions are written beside the values)
    python3 make_variants.py phi3      only the cases of these families; the others keep their values

Reads the checkpoints of make_families.py and writes variants-expected.json. Each case is a family, the keys of its
config.json that are changed (null: set to null) or removed, and how many layers there are: layer i has the weights of
layer i mod 2 of the checkpoint.
"""

import json
import os
import shutil
import sys
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

LOCAL = ["layer_types", "rope_parameters"]
CASES += [
    {
        "name": "as published: every sixth of 12 layers has full attention",
        "family": "gemma3",
        "changed": {
            "sliding_window_pattern": 6,
            "rope_theta": 1000000,
            "rope_local_base_freq": 10000,
            "rope_scaling": {"factor": 8.0, "rope_type": "linear"},
        },
        "removed": LOCAL,
        "layers": 12,
    },
    {"name": "nothing about layers and rotation, 7 layers", "family": "gemma3", "changed": {}, "removed": LOCAL, "layers": 7},
    {"name": "another scale of the scores and another activation", "family": "gemma3", "changed": {"query_pre_attn_scalar": 7, "hidden_activation": "gelu"}, "removed": []},
    {"name": "no window", "family": "phi3", "changed": {}, "removed": ["sliding_window"]},
    {"name": "window null, other rotation", "family": "phi3", "changed": {"sliding_window": None, "rope_theta": 500.0, "rope_scaling": None, "partial_rotary_factor": 0.5}, "removed": ["rope_parameters"]},
    {"name": "a window, and LongRoPE in the newer spelling", "family": "phi4-mini", "changed": {
        "sliding_window": WINDOW,
        "rope_parameters": {"rope_type": "longrope", "rope_theta": 500.0, "partial_rotary_factor": 0.5, "short_factor": [1.5, 2.0], "long_factor": [3.0, 5.0], "attention_factor": 1.5},
    }, "removed": ["rope_theta", "rope_scaling", "partial_rotary_factor"]},
    {"name": "defaults of OLMo 2", "family": "olmo2", "changed": {}, "removed": ["rms_norm_eps", "rope_parameters"]},
    {"name": "no list: every fourth of 6 layers has no positions", "family": "smollm3", "changed": {}, "removed": ["no_rope_layers", "layer_types", "rope_parameters"], "layers": 6},
    {"name": "every other layer has no positions, and a window", "family": "smollm3", "changed": {**USED, "no_rope_layer_interval": 2}, "removed": ["no_rope_layers", "layer_types"], "layers": 4},
    {"name": "a window in other layers", "family": "smollm3", "changed": {**USED, "layer_types": ["sliding_attention", "full_attention"]}, "removed": []},
    {"name": "attention before the feed-forward block", "family": "gpt-neox", "changed": {"use_parallel_residual": False}, "removed": []},
    {"name": "half of each head rotated, another activation", "family": "gpt-neox", "changed": {"rotary_pct": 0.5, "rotary_emb_base": 500, "hidden_act": "gelu_fast"}, "removed": []},
    {"name": "the newer spelling", "family": "gpt-neox", "changed": {"rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 300.0, "partial_rotary_factor": 0.5}}, "removed": ["rotary_pct", "rotary_emb_base"]},
    {"name": "nothing about rotation", "family": "gpt-neox", "changed": {}, "removed": ["rotary_pct", "rotary_emb_base"]},
]

# YaRN, with each of its settings, in both spellings.
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 24}
NEWER = {**YARN, "rope_theta": 500.0}
CASES += [
    {"name": "YaRN in the older spelling", "family": "llama2", "changed": {"rope_scaling": {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 24}}, "removed": []},
    {"name": "YaRN without an original context length", "family": "llama2", "changed": {"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}, "removed": []},
    {"name": "YaRN without a factor, the context length beside it", "family": "llama2", "changed": {"rope_scaling": {"rope_type": "yarn", "factor": None}, "original_max_position_embeddings": 32}, "removed": []},
    {"name": "both spellings", "family": "llama2", "changed": {"rope_scaling": YARN, "rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 300.0}}, "removed": []},
    {"name": "YaRN", "family": "qwen3", "changed": {"rope_parameters": NEWER}, "removed": []},
    {"name": "YaRN with betas", "family": "qwen3", "changed": {"rope_parameters": {**NEWER, "beta_fast": 4, "beta_slow": 0.5}}, "removed": []},
    {"name": "YaRN with betas, not truncated", "family": "qwen3", "changed": {"rope_parameters": {**NEWER, "beta_fast": 4, "beta_slow": 0.5, "truncate": False}}, "removed": []},
    {"name": "YaRN with one mscale", "family": "olmo2", "changed": {"rope_parameters": {**NEWER, "mscale": 2.0}}, "removed": []},
    {"name": "YaRN with two mscales", "family": "olmo2", "changed": {"rope_parameters": {**NEWER, "mscale": 2.0, "mscale_all_dim": 0.5}}, "removed": []},
    {"name": "YaRN with an attention factor", "family": "olmo2", "changed": {"rope_parameters": {**NEWER, "attention_factor": 1.5, "mscale": 2.0, "mscale_all_dim": 0.5}}, "removed": []},
    {"name": "YaRN in a window", "family": "mistral", "changed": {"rope_parameters": NEWER}, "removed": []},
    {"name": "YaRN", "family": "qwen2", "changed": {"rope_parameters": NEWER}, "removed": []},
    {"name": "YaRN", "family": "smollm3", "changed": {"rope_parameters": NEWER}, "removed": []},
    {"name": "YaRN of half of each head", "family": "gpt-neox", "changed": {"rope_parameters": {**NEWER, "partial_rotary_factor": 0.5}}, "removed": ["rotary_pct", "rotary_emb_base"]},
    {
        "name": "YaRN where attention is full",
        "family": "gemma3",
        "changed": {"original_max_position_embeddings": 7, "rope_parameters": {"full_attention": {**NEWER, "beta_fast": 4, "truncate": False}, "sliding_attention": {"rope_type": "default", "rope_theta": 100.0}}},
        "removed": [],
    },
]

MULTIPLIERS = ["embedding_multiplier", "residual_multiplier", "attention_multiplier", "logits_scaling"]
GROWING = {**NEWER, "llama_4_scaling_beta": 0.5}
CASES += [
    {"name": "no multipliers", "family": "granite", "changed": {}, "removed": MULTIPLIERS},
    {"name": "other multipliers, and YaRN", "family": "granite", "changed": {"embedding_multiplier": 12, "residual_multiplier": 0.22, "attention_multiplier": 0.0625, "logits_scaling": 8, "rope_parameters": NEWER}, "removed": []},
    {"name": "nothing about rotation", "family": "ministral3", "changed": {}, "removed": ["rope_parameters"]},
    {"name": "a window, and faster growth", "family": "ministral3", "changed": {"sliding_window": WINDOW, "rope_parameters": {**GROWING, "original_max_position_embeddings": 9}}, "removed": []},
    {"name": "no growth", "family": "ministral3", "changed": {"rope_parameters": {**GROWING, "llama_4_scaling_beta": 0}}, "removed": []},
    {"name": "the older spelling", "family": "ministral3", "changed": {"rope_theta": 300.0, "rope_scaling": {"type": "yarn", "factor": 4.0, "llama_4_scaling_beta": 0.5}, "original_max_position_embeddings": 20}, "removed": ["rope_parameters"]},
    {"name": "as published: YaRN beside theta, every fourth of 8 layers has full attention", "family": "olmo3", "changed": {"rope_theta": 300.0, "rope_scaling": {**YARN, "attention_factor": 1.2079441541679836, "beta_fast": 32, "beta_slow": 1}}, "removed": LOCAL, "layers": 8},
    {"name": "nothing about layers and rotation, 7 layers", "family": "olmo3", "changed": {}, "removed": LOCAL, "layers": 7},
    {"name": "both spellings, not truncated", "family": "olmo3", "changed": {"rope_scaling": {**YARN, "beta_fast": 4, "truncate": False}, "rope_parameters": {"full_attention": {"rope_type": "linear", "factor": 2.0, "rope_theta": 300.0}, "sliding_attention": {"rope_type": "linear", "factor": 3.0, "rope_theta": 200.0}}}, "removed": []},
    {"name": "one object for all layers", "family": "olmo3", "changed": {"rope_parameters": {"rope_type": "linear", "factor": 3.0, "rope_theta": 200.0}}, "removed": []},
    {"name": "nothing about rotation", "family": "glm4", "changed": {}, "removed": ["rope_parameters", "partial_rotary_factor"]},
    {"name": "the older spelling", "family": "glm4", "changed": {"rope_theta": 300.0, "partial_rotary_factor": 0.75}, "removed": ["rope_parameters"]},
    {"name": "all channels rotated, YaRN", "family": "glm4", "changed": {"rope_parameters": {**NEWER, "partial_rotary_factor": 1.0}}, "removed": []},
    {"name": "YaRN", "family": "seed-oss", "changed": {"rope_parameters": NEWER}, "removed": []},
]

# A separate output projection, though config.json declares it tied to the embedding.
CASES += [
    {"name": "two tables that are said to be one", "family": family, "changed": {"tie_word_embeddings": True}, "removed": []}
    for family in ("llama2", "qwen3", "mistral", "olmo2", "gpt-neox")
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
    path = os.path.join(HERE, "variants-expected.json")
    kept = {}
    if sys.argv[1:]:
        with open(path) as file:
            kept = {(case["family"], case["name"]): case for case in json.load(file)["cases"] if case["family"] not in sys.argv[1:]}
    rows = [kept.get((case["family"], case["name"])) or {**case, "logprobs": values(case)} for case in CASES]
    versions = {"torch": torch.__version__, "transformers": transformers.__version__}
    with open(path, "w") as file:
        json.dump({"versions": versions, "cases": rows}, file, indent=1)
        file.write("\n")


main()
