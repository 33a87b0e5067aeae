"""Makes sampling-expected.json: next-token distributions as transformers' logits processors filter them.

    python packages/lm/test/golden/make_sampling.py

Needs torch and transformers; their versions are written into the file. Tests never run this file.
"""

import json
from pathlib import Path

import torch
import transformers
from transformers.generation.logits_process import (
    LogitsProcessorList,
    MinNewTokensLengthLogitsProcessor,
    RepetitionPenaltyLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

SEED = 20250118
ROWS = 3
VOCABULARY = 23
END = [4, 7]

CASES = [
    {"note": "nothing"},
    {"note": "temperature", "temperature": 0.7},
    {"note": "hot", "temperature": 2.5},
    {"note": "top-k", "topK": 5},
    {"note": "top-k 1", "topK": 1},
    {"note": "top-k above the vocabulary", "topK": 100},
    {"note": "top-p", "topP": 0.6},
    {"note": "top-p that one token fills", "topP": 0.01},
    {"note": "repetition penalty", "repetitionPenalty": 1.7},
    {"note": "repetition reward", "repetitionPenalty": 0.6},
    {"note": "end ids held back", "minNewTokens": 3},
    {"note": "paper", "temperature": 0.7, "topP": 0.7, "repetitionPenalty": 1.1},
    {"note": "toolbox", "temperature": 1.0, "topK": 10, "topP": 0.9},
    {
        "note": "everything",
        "temperature": 1.3,
        "topK": 9,
        "topP": 0.8,
        "repetitionPenalty": 1.4,
        "minNewTokens": 3,
    },
]


def processors(case: dict, prompt_length: int) -> LogitsProcessorList:
    """In the order in which `generate` applies them."""
    chain = LogitsProcessorList()
    if "repetitionPenalty" in case:
        chain.append(RepetitionPenaltyLogitsProcessor(case["repetitionPenalty"]))
    if "minNewTokens" in case:
        chain.append(MinNewTokensLengthLogitsProcessor(prompt_length, case["minNewTokens"], torch.tensor(END)))
    if "temperature" in case:
        chain.append(TemperatureLogitsWarper(case["temperature"]))
    if "topK" in case:
        chain.append(TopKLogitsWarper(case["topK"]))
    if "topP" in case:
        chain.append(TopPLogitsWarper(case["topP"]))
    return chain


def main() -> None:
    generator = torch.Generator().manual_seed(SEED)
    logits = 3 * torch.randn(ROWS, VOCABULARY, generator=generator)
    # A likely end id, so that suppressing it has an effect.
    logits[:, END[0]] += 4
    seen = torch.randint(0, VOCABULARY, (ROWS, 8), generator=generator)
    cases = []
    for case in CASES:
        filtered = processors(case, seen.shape[1] - 1)(seen, logits.clone())
        cases.append(case | {"probabilities": filtered.softmax(-1).tolist()})
    expected = {
        "about": "Made by make_sampling.py. Seen holds the prompt and one new token.",
        "seed": SEED,
        "versions": {"torch": torch.__version__, "transformers": transformers.__version__},
        "endIds": END,
        "logits": logits.tolist(),
        "seen": seen.tolist(),
        "cases": cases,
    }
    (Path(__file__).parent / "sampling-expected.json").write_text(json.dumps(expected) + "\n")


if __name__ == "__main__":
    main()
