#!/usr/bin/env python3
"""Starts `thalweg serve` on a free port, runs a command against it, and ends it with SIGTERM.

    with_server.py [--serve-arg ARG]... -- COMMAND...

THALWEG_BIN is the binary, THALWEG_TEST_ASSETS the folder that holds the small model. The command finds
the server's address in THALWEG_URL. The exit code is the command's; 77 ("skipped") when the model is missing.
A server that does not end by itself with code 0 is a failure of its own.
"""

import os
import pathlib
import re
import signal
import subprocess
import sys
import threading

SKIPPED = 77
MODEL = "SmolLM2-135M-Instruct*Q4_1.gguf"
START_SECONDS = 60
END_SECONDS = 30


def find_model():
    assets = os.environ.get("THALWEG_TEST_ASSETS", "")
    found = sorted(pathlib.Path(assets).rglob(MODEL)) if assets else []
    return found[0] if found else None


def read_address(server):
    """The address in the line that announces the open port; later lines are passed on."""
    address = []
    done = threading.Event()

    def pump():
        for line in server.stdout:
            match = re.search(r"http://\S+:\d+", line)
            if match and not address:
                address.append(match.group(0))
                done.set()
            sys.stderr.write("server: " + line)
        done.set()

    threading.Thread(target=pump, daemon=True).start()
    done.wait(START_SECONDS)
    return address[0] if address else None


def main():
    arguments = sys.argv[1:]
    split = arguments.index("--")
    serve_arguments = [a for a in arguments[:split] if a != "--serve-arg"]
    model = find_model()
    if model is None:
        print(f"skipped: no {MODEL} below THALWEG_TEST_ASSETS")
        return SKIPPED
    binary = os.environ.get("THALWEG_BIN", "build/release/bin/thalweg")
    server = subprocess.Popen(
        [binary, "serve", str(model), "--host", "127.0.0.1", "--port", "0", *serve_arguments],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        address = read_address(server)
        if address is None:
            print("the server did not announce its address")
            return 1
        result = subprocess.run(arguments[split + 1 :], env={**os.environ, "THALWEG_URL": address}).returncode
        server.send_signal(signal.SIGTERM)
        ended_with = server.wait(END_SECONDS)
        if ended_with != 0:
            print(f"the server ended with {ended_with} after SIGTERM, 0 is needed")
            return result or 1
        return result
    finally:
        if server.poll() is None:
            server.kill()


if __name__ == "__main__":
    sys.exit(main())
