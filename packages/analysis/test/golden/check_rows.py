"""Recomputes saved rollouts with transformers: texts from ids, and log-probabilities from texts' ids.

    npx astra-rl rollout run.yaml --episodes 4 --json --tokens > rows.jsonl
    python check_rows.py rows.jsonl TESTER_FOLDER TARGET_FOLDER

For every turn: the ids of probe and response decode, special tokens spelled out, to the texts of the record; the rows of its
children begin with its own; and the sum of the target's log-probabilities of the probe's ids, in one forward pass without a
cache, is the recorded likelihood. Plain formats and chat templates. Exits with 1 where anything differs. For rollouts that fill no window.

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

turns = messages = 0
worst = 0.0
wrong = []


def text_of(side, ids):
    """What ids say behind other text, special tokens spelled out; tokenizers may write the first word of a text otherwise."""
    tokenizer = tokenizers[side]
    decode = lambda each: tokenizer.decode(each, skip_special_tokens=False, clean_up_tokenization_spaces=False)
    before = tokenizer("a", add_special_tokens=False)["input_ids"]
    return decode(before + ids)[len(decode(before)):]


def check(node):
    global turns, messages, worst
    turns += 1
    tester, target = node["tokens"]["tester"], node["tokens"]["target"]
    for side, ids, text in [("tester", tester["probe"], node["probe"]), ("target", target["response"], node["response"])]:
        messages += 1
        if text_of(side, ids) != text:
            wrong.append((side, text_of(side, ids), text))
    # A child's rows go on from its parent's, id by id.
    for child in node["children"]:
        own = child["tokens"]
        for before, after in [
            (tester["context"] + tester["probe"], own["tester"]["context"]),
            (target["context"] + target["heard"] + target["response"], own["target"]["context"]),
        ]:
            if after[: len(before)] != before:
                wrong.append(("row", before, after))
    probe = target["probe"]
    if probe:
        # A chat template writes ids before and after it.
        heard = target["heard"]
        starts = [at for at in range(len(heard)) if heard[at : at + len(probe)] == probe]
        at = len(target["context"]) + starts[-1]
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

print(f"{turns} turns, {messages} messages, {len(wrong)} differ, log-probabilities within {worst:.1e} a token")
for side, said, text in wrong[:5]:
    print(f"  {side}: {said!r}\n  record: {text!r}")
sys.exit(1 if wrong or worst > WITHIN else 0)
