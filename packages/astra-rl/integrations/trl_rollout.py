"""Trees of conversations as a `rollout_func` of TRL's GRPOTrainer; see docs/guides/with-trl.md.

The tester is TRL's model. The target stands behind an OpenAI-compatible server, such as `astra-rl serve`; the scorer is
`astra-rl score`. Written for TRL 1.13, whose `rollout_func` is experimental. Needs torch and transformers, which TRL brings.
"""

import json
import subprocess
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import torch


class ConversationTrees:
    """Grows one level of its trees at each call.

    The completions of a group are siblings: answers to the same conversation, so that TRL's group advantages compare what
    may be compared. One sibling of each group, chosen at random, grows on with the target's response, until the depth is
    reached; then a prompt of the data set begins a new tree. This is the sampler `ast` with `keep: 1`.
    """

    def __init__(self, url, model, scorer, depth=3, max_new_tokens=32, temperature=1.0, top_k=0, top_p=1.0, seed=0,
                 astra=("npx", "astra-rl")):
        """
        url: of the target's server, such as http://127.0.0.1:8000/v1; model: its name there
        scorer: as `astra-rl score --scorer` takes it
        depth: probes in a conversation; the other options are those of the tester's and the target's generation
        """
        self.url, self.model, self.scorer, self.depth = url, model, scorer, depth
        self.generation = dict(max_new_tokens=max_new_tokens, temperature=temperature, top_k=top_k, top_p=top_p)
        self.astra = list(astra)
        self.random = torch.Generator().manual_seed(seed)
        self.waiting = []  # conversations that grow on: [prompt, probe, response, …]
        self.calls = 0

    def __call__(self, prompts, trainer):
        """One completion for each of TRL's rows, `num_generations` of them for each conversation."""
        size = trainer.num_generations
        if len(prompts) % size != 0:
            raise ValueError(f"expected a multiple of num_generations ({size}) rows, got {len(prompts)}")
        groups = [self.waiting.pop(0) if self.waiting else [prompt] for prompt in prompts[::size]]
        rows = [conversation for conversation in groups for _ in range(size)]
        prompt_ids, completion_ids, logprobs, probes = self.probe(rows, trainer)
        responses = self.respond([row + [probe] for row, probe in zip(rows, probes)])
        harm_of_response = self.score(
            [{"prompt": probe, "response": response} for probe, response in zip(probes, responses)]
        )
        harm_of_probe = self.score([{"text": probe} for probe in probes])
        for start in range(0, len(rows), size):
            chosen = start + int(torch.randint(size, (1,), generator=self.random))
            grown = rows[chosen] + [probes[chosen], responses[chosen]]
            if len(grown) < 1 + 2 * self.depth:
                self.waiting.append(grown)
        self.calls += 1
        return {
            "prompt_ids": prompt_ids,
            "completion_ids": completion_ids,
            "logprobs": logprobs,
            "probe": probes,
            "response": responses,
            "harm_of_probe": harm_of_probe,
            "harm_of_response": harm_of_response,
        }

    @torch.no_grad()
    def probe(self, conversations, trainer):
        """The tester's next messages. Its own are the assistant's; the prompt is the user's first."""
        tokenizer = trainer.processing_class
        chats = [
            [
                {"role": "assistant" if at % 2 == 1 else "user", "content": text}
                for at, text in enumerate(conversation)
            ]
            for conversation in conversations
        ]
        texts = [tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True) for chat in chats]
        prompt_ids = [tokenizer(text, add_special_tokens=False)["input_ids"] for text in texts]
        model = trainer.accelerator.unwrap_model(trainer.model)
        width = max(map(len, prompt_ids))
        pad = tokenizer.pad_token_id
        ids = torch.tensor([[pad] * (width - len(row)) + row for row in prompt_ids], device=model.device)
        mask = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in prompt_ids], device=model.device)
        training = model.training
        model.eval()
        generated = model.generate(ids, attention_mask=mask, do_sample=True, pad_token_id=pad, **self.generation)
        completion_ids = []
        for row in generated[:, width:].tolist():
            end = row.index(tokenizer.eos_token_id) + 1 if tokenizer.eos_token_id in row else len(row)
            completion_ids.append(row[:end])
        # log P of each id under the full distribution at temperature 1.
        full = torch.cat([mask, torch.ones_like(generated[:, width:])], 1)
        positions = (full.cumsum(1) - 1).clamp(min=0)
        logits = model(generated, attention_mask=full, position_ids=positions).logits[:, width - 1 : -1].float()
        told = logits.log_softmax(-1).gather(2, generated[:, width:, None]).squeeze(2).tolist()
        model.train(training)
        logprobs = [row[: len(own)] for row, own in zip(told, completion_ids)]
        probes = [tokenizer.decode(row, skip_special_tokens=True).strip() for row in completion_ids]
        return prompt_ids, completion_ids, logprobs, probes

    def respond(self, conversations):
        """The target's responses. Its own messages are the assistant's; the prompt stands before the first probe."""

        def ask(conversation):
            prompt, probe, *others = conversation
            first = {"role": "user", "content": f"{prompt.rstrip()}\n\n{probe}"}
            rest = [
                {"role": "assistant" if at % 2 == 0 else "user", "content": text} for at, text in enumerate(others)
            ]
            options = self.generation
            body = {
                "model": self.model,
                "messages": [first, *rest],
                "max_tokens": options["max_new_tokens"],
                "temperature": options["temperature"],
                "top_p": options["top_p"],
                "seed": int(torch.randint(2**31, (1,), generator=self.random)),
            }
            request = urllib.request.Request(
                f"{self.url}/chat/completions", json.dumps(body).encode(), {"content-type": "application/json"}
            )
            return request

        requests = [ask(conversation) for conversation in conversations]

        def answer(request):
            with urllib.request.urlopen(request, timeout=600) as reply:
                choice = json.load(reply)["choices"][0]
            # Anything else is not an answer, and must not be scored as a harmless one.
            if choice["finish_reason"] not in ("stop", "length"):
                raise RuntimeError(f"{self.url}: no answer, finish_reason {choice['finish_reason']}")
            return choice["message"]["content"].strip()

        with ThreadPoolExecutor(16) as pool:
            return list(pool.map(answer, requests))

    def score(self, rows):
        """Harm of each text or response, from 0 to 1."""
        lines = "".join(f"{json.dumps(row)}\n" for row in rows)
        command = [*self.astra, "score", "--scorer", self.scorer, "--input", "-"]
        done = subprocess.run(command, input=lines, capture_output=True, text=True)
        if done.returncode != 0:
            raise RuntimeError(done.stderr.strip())
        return [json.loads(line)["score"] for line in done.stdout.splitlines()]


def harm_by_harmless_probes(harm_of_response, harm_of_probe, **_):
    """The response's harm, weighted by the harmlessness of the probe; harmful probes are penalized."""
    return [
        response * (1 - probe) - 0.5 * probe for response, probe in zip(harm_of_response, harm_of_probe)
    ]
