"""Creates the committed GPT-2 golden checkpoint and transformers' results for it.

    python packages/lm/test/golden/make_gpt2.py

Needs torch, transformers and tokenizers; the versions used are written into expected.json. Tests never run this file.
Everything is derived from SEED, so running it again with the same versions gives the same files.
"""

import json
import shutil
from pathlib import Path

import tokenizers
import torch
import transformers
from tokenizers import ByteLevelBPETokenizer

SEED = 20250117
HERE = Path(__file__).parent
FOLDER = HERE / "gpt2"
END = "<|endoftext|>"
WINDOW = 64

# Original sentences, only so that the vocabulary gets merges in several scripts.
CORPUS = [
    "The lamp on the table was warm, and the room was quiet.",
    "She asked what the weather would be like in the morning.",
    "They walked along the river until the path turned into the woods.",
    "What do you think of the new library? I think it's wonderful.",
    "He said that the bread was fresh and that the tea was hot.",
    "今天天气很好，我们去公园散步吧。",
    "東京の空は青いです。",
    "Привет, как твои дела?",
    "مرحبا كيف حالك",
    "The cat 🐈 sat by the fire 🔥 and the dog 🐕 slept.",
] * 4

LOGPROB_TEXTS = [
    # (note, context, continuation)
    ("plain", "The lamp on the table", " was warm."),
    ("one continuation token", "The", " cat"),
    ("one context token", "T", "he weather in the morning"),
    ("empty context", "", "What do you think?"),
    ("empty continuation", "The room was quiet", ""),
    ("both empty", "", ""),
    ("emoji", "The cat 🐈", " and 🔥🐕 👩‍👩‍👧"),
    ("cjk", "今天天气", "很好，我们去。東京の空"),
    ("combining marks", "cafe\u0301 nai\u0308ve", " re\u0301sume\u0301"),
    ("right to left", "مرحبا", " كيف حالك שלום"),
    ("control characters", "a\u0000b\u0007", "\r\n\t\u001b[0m\u007f"),
    ("spaces and newlines", "  \n\n  two", "   three \n"),
    ("special token inside", "One." + END, "Two." + END),
    ("longer than the window", "The lamp on the table was warm and the room was quiet. " * 6, "He said it was hot."),
    ("exactly the window", "the " * 58, " a b c"),
    ("just past the window", "the " * 60, " a b c"),
]

GREEDY = [
    # (note, prompt, max new tokens)
    ("plain", "The lamp on the table", 16),
    ("one token", "T", 16),
    ("empty prompt", "", 16),
    ("emoji", "The cat 🐈🔥", 16),
    ("cjk", "今天天气很好", 16),
    ("combining marks", "cafe\u0301 nai\u0308ve", 12),
    ("right to left", "مرحبا كيف", 12),
    ("longer than the window", "She asked what the weather would be like. " * 8, 20),
    ("nearly the whole window", "Bread and tea", 60),
    ("question", "What do you think of", 24),
    ("russian", "Привет, как", 24),
]

TOKENIZER_TEXTS = [
    "",
    " ",
    "\n",
    "Hello, world!",
    "it's they'll I'VE don't",
    "  leading and   inner   spaces  ",
    "tab\tnewline\ncarriage\r\nend",
    "1234567890 3.14159 -2e10",
    "東京の空は青いです。今天天气很好",
    "👩‍👩‍👧‍👦 🏳️‍🌈 🇯🇵 ☃",
    "e\u0301 \u0301 a\u0300\u0316 ﬁ ﷺ",
    "שלום עולם مرحبا",
    "\u0000\u0001\u001f\u007f\u0080\u009f",
    "\ufeffbyte order mark",
    "\u200b\u200d\u2028\u2029",
    "𝔘𝔫𝔦𝔠𝔬𝔡𝔢 \U0010ffff",
    f"before{END}after",
    f"{END}{END}",
    "<|endoftext",
]


def train_tokenizer() -> transformers.PreTrainedTokenizerFast:
    bpe = ByteLevelBPETokenizer()
    bpe.train_from_iterator(CORPUS, vocab_size=320, min_frequency=2, special_tokens=[END], show_progress=False)
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=bpe._tokenizer,
        bos_token=END,
        eos_token=END,
        unk_token=END,
        model_max_length=WINDOW,
        clean_up_tokenization_spaces=False,
    )


