"""Recomputes saved rollouts with transformers: texts from ids, and log-probabilities from texts' ids.

    npx astra-rl rollout run.yaml --episodes 4 --json --tokens > rows.jsonl
    python check_rows.py rows.jsonl TESTER_FOLDER TARGET_FOLDER

For every turn: the rows of whole characters that tester and target read decode, special tokens spelled out, to the texts of the record; and the
sum of the target's log-probabilities of the probe's ids, in one forward pass without a cache, is the recorded likelihood.
Rows of which a full window dropped the beginning are compared from their end. Exits with 1 where anything differs.

Made for torch 2.13.0 and transformers 5.18.0.
"""

import json
import sys

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

rows_path, tester_path, target_path = sys.argv[1:4]
tokenizers = {"tester": AutoTokenizer.from_pretrained(tester_path), "target": AutoTokenizer.from_pretrained(target_path)}
model = AutoModelForCausalLM.from_pretrained(target_path, dtype=torch.float32).eval()
WITHIN = 5e-4

turns = texts = cut = 0
worst = 0.0
wrong = []


def text_of(side, ids):
    tokenizer = tokenizers[side]
    bos = tokenizer("")["input_ids"]
    ids = ids[len(bos):] if ids[: len(bos)] == bos else ids
    return tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False)


def same(side, ids, text):
    global texts, cut
    # A message that ends within a character is recorded with U+FFFD, whose bytes a decoder of the whole row joins to the next.
    if "\ufffd" in text:
        cut += 1
        return True
    texts += 1
    said = text_of(side, ids)
    return said.lstrip() == text.lstrip() or (said != "" and text.endswith(said.lstrip()))


def check(node):
    global turns, cut, worst
    turns += 1
    tester, target = node["tokens"]["tester"], node["tokens"]["target"]
    for side, ids, text in [
        ("tester", tester["context"] + tester["probe"], node["context"] + node["probe"]),
        ("target", target["context"] + target["heard"] + target["response"], node["context"] + node["probe"] + node["response"]),
    ]:
        if not same(side, ids, text):
            wrong.append((side, text_of(side, ids), text))
    probe = target["probe"]
    if probe:
        at = len(target["context"]) + len(target["heard"]) - len(probe)
        ids = torch.tensor([target["context"] + target["heard"]])
        with torch.no_grad():
            logprobs = model(ids).logits.float().log_softmax(-1)
        total = sum(logprobs[0, at + i - 1, id].item() for i, id in enumerate(probe))
        worst = max(worst, abs(total - node["likelihood"]["total"]) / len(probe))
    for child in node["children"]:
        check(child)


for line in open(rows_path, encoding="utf-8"):
    for child in json.loads(line)["children"]:
        check(child)

print(f"{turns} turns, {texts} rows of whole characters (not {cut} others), {len(wrong)} differ, log-probabilities within {worst:.1e} a token")
for side, said, text in wrong[:5]:
    print(f"  {side}: {said!r}\n  record: {text!r}")
sys.exit(1 if wrong or worst > WITHIN else 0)
