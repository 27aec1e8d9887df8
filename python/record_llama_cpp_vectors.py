#!/usr/bin/env python3
"""Records what llama.cpp continues real GGUF files with, greedily, and how likely it holds each token.

    python/record_llama_cpp_vectors.py --server PATH/TO/llama-server --assets FOLDER --output tests/golden/real_models

FOLDER holds the model files under the names below. One text file per case: a line "model FILE", a line "prompt ID...",
and per generated token a line "step ID LOGPROB ID LOGPROB ...", most likely first.
"""

import argparse
import json
import pathlib
import subprocess
import time
import urllib.error
import urllib.request

SMOLLM2 = "SmolLM2-135M-Instruct.Q4_1.gguf"
GEMMA3 = "gemma-3-270m-q4_k_m.gguf"
CASES = {
    "smollm2_capital": (SMOLLM2, dict(chat="What is the capital of France?"), 8),
    "smollm2_story": (SMOLLM2, dict(text="Once upon a time, in a small village by the sea, there lived"), 32),
    "gemma3_capital": (GEMMA3, dict(text="The capital of France is"), 8),
    "gemma3_story": (GEMMA3, dict(text="Once upon a time, in a small village by the sea, there lived"), 32),
}
NUM_TOP = 5
PORT = 18473


def ask(path, body=None):
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"http://127.0.0.1:{PORT}{path}", data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=600) as answer:
        return json.load(answer)


def wait_until_ready(server):
    for _ in range(600):
        assert server.poll() is None, "llama-server ended"
        try:
            ask("/health")
            return
        except (urllib.error.URLError, ConnectionError):
            time.sleep(0.2)
    raise TimeoutError("llama-server does not answer")


def record(path, model, prompt, num_tokens):
    if "chat" in prompt:
        text = ask("/apply-template", dict(messages=[dict(role="user", content=prompt["chat"])]))["prompt"]
    else:
        text = prompt["text"]
    ids = ask("/tokenize", dict(content=text, add_special=True, parse_special=True))["tokens"]
    answer = ask(
        "/completion",
        dict(prompt=ids, n_predict=num_tokens, temperature=0, n_probs=NUM_TOP, cache_prompt=False, ignore_eos=False),
    )
    with open(path, "w", encoding="utf-8") as file:
        print("model", model, file=file)
        print("prompt", *ids, file=file)
        for step in answer["completion_probabilities"]:
            top = [f"{entry['id']} {entry['logprob']:.6f}" for entry in step["top_logprobs"]]
            print("step", *top, file=file)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--server", type=pathlib.Path, required=True)
    parser.add_argument("--assets", type=pathlib.Path, required=True)
    parser.add_argument("--output", type=pathlib.Path, required=True)
    args = parser.parse_args()
    args.output.mkdir(parents=True, exist_ok=True)
    for model in (SMOLLM2, GEMMA3):
        command = [args.server, "-m", args.assets / model, "--port", str(PORT), "-c", "512", "-t", "2", "-np", "1"]
        server = subprocess.Popen(command + ["-fa", "off"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            wait_until_ready(server)
            for name, (file, prompt, num_tokens) in CASES.items():
                if file == model:
                    record(args.output / (name + ".txt"), model, prompt, num_tokens)
        finally:
            server.terminate()
            server.wait()


if __name__ == "__main__":
    main()
