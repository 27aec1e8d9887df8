#!/usr/bin/env python3
"""Thalweg beside llama.cpp on this machine's CPU, one client for all, alternating runs, medians.

usage: bench/cpu_peers.py [--rows decode,prefill,...] [--repeats 5] [--threads N] [--peers NAME,...] [--json FILE]

Installs and builds the peer outside the repository (cache folder, once): llama.cpp from the source distribution of
llama-cpp-python, natively, and the default model in Q4_1 as shipped, Q8_0 and BF16 made by its own quantiser. Needs
build/release/bin/thalweg (`make build`) and the default model (`make serve` or tools/fetch_models.sh).

Every engine is a server on loopback that is asked by the same asyncio client for the same token ids; `ignore_eos` fixes
the output length, and a run whose answer has another length or whose greedy check answer is wrong is an error. The row
"perplexity" asks each engine's own program for it, over the same text, to show that speed was not bought with accuracy.
"""
import argparse
import asyncio
import contextlib
import json
import os
import pathlib
import random
import re
import signal
import socket
import statistics
import subprocess
import sys
import time
import typing
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parent.parent
CACHE = pathlib.Path(os.environ.get("THALWEG_CACHE") or
                     pathlib.Path(os.environ.get("XDG_CACHE_HOME", pathlib.Path.home() / ".cache")) / "thalweg")
MODEL = CACHE / "models/SmolLM2-135M-Instruct.Q4_1.gguf"
PEER_PACKAGE = "llama-cpp-python==0.3.36"
PEER_TARGETS = ["llama-server", "llama-quantize", "llama-perplexity"]
PERPLEXITY_TEXT = pathlib.Path("/usr/share/common-licenses/GPL-3")  # of Debian's and Ubuntu's base-files
CHECK_PROMPT = "The capital of France is"
CHECK_ANSWER = "Paris"


# ---- engines -------------------------------------------------------------------------------------------------------

def build_llama_cpp():
    """Returns the folder of llama.cpp's programs."""
    folder = CACHE / "peers/llama.cpp"
    binaries = folder / "build/bin"
    if all((binaries / target).exists() for target in PEER_TARGETS):
        return binaries
    print("building llama.cpp (once)", file=sys.stderr)
    download = CACHE / "peers/download"
    download.mkdir(parents=True, exist_ok=True)
    subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:", "--dest",
                    str(download), PEER_PACKAGE], check=True)
    archive = next(download.glob("llama_cpp_python-*.tar.gz"))
    subprocess.run(["tar", "xzf", str(archive), "-C", str(download)], check=True)
    source = next(download.glob("llama_cpp_python-*/vendor/llama.cpp"))
    folder.parent.mkdir(parents=True, exist_ok=True)
    if not folder.exists():
        source.rename(folder)
    subprocess.run(["cmake", "-B", str(folder / "build"), "-S", str(folder), "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release",
                    "-DGGML_NATIVE=ON", "-DLLAMA_USE_PREBUILT_UI=OFF", "-DLLAMA_BUILD_UI=OFF", "-DLLAMA_BUILD_NUMBER=0",
                    "-DLLAMA_BUILD_COMMIT=0", "-DLLAMA_BUILD_TESTS=OFF"], check=True, stdout=subprocess.DEVNULL)
    subprocess.run(["cmake", "--build", str(folder / "build"), "--target", *PEER_TARGETS], check=True,
                   stdout=subprocess.DEVNULL)
    return binaries


def quantise(binaries, kind):
    path = CACHE / f"peers/SmolLM2-135M-Instruct.{kind.upper()}.gguf"
    if not path.exists():
        subprocess.run([str(binaries / "llama-quantize"), "--allow-requantize", str(MODEL), str(path), kind], check=True,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return path


class Engine:
    """One engine in one format: how to start its server, and how to ask for its perplexity."""

    def __init__(self, name, command, perplexity):
        self.name = name
        self.command = command  # (port, num_clients, context) -> argv
        self.perplexity = perplexity  # argv; both programs score the second half of each chunk

    @contextlib.contextmanager
    def serve(self, num_clients, context):
        port = free_port()
        process = subprocess.Popen(self.command(port, num_clients, context), stdout=subprocess.DEVNULL,
                                   stderr=subprocess.DEVNULL)
        try:
            wait_healthy(port, process, self.name)
            yield Server(port, process.pid)
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


class Server:
    def __init__(self, port, pid):
        self.port, self.pid = port, pid

    def peak_mib(self):
        for line in pathlib.Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) / 1024
        raise RuntimeError("no VmHWM")