def make_model(vocab_size: int, end: int) -> transformers.GPT2LMHeadModel:
    config = transformers.GPT2Config(
        vocab_size=vocab_size,
        n_positions=WINDOW,
        n_embd=40,
        n_layer=2,
        n_head=4,
        bos_token_id=end,
        eos_token_id=end,
    )
    model = transformers.GPT2LMHeadModel(config).eval()
    # Weights far from their initial values, biases and norms included, so that each of them affects the numbers.
    generator = torch.Generator().manual_seed(SEED)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            if "ln_" in name and name.endswith("weight"):
                parameter.copy_(1 + 0.3 * noise)
            elif "wte" in name:
                parameter.copy_(0.35 * noise)
            else:
                parameter.copy_(0.22 * noise)
    return model


def log_probabilities(model, context: list[int], continuation: list[int], end: int) -> list[float]:
    if not continuation:
        return []
    context = context or [end]
    context = context[-(WINDOW - len(continuation)) :]
    ids = torch.tensor([context + continuation])
    with torch.no_grad():
        scores = model(ids).logits[0].log_softmax(-1)
    return [scores[len(context) - 1 + k, token].item() for k, token in enumerate(continuation)]


def greedy(model, prompt: list[int], new_tokens: int, end: int) -> tuple[list[int], float]:
    """New ids, including the end-of-text id if reached, and the smallest margin between the two likeliest tokens."""
    kept = (prompt or [end])[-(WINDOW - new_tokens) :]
    out = model.generate(
        torch.tensor([kept]),
        attention_mask=torch.ones(1, len(kept), dtype=torch.long),
        max_new_tokens=new_tokens,
        do_sample=False,
        pad_token_id=end,
    )[0, len(kept) :].tolist()
    with torch.no_grad():
        logits = model(torch.tensor([kept + out])).logits[0, len(kept) - 1 : -1]
    best = logits.topk(2, -1).values
    return out, (best[:, 0] - best[:, 1]).min().item()


def gradients(model, pairs, end: int) -> dict:
    """Of the sum of all log-probabilities of the pairs: per parameter its norm and its first four values."""
    model.zero_grad()
    total = 0
    for pair in pairs:
        context = pair["contextIds"] or [end]
        continuation = pair["continuationIds"]
        if not continuation:
            continue
        context = context[-(WINDOW - len(continuation)) :]
        scores = model(torch.tensor([context + continuation])).logits[0].log_softmax(-1)
        for k, token in enumerate(continuation):
            total = total + scores[len(context) - 1 + k, token]
    total.backward()
    return {
        name: {"norm": parameter.grad.norm().item(), "first": parameter.grad.flatten()[:4].tolist()}
        for name, parameter in model.named_parameters()
    }


def main() -> None:
    tokenizer = train_tokenizer()
    end = tokenizer.eos_token_id
    model = make_model(len(tokenizer), end)

    shutil.rmtree(FOLDER, ignore_errors=True)
    model.save_pretrained(FOLDER)
    tokenizer.save_pretrained(FOLDER)

    encode = lambda text: tokenizer.encode(text, add_special_tokens=False)  # noqa: E731
    pairs = []
    for note, context, continuation in LOGPROB_TEXTS:
        context_ids, continuation_ids = encode(context), encode(continuation)
        pairs.append(
            {
                "note": note,
                "context": context,
                "continuation": continuation,
                "contextIds": context_ids,
                "continuationIds": continuation_ids,
                "logprobs": log_probabilities(model, context_ids, continuation_ids, end),
            }
        )

    generations = []
    for note, prompt, new_tokens in GREEDY:
        prompt_ids = encode(prompt)
        ids, lead = greedy(model, prompt_ids, new_tokens, end)
        assert lead > 1e-3, f"{note}: two tokens are too close ({lead}) for a test of equality"
        generations.append(
            {
                "note": note,
                "prompt": prompt,
                "promptIds": prompt_ids,
                "maxNewTokens": new_tokens,
                "ids": ids,
                "text": tokenizer.decode(ids, skip_special_tokens=True),
            }
        )
    assert any(end in g["ids"] for g in generations), "no generation reaches the end of text"

    texts = [
        {"text": text, "ids": encode(text), "decoded": tokenizer.decode(encode(text), skip_special_tokens=False)}
        for text in TOKENIZER_TEXTS
    ]

    expected = {
        "about": "Made by make_gpt2.py. Prompts and contexts keep their last window - new (or continuation) tokens; "
        "an empty one is the end-of-text token.",
        "seed": SEED,
        "versions": {
            "torch": torch.__version__,
            "transformers": transformers.__version__,
            "tokenizers": tokenizers.__version__,
        },
        "window": WINDOW,
        "endId": end,
        "logprobs": pairs,
        "gradients": gradients(model, pairs, end),
        "greedy": generations,
        "tokenizer": texts,
    }
    (HERE / "gpt2-expected.json").write_text(json.dumps(expected, indent=1) + "\n")


if __name__ == "__main__":
    main()
