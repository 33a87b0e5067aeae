"""Makes PEFT adapters for two of the tiny checkpoints, and the log-probabilities that PEFT gives with them.

    python3 make_lora.py            (torch 2.13, transformers 5.18, peft; versions are written beside the values)
    python3 make_lora.py check DIR  (loads the adapters DIR/gpt2 and DIR/qwen3 that this package saved from the same
                                     matrices, and prints the largest difference to the expected log-probabilities)
"""

import json
import os
import shutil
import sys

import peft
import torch
import transformers

HERE = os.path.dirname(os.path.abspath(__file__))
BASES = {"gpt2": (os.path.join(HERE, "gpt2"), ["c_attn", "c_fc"]), "qwen3": (os.path.join(HERE, "families", "qwen3"), ["q_proj", "v_proj", "down_proj"])}
ROWS = [([5, 9, 17, 33], [40, 41, 42]), ([7], [3, 8, 250, 11, 2]), (list(range(30, 50)), [60])]


def logprobs(model):
    values = []
    for context, continuation in ROWS:
        with torch.no_grad():
            logits = model(torch.tensor([context + continuation])).logits[0].log_softmax(-1)
        values.append([logits[len(context) + k - 1, token].item() for k, token in enumerate(continuation)])
    return values


def main():
    for name, (base, targets) in BASES.items():
        model = transformers.AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32).eval()
        config = peft.LoraConfig(task_type="CAUSAL_LM", r=3, lora_alpha=12, target_modules=targets, fan_in_fan_out=name == "gpt2")
        model = peft.get_peft_model(model, config)
        generator = torch.Generator().manual_seed(1)
        with torch.no_grad():
            for parameter_name, parameter in model.named_parameters():
                if "lora_" in parameter_name:
                    parameter.copy_(0.3 * torch.randn(parameter.shape, generator=generator))
        folder = os.path.join(HERE, "lora", name)
        shutil.rmtree(folder, ignore_errors=True)
        model.save_pretrained(folder)
        for extra in ("README.md",):
            if os.path.exists(os.path.join(folder, extra)):
                os.remove(os.path.join(folder, extra))
        path = os.path.join(folder, "adapter_config.json")
        with open(path) as file:
            saved = json.load(file)
        saved["base_model_name_or_path"] = name
        with open(path, "w") as file:
            json.dump(saved, file, indent=2, sort_keys=True)
        versions = {"torch": torch.__version__, "transformers": transformers.__version__, "peft": peft.__version__}
        with open(os.path.join(folder, "expected.json"), "w") as file:
            json.dump({"rows": ROWS, "logprobs": logprobs(model.eval()), "versions": versions}, file)
            file.write("\n")


def check(directory):
    for name, (base, _) in BASES.items():
        with open(os.path.join(HERE, "lora", name, "expected.json")) as file:
            expected = json.load(file)["logprobs"]
        model = transformers.AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32).eval()
        found = logprobs(peft.PeftModel.from_pretrained(model, os.path.join(directory, name)).eval())
        gap = max(abs(a - b) for row, other in zip(expected, found) for a, b in zip(row, other))
        print(f"{name}: largest difference {gap:.2e}")


if __name__ == "__main__":
    check(sys.argv[2]) if sys.argv[1:2] == ["check"] else main()
