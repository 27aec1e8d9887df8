#!/usr/bin/env python3
"""Records what reference tokenizers make of a multilingual corpus, for src/text/tokenizer_test.cc.

References: the Python package `tokenizers` for tokenizer.json, llama.cpp's `llama-tokenize` for GGUF files.
Texts are stored as hexadecimal bytes; broken UTF-8 is shown to the references with U+FFFD in place of what is
broken (Python's "replace", which follows Unicode's maximal subparts), as they do not all define what they do.

  record_tokenizer_vectors.py --llama-tokenize PATH --json NAME=FOLDER ... --gguf NAME=FILE ... --output FILE
"""

import argparse
import json
import pathlib
import subprocess
import tempfile

CORPUS = [
    b"",
    b" ",
    b"Hello, world!",
    b" leading and trailing ",
    b"\n\n\n",
    b"a\r\nb\rc\n\n  d\t\te   f",
    b"                                        x",
    "tabs\t\t\tand\u00a0nbsp\u3000ideographic\u2003em\u200bzero".encode(),
    b"I'll we've they're it's don't I'd I'M WE'LL IT'S o'clock 'quoted' ''",
    b"0 12 123 1234 12345 1234567890 3.14159 1,000,000 0x1F 1e-10",
    "\u0661\u0662\u0663 \u216b \u00bd \u0be7\u0be8 \uff11\uff12\uff13 \u4e00\u4e8c\u4e09".encode(),
    b"def f(x: int) -> str:\n    # comment\n    return f\"{x!r:>10}\"  \n\n\nclass A(B):\n\tpass\n",
    b"#include <vector>\nint main() { std::vector<int> v{1,2,3}; for (auto&& x : v) x += 0xFF; return v[0]; }\n",
    b"SELECT * FROM t WHERE a = 'b' AND c <> \"d\"; -- x\n",
    b'{"key": [1, 2.5, null, true], "nested": {"a": "\\u00e9\\n"}}',
    b"<html><body class=\"x\">&amp; <br/></body></html>",
    b"https://example.com/path?q=1&r=%20#frag user@example.org C:\\dir\\file.txt",
    b"!!!???...---===+++***///\\\\\\|||~~~```$$$%%%^^^&&&(((()))){{{}}}[[[]]]<<<>>>",
    "Caf\u00e9 na\u00efve \u00fcber fa\u00e7ade \u0153uvre \u00c5ngstr\u00f6m \u0141\u00f3d\u017a \u011f\u0131\u015f".encode(),
    "Cafe\u0301 e\u0302\u0323 a\u030a n\u0303 \u1e69 s\u0323\u0307".encode(),
    "\u041f\u0440\u0438\u0432\u0435\u0442, \u043c\u0438\u0440! \u0423\u043a\u0440\u0430\u0457\u043d\u0441\u044c\u043a\u0430 \u0401\u043b\u043a\u0430".encode(),
    "\u0393\u03b5\u03b9\u03ac \u03c3\u03bf\u03c5 \u03ba\u03cc\u03c3\u03bc\u03b5 \u1f08\u03c1\u03c7\u03b9\u03bc\u03ae\u03b4\u03b7\u03c2".encode(),
    "\u4f60\u597d\uff0c\u4e16\u754c\uff01\u8fd9\u662f\u4e00\u4e2a\u6d4b\u8bd5\u3002\u7e41\u9ad4\u4e2d\u6587\u5b57 \U00020000\U0002a6d6".encode(),
    "\u3053\u3093\u306b\u3061\u306f\u4e16\u754c\u3002\u30ab\u30bf\u30ab\u30ca\uff76\uff80\uff76\uff85 \u3072\u3089\u304c\u306a".encode(),
    "\uc548\ub155\ud558\uc138\uc694 \uc138\uacc4 \u1112\u1161\u11ab\u1100\u1173\u11af".encode(),
    "\u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35\u0e0a\u0e32\u0e27\u0e42\u0e25\u0e01 \u0e01\u0e33\u0e25\u0e31\u0e07\u0e17\u0e14\u0e2a\u0e2d\u0e1a\u0e20\u0e32\u0e29\u0e32\u0e44\u0e17\u0e22".encode(),
    "\u0645\u0631\u062d\u0628\u0627 \u0628\u0627\u0644\u0639\u0627\u0644\u0645\u060c \u0643\u064e\u062a\u064e\u0628\u064e \u05e9\u05dc\u05d5\u05dd \u05e2\u05d5\u05dc\u05dd".encode(),
    "\u0928\u092e\u0938\u094d\u0924\u0947 \u0926\u0941\u0928\u093f\u092f\u093e \u0cb9\u0cb2\u0ccb \u0bb5\u0ba3\u0b95\u0bcd\u0b95\u0bae\u0bcd \u09b9\u09cd\u09af\u09be\u09b2\u09cb".encode(),
    "\U0001f468\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466 \U0001f1fa\U0001f1f3 \U0001f44d\U0001f3fd \u2764\ufe0f\u200d\U0001f525 \U0001f600\U0001f600".encode(),
    "\u2200x\u2208\u211d: \u2211\u1d62 x\u00b2 \u2264 \u221e \u2192 \u00ac\u03c6 \u2a01 \U0001d4d7".encode(),
    "\u201cquotes\u201d \u2018single\u2019 \u2014 \u2013 \u2026 \u00ab\u00bb \u300c\u300d \u00a7 \u00b6 \u2020 \u20ac \u00a3 \u00a5".encode(),
    "\u2581already\u2581marked\u2581 \u2581\u2581 \u2581".encode(),
    "\u0120byte\u0120level \u010a \u0142".encode(),
    b"nul\x00inside\x00\x00 bell\x07 esc\x1b[0m del\x7f",
    b"<|im_start|>user\nhi<|im_end|>\n<|endoftext|><|begin_of_text|><bos><eos><start_of_turn>",
    b"almost <|im_start <im_start|> <|IM_START|> <|im_start|",
    b"broken \xff\xfe bytes \xc3 cut \xe2\x82 short \xf0\x9f\x98 \x80\x80 \xed\xa0\x80 \xf5 \xc0\xaf end\xe2",
    "\ufeffbyte order mark \ufffd replacement \U0010ffff \ue000".encode(),
    b"word" * 40,
    b"ab " * 60,
    b"a" * 300,
    b"=" * 130 + b"\n" + b"-" * 77,
    b" " * 200 + b"\n" + b"\n" * 50 + b" " * 7,
    b"x\n \n  \n   \ny \t \n z",
    "Tra\u00e7ado de rotas: S\u00e3o Paulo \u2192 Lisboa, 1.234,56 \u20ac; \u00bfqu\u00e9 tal? \u00a1bien!".encode(),
    "Vi\u1ec7t Nam \u0111\u1ea5t n\u01b0\u1edbc; T\u00fcrk\u00e7e \u0130stanbul \u0131\u015f\u0131k; Stra\u00dfe GRO\u1e9eE".encode(),
    b"The quick brown fox jumps over the lazy dog. " * 5,
    b"camelCaseIdentifier snake_case_name SCREAMING_CASE kebab-case HTTPServer2 v1.2.3-rc1",
]


