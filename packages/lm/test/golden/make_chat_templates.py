"""Token ids that transformers gives for conversations of one to six turns, with chat templates of published shapes.

    python3 make_chat_templates.py            (transformers 5.18; the version is written beside the values)

The templates in chat-templates/ have the structure of published ones (where role names, special tokens, system prompts,
trimming and reasoning go) and texts of their own. Special tokens are added to the tokenizers of make_families.py. Writes
chat-templates-expected.json.gz.
"""

import datetime
import gzip
import json
import os
import re

import transformers
from transformers.utils import chat_template_utils

HERE = os.path.dirname(os.path.abspath(__file__))
SYSTEM = "You are terse."
USERS = ["Why?", "Is the train late, or not?", "Und die Verspätung?", "It costs $3.50 (or 4).", "今天天气很好", "Well then."]
ANSWERS = ["Because.", "It was late by 12 minutes.", "Ja, 😀 leider.", "That is a lot!", "是的", "Bye."]
DATE = datetime.datetime(2026, 2, 3)


class Clock(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return DATE


chat_template_utils.datetime = Clock


def conversation(turns, system, thought):
    messages = [{"role": "system", "content": SYSTEM}] if system else []
    for at in range(turns):
        messages.append({"role": "user", "content": USERS[at]})
        if at < turns - 1:
            answer = ANSWERS[at]
            messages.append({"role": "assistant", "content": f"<think>\nHm, {at}.\n</think>\n\n{answer}" if thought else answer})
    return messages


def main():
    folder = os.path.join(HERE, "chat-templates")
    cases = []
    for name in sorted(os.listdir(folder)):
        source = open(os.path.join(folder, name), encoding="utf-8").read()
        specials = sorted(set(re.findall(r"<\|?[A-Za-z_]+\|?>", source)) - {"<SYS>"})
        for family in ("llama2", "llama32-new-spelling", "qwen3"):
            tokenizer = transformers.AutoTokenizer.from_pretrained(os.path.join(HERE, "families", family))
            known = tokenizer.get_vocab()
            tokens = [token for token in specials if token not in known]
            tokenizer.add_tokens([transformers.AddedToken(token, special=True, normalized=False) for token in tokens])
            if tokenizer.bos_token is None:
                tokenizer.bos_token = tokenizer.eos_token
            rows = []
            for turns in range(1, 7):
                for system in (False, True):
                    for thought in (False, True) if "think" in name and turns in (3, 6) else (False,):
                        messages = conversation(turns, system, thought)
                        given = messages
                        if system and name.startswith("turns-no-system"):
                            given = [dict(messages[1], content=f"{SYSTEM}\n\n{messages[1]['content']}"), *messages[2:]]
                        for thinking in (False, True) if "think" in name and turns in (1, 3) else (False,):
                            ids = tokenizer.apply_chat_template(
                                given, chat_template=source, add_generation_prompt=True, tokenize=True, return_dict=True,
                                enable_thinking=thinking,
                            )["input_ids"]
                            row = {"turns": turns, "system": system, "thought": thought, "ids": ids}
                            rows.append({**row, "thinking": True} if thinking else row)
            cases.append({
                "template": name.removesuffix(".jinja"),
                "family": family,
                "added": {token: tokenizer.convert_tokens_to_ids(token) for token in tokens},
                "bos": tokenizer.bos_token,
                "eos": tokenizer.eos_token,
                "rows": rows,
            })
    expected = {"versions": {"transformers": transformers.__version__}, "system": SYSTEM, "users": USERS, "answers": ANSWERS}
    text = json.dumps({**expected, "cases": cases}, ensure_ascii=False, separators=(",", ":"))
    with open(os.path.join(HERE, "chat-templates-expected.json.gz"), "wb") as file:
        file.write(gzip.compress(text.encode(), mtime=0))


main()
