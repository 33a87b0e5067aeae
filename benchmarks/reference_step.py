"""One training step done like in the Python toolbox, as a reference. Depth-first tree, two rows per call, the whole conversation re-encoded and processed again on every call, float32, three copies of the weights, frozen models called with gradients enabled, likelihoods from a separate pass.
Written for this benchmark from the toolbox's published behaviour; needs only torch and transformers. Episodes begin
with the file's prompts in their order.

    python3 benchmarks/reference_step.py --model DIR --prompts FILE.json --episodes 2 [--width 2 --depth 3
        --max-new-tokens 32 --batch-size 4 --beta 0.1 --threads 2 --steps 1]

Prints one JSON line: seconds of each step (rollout, update), tokens generated, peak resident memory.
"""

import argparse
import json
import resource
import time

import torch
import transformers


device = "cpu"


def encode(tokenizer, texts):
    return tokenizer(list(texts))["input_ids"]


def generate(model, tokenizer, texts, max_new_tokens):
    batch = tokenizer(list(texts), padding=True, return_tensors="pt", padding_side="left").to(device)
    output = model.generate(
        **batch,
        pad_token_id=tokenizer.eos_token_id,
        max_new_tokens=max_new_tokens,
        do_sample=True,
        top_p=0.9,
        top_k=50,
        temperature=1.0,
    )
    new = output[:, batch["input_ids"].shape[1] :]
    count = int((new != tokenizer.eos_token_id).sum())
    return tokenizer.batch_decode(new, skip_special_tokens=True), count


def logprobs(model, tokenizer, contexts, continuations):
    context_ids, continuation_ids = encode(tokenizer, contexts), encode(tokenizer, continuations)
    rows = [a + b for a, b in zip(context_ids, continuation_ids)]
    length = max(map(len, rows))
    ids = torch.tensor([row + [tokenizer.eos_token_id] * (length - len(row)) for row in rows], device=device)
    attention = torch.tensor([[1] * len(row) + [0] * (length - len(row)) for row in rows], device=device)
    scored = torch.tensor(
        [
            [False] * len(a) + [True] * len(b) + [False] * (length - len(a) - len(b))
            for a, b in zip(context_ids, continuation_ids)
        ],
        device=device,
    )
    logits = model(input_ids=ids, attention_mask=attention).logits[:, :-1].log_softmax(-1)
    gathered = logits.gather(-1, ids[:, 1:].unsqueeze(-1)).squeeze(-1)
    return gathered.masked_fill(~scored[:, 1:], 0.0)


def harm(texts):
    """A scorer at negligible cost, so that only the models are timed: share of vowels."""
    return [sum(letter in "aeiou" for letter in text) / max(1, len(text)) for text in texts]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True)
    parser.add_argument("--prompts", required=True)
    parser.add_argument("--episodes", type=int, default=2)
    parser.add_argument("--width", type=int, default=2)
    parser.add_argument("--depth", type=int, default=3)
    parser.add_argument("--max-new-tokens", type=int, default=32)
    parser.add_argument("--batch-size", type=int, default=4)
    parser.add_argument("--beta", type=float, default=0.1)
    parser.add_argument("--learning-rate", type=float, default=1e-5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--steps", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()

    global device
    device = arguments.device
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(arguments.seed)
    transformers.logging.set_verbosity_error()
    load = transformers.AutoModelForCausalLM.from_pretrained
    tester, target, baseline = (load(arguments.model, dtype=torch.float32).to(device) for _ in range(3))
    tokenizer = transformers.AutoTokenizer.from_pretrained(arguments.model)
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token_id = tokenizer.eos_token_id
    optimizer = torch.optim.AdamW(tester.parameters(), arguments.learning_rate)
    with open(arguments.prompts) as file:
        prompts = json.load(file)
    generated = 0

    def grow(context, depth):
        nonlocal generated
        if depth == 0:
            return []
        contexts = [context] * arguments.width
        probes, count = generate(tester, tokenizer, contexts, arguments.max_new_tokens)
        generated += count
        responses, count = generate(
            target, tokenizer, [context + probe for probe in probes], arguments.max_new_tokens
        )
        generated += count
        likelihood = logprobs(target, tokenizer, contexts, probes).sum(-1).exp()
        combined = harm([probe + response for probe, response in zip(probes, responses)])
        alone = harm(responses)
        rewards = (0.025 * likelihood.cpu() + 0.1 * torch.tensor(combined) + 0.1 * torch.tensor(alone)).tolist()
        return [
            (context, probe, response, reward, grow(context + probe + response, depth - 1))
            for probe, response, reward in zip(probes, responses, rewards)
        ]

    def pairs_of(nodes):
        if len(nodes) < 2:
            return []
        ordered = sorted(nodes, key=lambda node: node[3], reverse=True)
        found = [(ordered[0][0], ordered[0][1], ordered[-1][1])]
        for node in nodes:
            found += pairs_of(node[4])
        return found

    steps = []
    for _ in range(arguments.steps):
        generated = 0
        started = time.perf_counter()
        trees = [grow(prompts[episode % len(prompts)], arguments.depth) for episode in range(arguments.episodes)]
        rolled_out = time.perf_counter()
        pairs = [pair for tree in trees for pair in pairs_of(tree)]
        losses = []
        for start in range(0, len(pairs), arguments.batch_size):
            contexts, chosen, rejected = zip(*pairs[start : start + arguments.batch_size])
            margin = (
                logprobs(tester, tokenizer, contexts, chosen).sum(-1)
                - logprobs(tester, tokenizer, contexts, rejected).sum(-1)
                - logprobs(baseline, tokenizer, contexts, chosen).sum(-1)
                + logprobs(baseline, tokenizer, contexts, rejected).sum(-1)
            )
            loss = -torch.nn.functional.logsigmoid(arguments.beta * margin).mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
        ended = time.perf_counter()
        steps.append(
            {
                "seconds": ended - started,
                "rollout_s": rolled_out - started,
                "update_s": ended - rolled_out,
                "generated": generated,
                "pairs": len(pairs),
                "loss": sum(losses) / max(1, len(losses)),
            }
        )
    print(
        json.dumps(
            {
                "torch": torch.__version__,
                "transformers": transformers.__version__,
                "threads": arguments.threads,
                "steps": steps,
                "peakResidentBytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
            }
        )
    )


if __name__ == "__main__":
    main()