def readable(text: bytes) -> str:
    return text.decode("utf-8", "replace")


def by_library(folder: str):
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(pathlib.Path(folder) / "tokenizer.json"))
    plain, special = [], []
    for text in CORPUS:
        tokenizer.encode_special_tokens = True
        plain.append(tokenizer.encode(readable(text), add_special_tokens=False).ids)
        tokenizer.encode_special_tokens = False
        special.append(tokenizer.encode(readable(text), add_special_tokens=False).ids)
    return plain, special


def by_llama_tokenize(program: str, model: str):
    plain, special = [], []
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "text"
        for text in CORPUS:
            path.write_bytes(readable(text).encode())
            command = [program, "-m", model, "-f", str(path), "--ids", "--no-bos", "--no-escape", "--log-disable"]
            for target, extra in ((plain, ["--no-parse-special"]), (special, [])):
                out = subprocess.run(command + extra, check=True, capture_output=True, text=True).stdout
                target.append(json.loads(out.strip() or "[]"))
    return plain, special


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--llama-tokenize")
    parser.add_argument("--json", action="append", default=[], metavar="NAME=FOLDER")
    parser.add_argument("--gguf", action="append", default=[], metavar="NAME=FILE")
    parser.add_argument("--output", required=True)
    arguments = parser.parse_args()

    recorded = {}
    for each in arguments.json:
        name, folder = each.split("=", 1)
        recorded[name] = by_library(folder)
    for each in arguments.gguf:
        name, model = each.split("=", 1)
        recorded[name] = by_llama_tokenize(arguments.llama_tokenize, model)

    lines = ['{"texts": [']
    lines.append(",\n".join(json.dumps(text.hex()) for text in CORPUS))
    lines.append('], "tokenizers": {')
    blocks = []
    for name, (plain, special) in recorded.items():
        # "special" holds only what differs from "plain".
        different = {str(i): ids for i, ids in enumerate(special) if ids != plain[i]}
        rows = ",\n".join(json.dumps(ids, separators=(",", ":")) for ids in plain)
        blocks.append(f'{json.dumps(name)}: {{"plain": [\n{rows}\n], "special": {json.dumps(different, separators=(",", ":"))}}}')
    lines.append(",\n".join(blocks))
    lines.append("}}")
    pathlib.Path(arguments.output).write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
