#!/usr/bin/env python3
"""The commands as a person runs them: right answers twice, one clear sentence and exit code 1 or 2 for what is wrong.

THALWEG_BIN is the program, THALWEG_TEST_ASSETS the folder of the models.
"""
import json
import os
import pathlib
import struct
import subprocess
import sys
import tempfile

SKIPPED = 77  # what ctest is told
PROGRAM = os.environ["THALWEG_BIN"]
MODEL = os.path.join(os.environ.get("THALWEG_TEST_ASSETS", ""), "SmolLM2-135M-Instruct.Q4_1.gguf")
PARIS = [504, 3575, 282, 4649, 314]  # "The capital of France is"


def run(*words, text=None, code=0, env=None):
    done = subprocess.run([PROGRAM, *words], input=text, capture_output=True, text=True, timeout=120,
                          env={**os.environ, **(env or {})})
    assert done.returncode == code, f"{words}: exit code {done.returncode}, wanted {code}\n{done.stdout}\n{done.stderr}"
    return done


def read_tensors(path):
    data = pathlib.Path(path).read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + size])
    header.pop("__metadata__", None)
    return {name: (entry["shape"], data[8 + size + entry["data_offsets"][0]:8 + size + entry["data_offsets"][1]])
            for name, entry in header.items()}


def test_tokenize():
    assert json.loads(run("tokenize", MODEL, "The capital of France is").stdout) == PARIS
    assert run("tokenize", MODEL, "--decode", *map(str, PARIS)).stdout == "The capital of France is\n"
    assert json.loads(run("tokenize", MODEL, "--stdin", text="<|im_end|>").stdout) != [2], "special text stays text"
    assert json.loads(run("tokenize", MODEL, "--parse-special", "<|im_end|>").stdout) == [2]


def test_generate_is_deterministic():
    lines = "\n".join([json.dumps({"prompt": "The capital of France is", "max_tokens": 4, "temperature": 0}),
                       json.dumps({"prompt": "Once upon a time", "temperature": 1.0, "seed": 7, "n": 2}),
                       json.dumps({"messages": [{"role": "user", "content": "Count: one two"}], "stop": [" "]})])
    first = run("generate", MODEL, "-i", "-", "--max-tokens", "24", text=lines).stdout
    second = run("generate", MODEL, "-i", "-", "--max-tokens", "24", "--draft-tokens", "4", text=lines).stdout
    assert first == second, "speculation and a second run must not change an answer"
    answers = [json.loads(line) for line in first.splitlines()]
    assert answers[0]["choices"][0]["token_ids"][0] == 7042, answers[0]
    assert answers[0]["usage"] == {"prompt_tokens": 5, "completion_tokens": 4}
    assert answers[1]["choices"][0]["text"] != answers[1]["choices"][1]["text"]
    assert " " not in answers[2]["choices"][0]["text"]


def test_generate_reports_bad_lines_and_goes_on():
    lines = "\n".join(['{"prompt": "a", "temperature": 9}', "not json", '{"prompt": [49152]}',
                       '{"prompt": "The", "max_tokens": 1}'])
    answers = [json.loads(line) for line in run("generate", MODEL, "-i", "-", text=lines, code=1).stdout.splitlines()]
    assert len(answers) == 4 and all("error" in a for a in answers[:3]) and "error" not in answers[3], answers
    assert "temperature" in answers[0]["error"]


def test_generate_takes_the_route_from_the_fields():
    line = json.dumps({"prompt": "messages", "max_tokens": 1})
    answer = json.loads(run("generate", MODEL, "-i", "-", text=line).stdout)
    assert answer["usage"] == {"prompt_tokens": 1, "completion_tokens": 1}, answer


def test_generate_waits_for_room_in_the_queue():
    lines = "\n".join(json.dumps({"prompt": f"Number {i} is", "max_tokens": 2}) for i in range(40))
    done = run("generate", MODEL, "-i", "-", "--max-queued-requests", "3", "--max-num-seqs", "2", text=lines)
    assert [json.loads(line)["index"] for line in done.stdout.splitlines()] == list(range(40))


def test_logits_do_not_depend_on_chunks():
    with tempfile.TemporaryDirectory() as folder:
        prompts = os.path.join(folder, "prompts.jsonl")
        pathlib.Path(prompts).write_text(json.dumps({"id": "paris", "ids": PARIS * 5}) + "\n" +
                                         json.dumps({"id": "one", "ids": [1]}) + "\n")
        outputs = []
        for name, options in [("whole", []), ("chunks", ["--chunk", "7"]), ("decode", ["--decode-from", "9"])]:
            path = os.path.join(folder, name + ".safetensors")
            run("logits", MODEL, "--input", prompts, "--output", path, *options)
            outputs.append(read_tensors(path))
        assert outputs[0]["paris"][0] == [25, 49152] and outputs[0]["one"][0] == [1, 49152]
        assert outputs[0] == outputs[1] == outputs[2], "bit for bit"
        pathlib.Path(prompts).write_text('{"id": "x", "ids": [49152]}\n')
        done = run("logits", MODEL, "--input", prompts, "--output", os.path.join(folder, "x"), code=1)
        assert "49152" in done.stderr, done.stderr
        assert not os.path.exists(os.path.join(folder, "x"))


def test_wrong_files_get_one_sentence():
    with tempfile.TemporaryDirectory() as folder:
        truncated = os.path.join(folder, "truncated.gguf")
        pathlib.Path(truncated).write_bytes(pathlib.Path(MODEL).read_bytes()[:100_000])
        empty = os.path.join(folder, "empty")
        os.mkdir(empty)
        for path, word in [(truncated, "truncated.gguf"), (empty, "config.json"), ("/no/such.gguf", "/no/such.gguf"),
                           (__file__, "GGUF")]:
            for command in [["inspect", path], ["tokenize", path, "x"], ["serve", path, "--port", "0"]]:
                done = run(*command, code=1)
                assert done.stderr.startswith("thalweg: ") and done.stderr.count("\n") == 1, (command, done.stderr)
                assert word in done.stderr, (command, done.stderr)


def test_only_the_c_library_is_dynamic():
    listed = subprocess.run(["ldd", PROGRAM], capture_output=True, text=True, check=True).stdout
    names = {line.split()[0].split("/")[-1].split(".")[0] for line in listed.splitlines() if line.strip()}
    assert names <= {"linux-vdso", "libm", "libc", "ld-linux-x86-64"}, names


def test_absurd_options_are_refused():
    run("serve", MODEL, "--max-num-seqs", "2000000000", code=2)
    run("serve", "x" * 300, code=1)


def test_inspect_doctor_models_help():
    assert "Q4_1" in run("inspect", MODEL).stdout
    assert "blk.0.attn_q.weight" in run("inspect", MODEL, "--tensors").stdout
    assert "llama.block_count" in run("inspect", MODEL, "--metadata").stdout
    assert "kernels" in run("doctor").stdout
    assert "smollm2-135m-instruct" in run("models").stdout
    assert "Serving" in run("--help").stdout
    assert "reference" in run("doctor", env={"THALWEG_CPU_LEVEL": "reference"}).stdout


def main():
    if "THALWEG_TEST_ASSETS" not in os.environ:
        print("skipped: THALWEG_TEST_ASSETS is not set")
        return SKIPPED
    tests = [(name, test) for name, test in globals().items() if name.startswith("test_")]
    for name, test in tests:
        test()
        print("passed", name, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
