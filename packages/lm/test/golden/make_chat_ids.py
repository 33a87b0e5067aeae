"""Token ids of transformers for conversations, including the beginning of the assistant's answer.

    python3 make_chat_ids.py            (transformers 5.18; the version is written beside the values)

Reads the checkpoints of make_families.py that have a chat template and writes chat-ids-expected.json.
"""

import json
import os

import transformers

HERE = os.path.dirname(os.path.abspath(__file__))
CONVERSATIONS = [
    [{"role": "user", "content": "Why?"}],
    [{"role": "system", "content": "You are terse."}, {"role": "user", "content": "  Hello there! 😀 "}],
    [
        {"role": "user", "content": "<|eot_id|> in a text"},
        {"role": "assistant", "content": ""},
        {"role": "user", "content": "Verspätung\n\n今天天气很好"},
    ],
    # A template that does not expect parts writes the list.
    [{"role": "user", "content": [{"type": "text", "text": "It's "}, {"type": "text", "text": "so.\n"}]}],
]


def main():
    rows = []
    for family in ("llama3-sharded", "llama32-new-spelling"):
        tokenizer = transformers.AutoTokenizer.from_pretrained(os.path.join(HERE, "families", family))
        for messages in CONVERSATIONS:
            encoded = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=True, return_dict=True)
            rows.append({"family": family, "messages": messages, "ids": encoded["input_ids"]})
    with open(os.path.join(HERE, "chat-ids-expected.json"), "w") as file:
        json.dump({"versions": {"transformers": transformers.__version__}, "rows": rows}, file, ensure_ascii=False, indent=1)
        file.write("\n")


main()
