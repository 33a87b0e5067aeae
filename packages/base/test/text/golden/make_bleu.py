"""Makes bleu.json: BLEU-1 to BLEU-5 of texts against many references, by NLTK.

    pip install nltk && python3 make_bleu.py            (the version is written beside the values)

Weights are uniform over the orders, smoothing is method 1 with its default epsilon. Words are separated by spaces.
"""

import json
import os
import random
import warnings

import nltk
from nltk.translate.bleu_score import SmoothingFunction, sentence_bleu

warnings.simplefilter("ignore")
draw = random.Random(7)
WORDS = "the a of plants rain sun tea what how did you say about them , ? .".split()


def text(shortest, longest):
    return [draw.choice(WORDS) for _ in range(draw.randint(shortest, longest))]


def bleu(references, hypothesis):
    smoothing = SmoothingFunction().method1
    return [
        float(sentence_bleu(references, hypothesis, weights=[1 / n] * n, smoothing_function=smoothing)) for n in range(1, 6)
    ]


cases = []
for count, shortest, longest in ((1, 1, 4), (1, 5, 12), (3, 1, 9), (10, 3, 15), (40, 2, 12)):
    references = [text(shortest, longest) for _ in range(count)]
    hypotheses = [text(1, 3), text(4, 8), text(9, 20), references[0], references[0] + references[0], ["unheard"]]
    cases.append(
        {
            "references": [" ".join(words) for words in references],
            "hypotheses": [{"text": " ".join(words), "bleu": bleu(references, words)} for words in hypotheses],
        }
    )

folder = os.path.dirname(os.path.abspath(__file__))
with open(os.path.join(folder, "bleu.json"), "w") as file:
    json.dump({"versions": {"nltk": nltk.__version__}, "cases": cases}, file, indent=1)
    file.write("\n")
