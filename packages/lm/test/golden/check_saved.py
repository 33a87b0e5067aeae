"""Loads what save-for-python.ts wrote with transformers and compares log-probabilities.

    python packages/lm/test/golden/check_saved.py FOLDER

Exits with status 1 if any differs by more than 2e-4.
"""

import json
import sys
from pathlib import Path

import torch
import transformers


def largest_difference(folder: Path) -> float:
    model, report = transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, output_loading_info=True
    )
    assert not report["missing_keys"] and not report["unexpected_keys"], report
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    assert len(tokenizer) <= model.config.vocab_size
    ours = json.loads((folder / "ours.json").read_text())
    worst = 0.0
    for row, logprobs in zip(ours["rows"], ours["logprobs"], strict=True):
        context, continuation = row["context"], row["continuation"]
        with torch.no_grad():
            scores = model.eval()(torch.tensor([context + continuation])).logits[0].log_softmax(-1)
        for k, token in enumerate(continuation):
            worst = max(worst, abs(scores[len(context) - 1 + k, token].item() - logprobs[k]))
    return worst


def main() -> None:
    folders = sorted(path.parent for path in Path(sys.argv[1]).glob("*/ours.json"))
    assert folders, "nothing to check"
    failed = False
    for folder in folders:
        worst = largest_difference(folder)
        failed |= not worst < 2e-4
        print(f"{folder.name:24} {worst:.2e}")
    sys.exit(failed)


if __name__ == "__main__":
    main()
