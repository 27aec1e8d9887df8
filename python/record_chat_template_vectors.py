#!/usr/bin/env python3
"""Records what the Python package `transformers` renders from real chat templates, for src/text/chat_template_test.cc.

  record_chat_template_vectors.py --template NAME=FILE ... --output FILE

FILE is a tokenizer_config.json, a .gguf file or a Jinja file. The templates themselves are not stored: the test
reads them from the same files.
"""

import argparse
import json
import pathlib

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": "Weather <now> & \"here\" \u2603",
            "parameters": {
                "type": "object",
                "properties": {"city": {"type": "string"}, "days": {"type": "integer", "default": 1.5}},
                "required": ["city"],
            },
        },
    }
]


def call(arguments):
    return {"role": "assistant", "content": "", "tool_calls": [
        {"id": "c1", "type": "function", "function": {"name": "get_weather", "arguments": arguments}}]}


USER = {"role": "user", "content": "What is the capital of France?"}
CASES = [
    {"messages": [USER]},
    {"messages": [USER], "add_generation_prompt": False},
    {"messages": [{"role": "system", "content": "Be brief."}, USER]},
    {"messages": [USER, {"role": "assistant", "content": "Paris."}, {"role": "user", "content": "  And Italy?\n"}]},
    {"messages": [{"role": "user", "content": "\u00e9\u4f60\U0001f468\u200d\U0001f469 <b>&\"' \\ \t{{ x }} {% y %}"}]},
    {"messages": [USER, {"role": "assistant", "content": "<think>\nhm\n</think>\n\nParis"}, USER]},
    {"messages": [USER], "tools": TOOLS},
    {"messages": [USER, call({"city": "Paris", "days": 2}), {"role": "tool", "content": "{\"t\": 21}"}], "tools": TOOLS},
    {"messages": [USER], "kwargs": {"enable_thinking": False}},
    {"messages": [USER, {"role": "assistant", "content": "The capital is "}], "continue_final_message": True},
    {"messages": [USER, {"role": "user", "content": "twice"}]},
    {"messages": []},
]


def read_template(path: str):
    """The template, BOS and EOS text."""
    if path.endswith(".gguf"):
        from gguf import GGUFReader

        fields = GGUFReader(path).fields
        tokens = fields["tokenizer.ggml.tokens"]
        named = lambda key: tokens.contents(int(fields[key].contents())) if key in fields else ""
        return (fields["tokenizer.chat_template"].contents(), named("tokenizer.ggml.bos_token_id"),
                named("tokenizer.ggml.eos_token_id"))
    if path.endswith(".json"):
        config = json.loads(pathlib.Path(path).read_text())
        text = lambda value: value["content"] if isinstance(value, dict) else value or ""
        return config["chat_template"], text(config.get("bos_token")), text(config.get("eos_token"))
    return pathlib.Path(path).read_text(), "<s>", "</s>"


def render(template, bos, eos, case):
    from transformers.utils.chat_template_utils import render_jinja_template

    continues = case.get("continue_final_message", False)
    rendered, _ = render_jinja_template(
        conversations=[case["messages"]],
        tools=case.get("tools"),
        chat_template=template,
        add_generation_prompt=case.get("add_generation_prompt", True) and not continues,
        continue_final_message=continues,
        bos_token=bos,
        eos_token=eos,
        **case.get("kwargs", {}),
    )
    return rendered[0]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--template", action="append", default=[], metavar="NAME=FILE")
    parser.add_argument("--output", required=True)
    arguments = parser.parse_args()

    recorded = {}
    for each in arguments.template:
        name, path = each.split("=", 1)
        template, bos, eos = read_template(path)
        results = []
        for case in CASES:
            try:
                results.append(render(template, bos, eos, case))
            except Exception:  # what a template refuses is refused by us too
                results.append(None)
        recorded[name] = {"bos": bos, "eos": eos, "rendered": results}
    pathlib.Path(arguments.output).write_text(
        json.dumps({"cases": CASES, "templates": recorded}, indent=0, ensure_ascii=True) + "\n")


if __name__ == "__main__":
    main()
