"""Prints, as JSON, what transformers writes with each chat template of the installed TRL package, for 24 conversations each.

    python3 render_trl_templates.py           (transformers 5.18, TRL 1.13)

The templates are read from the package and not stored. trl-templates.test.ts compares.
"""

import datetime
import json
import os
import sys

import transformers
import trl
from transformers.utils import chat_template_utils

DATE = datetime.datetime(2026, 2, 3)


class Clock(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return DATE


chat_template_utils.datetime = Clock

USER = {"role": "user", "content": "Why is\n\n  the train <late>, 😀 \"it's\"?"}
ANSWER = {"role": "assistant", "content": "\n\n    Because.\n\n"}
THOUGHT = {"role": "assistant", "content": "<think>\n  Hm, 1 < 2.\n</think>\n\n    It was late."}
SYSTEM = {"role": "system", "content": "You are terse.\n"}
REASONED = {"role": "assistant", "content": "It was late.", "reasoning_content": "Hm."}
CALL = {
    "role": "assistant",
    "content": "",
    "tool_calls": [{"type": "function", "id": "call_1", "function": {"name": "trains", "arguments": {"line": "S1", "é": [1, 2.5, None, True]}}}],
}
RESULT = {"role": "tool", "name": "trains", "tool_call_id": "call_1", "content": '{"late": 12}'}
PARTS = {"role": "user", "content": [{"type": "text", "text": "Why "}, {"type": "text", "text": "is it?"}]}
TOOLS = [{
    "type": "function",
    "function": {
        "name": "trains",
        "description": "Looks up <trains>.",
        "parameters": {"type": "object", "properties": {"line": {"type": "string", "description": "The line"}}, "required": ["line"]},
    },
}]

CONVERSATIONS = [
    ([USER], {}),
    ([SYSTEM, USER], {}),
    ([USER, ANSWER, USER], {}),
    ([SYSTEM, USER, ANSWER, USER, THOUGHT], {}),
    ([USER, THOUGHT, USER], {"enable_thinking": False}),
    ([{"role": "system", "content": ""}, USER, REASONED, USER], {"enable_thinking": True}),
    ([USER, CALL, RESULT], {"tools": TOOLS}),
    ([SYSTEM, USER, CALL, RESULT, ANSWER, USER], {"tools": TOOLS}),
    ([PARTS, ANSWER, PARTS], {}),
    ([USER, {"role": "assistant", "content": "<think>"}, USER], {}),
    ([USER, {"role": "assistant", "content": "  a</think>b</think>  c "}, USER, ANSWER], {}),
    ([USER, {"role": "assistant", "content": None, "tool_calls": CALL["tool_calls"]}, RESULT, RESULT], {"tools": TOOLS}),
]


def main():
    folder = os.path.join(os.path.dirname(trl.__file__), "chat_templates")
    cases = []
    for name in sorted(os.listdir(folder)):
        if not name.endswith(".jinja"):
            continue
        source = open(os.path.join(folder, name), encoding="utf-8").read()
        rows = []
        for messages, options in CONVERSATIONS:
            for prompt in (False, True):
                variables = {"bos_token": "<s>", "eos_token": "</s>", **options}
                row = {"messages": messages, "prompt": prompt, "variables": variables}
                try:
                    text = chat_template_utils.render_jinja_template(
                        [messages], chat_template=source, add_generation_prompt=prompt, **variables
                    )[0][0]
                    rows.append({**row, "text": text})
                except Exception as error:
                    rows.append({**row, "error": f"{type(error).__name__}: {error}"[:200]})
        cases.append({"name": name, "template": source, "rows": rows})
    versions = {"transformers": transformers.__version__, "trl": trl.__version__}
    json.dump({"versions": versions, "cases": cases}, sys.stdout)


main()