def engines(threads):
    binaries = build_llama_cpp()
    program = str(ROOT / "build/release/bin/thalweg")

    def thalweg(port, num_clients, context):
        return [program, "serve", str(MODEL), "--port", str(port), "--threads", str(threads), "--max-num-seqs",
                str(max(num_clients, 8)), "--any-model"]

    def llama(kind, model):
        common = ["-m", str(model), "-t", str(threads), "-tb", str(threads)]
        return Engine(
            f"llama.cpp {kind}",
            lambda port, num_clients, context: [
                str(binaries / "llama-server"), *common, "--port", str(port), "-np", str(num_clients), "-c",
                str(num_clients * context), "--no-webui"],
            [str(binaries / "llama-perplexity"), *common, "-f", str(PERPLEXITY_TEXT), "-c", "512", "--chunks", "8"])

    return [Engine("thalweg Q4_1", thalweg,
                   [program, "perplexity", str(MODEL), "--threads", str(threads), "--input", str(PERPLEXITY_TEXT),
                    "--context", "512", "--chunks", "8"]),
            llama("Q4_1", MODEL), llama("Q8_0", quantise(binaries, "q8_0")), llama("BF16", quantise(binaries, "bf16"))]


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_healthy(port, process, name, seconds=60):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise RuntimeError(f"{name} ended with {process.returncode} before it was ready")
        with contextlib.suppress(OSError):
            if urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=1).status == 200:
                return
        time.sleep(0.002)
    raise RuntimeError(f"{name} was not ready within {seconds} s")


# ---- client --------------------------------------------------------------------------------------------------------

def prompt_ids(length, seed):
    """Ordinary text tokens, no two prompts with a common beginning."""
    source = random.Random(seed)
    return [source.randrange(300, 40000) for _ in range(length)]


