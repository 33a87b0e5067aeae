"""transformers' results for texts: ids with the tokenizer's prefix, log-probabilities of continuations, greedy continuations. Over GPT-2 and the causal families that make_gpt2.py and make_families.py made; nothing is downloaded.

    python3 make_texts.py               (torch 2.13, transformers 5.18; versions are written beside the values)
    python3 make_texts.py phi3 olmo2    only these; the others keep their values

Writes texts-expected.json.
"""

import json
import os
import sys

import tokenizers
import torch
import transformers

from make_families import window_of

HERE = os.path.dirname(os.path.abspath(__file__))

PAIRS = [
    ("The morning train was", " late again, and nobody knew why."),
    ("The morning train was", "late again"),
    (" leading space", " and trailing space "),
    ("She said:\n", "\"Don't worry\"\n"),
    ("Verspätung naïve e\u0301", " señor e\u0301"),
    ("今天天气", "很好 東京"),
    ("مرحبا", " שלום"),
    ("😀🎉", "👩‍👩‍👧 🇫🇷"),
    ("", "The train"),
    ("x", "  double   spaces"),
]
PROMPTS = ["The morning train", " She planted tomatoes,", "今天天气很好", "Numbers such as 7, 42\n", "e\u0301 naïve", "x"]
NEW_TOKENS = 10


def values(folder):
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    window = window_of(model.config)
    pairs, prompts = [], []
    for context, continuation in PAIRS:
        before = tokenizer(context).input_ids
        after = tokenizer(continuation, add_special_tokens=False).input_ids
        if not before or len(before) + len(after) > window:
            continue
        with torch.no_grad():
            logits = model(torch.tensor([before + after])).logits[0].log_softmax(-1)
        scored = [logits[len(before) + offset - 1, token].item() for offset, token in enumerate(after)]
        pairs.append(
            {
                "context": context,
                "continuation": continuation,
                "contextIds": before,
                "continuationIds": after,
                "logprobs": [round(value, 6) for value in scored],
            }
        )
    for prompt in PROMPTS:
        batch = tokenizer(prompt, return_tensors="pt")
        ids = batch.input_ids[0].tolist()
        with torch.no_grad():
            output = model.generate(
                batch.input_ids,
                attention_mask=batch.attention_mask,
                max_new_tokens=NEW_TOKENS,
                do_sample=False,
                pad_token_id=0,
            )
        prompts.append({"prompt": prompt, "ids": ids, "greedy": output[0, len(ids) :].tolist()})
    return {"pairs": pairs, "prompts": prompts}


def main():
    families = os.path.join(HERE, "families")
    folders = {"gpt2": os.path.join(HERE, "gpt2")}
    for name in sorted(os.listdir(families)):
        with open(os.path.join(families, name, "config.json")) as file:
            architecture = json.load(file)["architectures"][0]
        if not architecture.endswith("ForSequenceClassification"):
            folders[name] = os.path.join(families, name)
    path = os.path.join(HERE, "texts-expected.json")
    kept = {}
    if sys.argv[1:]:
        with open(path) as file:
            kept = json.load(file)["models"]
    wanted = lambda name: name in sys.argv[1:] or name not in kept
    made = {name: values(folder) if wanted(name) else kept[name] for name, folder in folders.items()}
    expected = {
        "versions": {
            "torch": torch.__version__,
            "transformers": transformers.__version__,
            "tokenizers": tokenizers.__version__,
        },
        "newTokens": NEW_TOKENS,
        "models": made,
    }
    with open(path, "w") as file:
        json.dump(expected, file, ensure_ascii=False, indent=1)
        file.write("\n")


if __name__ == "__main__":
    main()
