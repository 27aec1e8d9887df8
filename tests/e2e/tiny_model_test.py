#!/usr/bin/env python3
"""A DeepSeek-V4.1 of random weights, from `make-tiny` to an answer over HTTP, as a person would go.

THALWEG_BIN is the program. Nothing else is needed: no download, no assets.
"""
import hashlib
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import urllib.request

PROGRAM = os.environ["THALWEG_BIN"]


def run(*words, text=None, code=0):
    done = subprocess.run([PROGRAM, *map(str, words)], input=text, capture_output=True, text=True, timeout=120)
    assert done.returncode == code, f"{words}: exit code {done.returncode}, wanted {code}\n{done.stdout}\n{done.stderr}"
    return done


def sums(folder):
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}


def test_the_same_seed_the_same_bytes(model, scratch):
    run("make-tiny", "deepseek_v41", scratch / "again")
    assert sums(model) == sums(scratch / "again")
    shards = sorted(path.name for path in model.glob("*.safetensors"))
    index = json.loads((model / "model.safetensors.index.json").read_text())
    assert sorted(set(index["weight_map"].values())) == shards and len(shards) == 4, shards


def test_inspect(model, scratch):
    text = run("inspect", model).stdout
    for line in [r"  3 +reuse +entries of 2, chosen by 2, Engram table", r"  4 +full +an entry per token, names candidates",
                 r"  6 +reindex +entries of 4", r"  routed experts +13369344 bytes", r"  per token +534 bytes",
                 r"  DEP16 +8 experts do not divide by 16"]:
        assert re.search(f"^{line}", text, re.MULTILINE), (line, text)
    released = run("inspect", "--preset", "deepseek-v4.1-flash").stdout
    for line in [r"  3-7 +reuse +entries of 2, chosen by 2", r"  all +510286023000 bytes +510.29 GB",
                 r"  per token +890 bytes +890 B", r"  DEP32 +\d+ bytes +27.12 GB"]:
        assert re.search(f"^{line}$", released, re.MULTILINE), (line, released)
    assert "--preset" in run("inspect", code=1).stderr


def test_tokens_are_bytes(model, scratch):
    ids = json.loads(run("tokenize", model, "Hällo, 河").stdout)
    assert len(ids) == 1 + len("Hällo, 河".encode()) and ids[0] == 0, ids
    assert run("tokenize", model, "--decode", *ids[1:]).stdout == "Hällo, 河\n"


def test_drafts_change_nothing(model, scratch):
    lines = "\n".join(json.dumps({"prompt": "water " * 12, "max_tokens": 16, "temperature": t, "seed": 5})
                      for t in [0, 0.9])
    plain = run("generate", model, "-i", "-", text=lines).stdout
    assert plain == run("generate", model, "-i", "-", "--spec", "draft", text=lines).stdout
    assert len(plain.splitlines()) == 2 and '"completion_tokens":16' in plain, plain


def test_other_sizes(model, scratch):
    config = json.loads((model / "config.json").read_text())
    config["text_config"].update(hidden_size=128, head_dim=64, qk_rope_head_dim=16, index_head_dim=32, q_lora_rank=64,
                                 o_lora_rank=32, moe_intermediate_size=64, engram_layer_ids=[], vocab_size=300,
                                 num_nextn_predict_layers=0)
    shape = scratch / "shape.json"
    shape.write_text(json.dumps(config))
    run("make-tiny", "deepseek_v41", scratch / "other", "--model-config", shape, "--seed", 9)
    assert not (scratch / "other/engram_token_map.i32").exists()
    answer = run("generate", scratch / "other", "-i", "-", text='{"prompt": "a", "max_tokens": 3}').stdout
    assert json.loads(answer)["usage"]["completion_tokens"] == 3, answer


def test_what_cannot_be_made_is_said(model, scratch):
    def refused(*words):
        done = run("make-tiny", "deepseek_v41", *words, code=1)
        assert done.stderr.startswith("thalweg: ") and done.stderr.count("\n") == 1, done.stderr
        return done.stderr

    def refused_shape(**fields):
        config = json.loads((model / "config.json").read_text())
        del config["image_token_id"]
        config["text_config"].update(fields)
        (scratch / "bad.json").write_text(json.dumps(config))
        message = refused(scratch / "never", "--model-config", scratch / "bad.json")
        assert not (scratch / "never").exists(), "refused before anything is written"
        return message

    assert "is not an empty folder" in refused(model)
    assert "bad" in refused(scratch / "never", "--model-config", scratch / "bad")
    assert "hidden_size is 100" in refused_shape(hidden_size=100)
    assert re.search(r"would take \d{11,} bytes", refused_shape(n_routed_experts=2048, moe_intermediate_size=8192))
    assert "vocab_size is 270, needed at least" in refused_shape(vocab_size=270, dspark_noise_token_id=260)
    assert "another token's" in refused_shape(dspark_noise_token_id=1)
    run("make-tiny", "no_such_model", scratch / "never", code=2)


def test_chat_over_http(model, scratch):
    # Without prefix hits, after which such a model's windows are rebuilt approximately.
    server = subprocess.Popen([PROGRAM, "serve", str(model), "--port", "0", "--spec", "draft", "--replay", "off"],
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        address = re.search(r"http://\S+:\d+", server.stdout.readline()).group(0)

        def chat(**fields):
            body = {"model": model.name, "messages": [{"role": "user", "content": "Where does the river go?"}],
                    "max_tokens": 24, "temperature": 0, **fields}
            request = urllib.request.Request(address + "/v1/chat/completions", json.dumps(body).encode(),
                                             {"Content-Type": "application/json"})
            with urllib.request.urlopen(request, timeout=60) as response:
                return json.load(response)

        first, second = chat(), chat()
        assert first["choices"] == second["choices"]
        assert first["usage"]["completion_tokens"] in range(1, 25), first
        thinking, quick = (chat(chat_template_kwargs={"thinking": thinks}, max_tokens=1)["usage"]["prompt_tokens"]
                           for thinks in [True, False])
        assert thinking > quick, "the line about effort belongs to thinking alone"
        server.send_signal(signal.SIGTERM)
        assert server.wait(30) == 0
    finally:
        server.kill()


def main():
    with tempfile.TemporaryDirectory() as folder:
        scratch = pathlib.Path(folder)
        run("make-tiny", "deepseek_v41", scratch / "model")
        for name, test in [(name, test) for name, test in globals().items() if name.startswith("test_")]:
            test(scratch / "model", scratch)
            print("passed", name, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