async def stream(port, prompt, max_tokens):
    """Arrival times of the events that carry text, and the text."""
    body = json.dumps({"model": "any", "prompt": prompt, "max_tokens": max_tokens, "temperature": 0, "stream": True,
                       "ignore_eos": True, "cache_prompt": False, "stream_options": {"include_usage": True}}).encode()
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 20)
    started = time.perf_counter()
    writer.write(b"POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
                 b"Connection: close\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    times, text, usage = [], [], None
    while line := await reader.readline():
        if not line.startswith(b"data: {"):
            continue
        now = time.perf_counter()
        event = json.loads(line[6:])
        if "error" in event:
            raise RuntimeError(event["error"])
        usage = event.get("usage") or usage
        if event["choices"] and event["choices"][0].get("text"):
            times.append(now)
            text.append(event["choices"][0]["text"])
    writer.close()
    if usage is None or usage["completion_tokens"] != max_tokens:
        raise RuntimeError(f"asked for {max_tokens} tokens, usage says {usage}")
    return started, times, "".join(text)


async def check(port):
    _, _, text = await stream(port, CHECK_PROMPT, 12)
    if CHECK_ANSWER not in text:
        raise RuntimeError(f"greedy answer to {CHECK_PROMPT!r} is {text!r}")


async def one_decode(port, seed):
    _, times, _ = await stream(port, prompt_ids(16, seed), 200)
    return (len(times) - 1) / (times[-1] - times[0]) if len(times) > 1 else 0.0


async def one_prefill(port, seed):
    started, times, _ = await stream(port, prompt_ids(512, seed), 1)
    return 512 / (times[0] - started)


async def clients(port, seed, num_clients):
    """Total output tokens per second, and the 99th percentile of the gaps between a stream's events."""
    started = time.perf_counter()
    answers = await asyncio.gather(*(stream(port, prompt_ids(256, seed * 1000 + i), 128) for i in range(num_clients)))
    seconds = time.perf_counter() - started
    gaps = sorted(b - a for _, times, _ in answers for a, b in zip(times, times[1:]))
    return num_clients * 128 / seconds, gaps[int(len(gaps) * 0.99)]


async def arriving_prompt(port, seed):
    """The largest-percentile gap of 8 running streams while a 4,000-token prompt arrives."""
    running = [asyncio.create_task(stream(port, prompt_ids(32, seed * 1000 + i), 160)) for i in range(8)]
    await asyncio.sleep(1.0)
    await stream(port, prompt_ids(4000, seed), 1)
    gaps = sorted(b - a for _, times, _ in await asyncio.gather(*running) for a, b in zip(times, times[1:]))
    return gaps[int(len(gaps) * 0.99)]


# ---- rows ----------------------------------------------------------------------------------------------------------

@contextlib.contextmanager
def busy_core():
    process = subprocess.Popen(["taskset", "-c", "1", sys.executable, "-c", "while True: pass"])
    try:
        time.sleep(0.2)
        yield
    finally:
        process.kill()
        process.wait()


def served(num_clients, context, measure, around=contextlib.nullcontext):
    def run(engine, seed):
        with engine.serve(num_clients, context) as server, around():
            asyncio.run(check(server.port))
            return asyncio.run(measure(server.port, seed))
    return run


def start_to_first_token(engine, seed):
    port = free_port()
    started = time.perf_counter()
    process = subprocess.Popen(engine.command(port, 1, 2048), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_healthy(port, process, engine.name)
        _, times, _ = asyncio.run(stream(port, CHECK_PROMPT, 1))
        return times[0] - started
    finally:
        process.kill()
        process.wait()


def peak_memory(num_clients, tokens):
    async def fill(port, seed):
        await asyncio.gather(*(stream(port, prompt_ids(tokens - 64, seed * 1000 + i), 63) for i in range(num_clients)))

    def run(engine, seed):
        with engine.serve(num_clients, tokens + 64) as server:
            asyncio.run(fill(server.port, seed))
            return server.peak_mib()
    return run


def many_clients(num_clients, figure, around=contextlib.nullcontext):
    """Throughput (figure 0) and gap (figure 1) come from the same run."""
    def run(engine, seed):
        key = (engine.name, seed, num_clients, around)
        if key not in finished_runs:
            measure = served(num_clients, 512, lambda port, s: clients(port, s, num_clients), around)
            finished_runs[key] = measure(engine, seed)
        return finished_runs[key][figure]
    return run


finished_runs = {}


def perplexity(engine, _seed):
    """The same in every run, so one is enough."""
    key = (engine.name, "perplexity")
    if key not in finished_runs:
        done = subprocess.run(engine.perplexity, capture_output=True, text=True, errors="replace", timeout=600)
        found = re.search(r'"perplexity": ([\d.]+)|Final estimate: PPL = ([\d.]+)', done.stdout + done.stderr)
        if done.returncode != 0 or found is None:
            raise RuntimeError(f"{engine.perplexity[0]} ended with {done.returncode}: {done.stderr[-300:]}")
        finished_runs[key] = float(found[1] or found[2])
    return finished_runs[key]


class Row(typing.NamedTuple):
    title: str
    unit: str
    larger: bool  # is better
    bar: float  # of the ratio to the best peer
    measure: typing.Callable
    bar_is_absolute: bool = False  # of our own value then


ROWS = {
    "decode": Row("decode, one stream", "tok/s", True, 1.3, served(1, 2048, one_decode)),
    "prefill": Row("prefill 512 tokens", "tok/s", True, 2.0, served(1, 2048, one_prefill)),
    "clients8": Row("8 clients, 256 in / 128 out", "tok/s", True, 1.5, many_clients(8, 0)),
    "clients32": Row("32 clients, 256 in / 128 out", "tok/s", True, 1.3, many_clients(32, 0)),
    "busy1": Row("one stream, one core busy", "tok/s", True, 3.0, served(1, 2048, one_decode, busy_core)),
    "busy8": Row("8 clients, one core busy", "tok/s", True, 3.0, many_clients(8, 0, busy_core)),
    "start": Row("process start to first token", "s", False, 0.5, start_to_first_token),
    "memory1": Row("peak memory, 1 x 1,024 tokens", "MiB", False, 1.0, peak_memory(1, 1024)),
    "memory32": Row("peak memory, 32 x 512 tokens", "MiB", False, 1.0, peak_memory(32, 512)),
    "perplexity": Row("perplexity, GPL-3, 8 x 512", "", False, 18.49, perplexity, True),
    "gap32": Row("gap p99 at 32 clients", "s", False, 0.2, many_clients(32, 1)),
    "gap4000": Row("gap p99 of 8 streams, 4,000-token prompt arrives", "s", False, 0.2,
                served(9, 4608, arriving_prompt)),
}


def measure_row(name, candidates, repeats):
    row = ROWS[name]
    samples = {engine.name: [] for engine in candidates}
    for repeat in range(repeats):
        for engine in candidates:
            try:
                samples[engine.name].append(row.measure(engine, repeat + 1))
            except (RuntimeError, OSError) as error:
                print(f"{row.title}: {engine.name}: {error}", file=sys.stderr)
    medians = {engine: statistics.median(values) for engine, values in samples.items() if values}
    ours = medians.pop(candidates[0].name, None)
    best = (max if row.larger else min)(medians, key=medians.get) if medians else None
    ratio = ours / medians[best] if ours is not None and best else None
    judged = ours if row.bar_is_absolute else ratio
    met = judged is not None and (judged >= row.bar if row.larger else judged <= row.bar)
    return {"row": name, "title": row.title, "unit": row.unit, "bar": row.bar, "bar_is_absolute": row.bar_is_absolute,
            "larger": row.larger, "met": met, "thalweg": ours, "best_peer": best, "peers": medians, "ratio": ratio,
            "samples": samples}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", default=",".join(ROWS))
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--peers", default="", help="only peers whose name holds one of these, e.g. Q4_1,Q8_0")
    arguments = parser.parse_args()
    candidates = engines(arguments.threads)
    candidates[1:] = [e for e in candidates[1:] if any(name in e.name for name in arguments.peers.split(","))]
    results = []
    print("| row | unit | Thalweg | " + " | ".join(e.name for e in candidates[1:]) + " | ratio | bar |")
    print("|---|---|---|" + "---|" * (len(candidates) + 1))
    for name in arguments.rows.split(","):
        result = measure_row(name, candidates, arguments.repeats)
        results.append(result)
        digits = 2 if result["bar_is_absolute"] else 0
        show = lambda value: "-" if value is None else f"{value:.3g}" if value < 10 else f"{value:.{digits}f}"
        print(f"| {result['title']} | {result['unit']} | {show(result['thalweg'])} | " +
              " | ".join(show(result["peers"].get(e.name)) for e in candidates[1:]) +
              f" | {show(result['ratio'])} | {'>=' if result['larger'] else '<='} {result['bar']}"
              f"{', itself' if result['bar_is_absolute'] else ''}{'' if result['met'] else ' **missed**'} |", flush=True)
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
