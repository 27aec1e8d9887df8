#!/usr/bin/env python3
"""Clients that no library would be: one byte at a time, a closed half, a reader that dawdles, bytes that are no HTTP.

THALWEG_URL is the server.
"""
import json
import os
import socket
import sys
import urllib.parse

URL = urllib.parse.urlparse(os.environ["THALWEG_URL"])


def connect():
    return socket.create_connection((URL.hostname, URL.port), timeout=30)


def request(path, body=None, **headers):
    content = b"" if body is None else json.dumps(body).encode()
    lines = [f"{'GET' if body is None else 'POST'} {path} HTTP/1.1", "Host: test", "Connection: close",
             *(f"{name.replace('_', '-')}: {value}" for name, value in headers.items())]
    if body is not None:
        lines += ["Content-Type: application/json", f"Content-Length: {len(content)}"]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + content


def read_all(connection, piece=65536):
    parts = []
    while part := connection.recv(piece):
        parts.append(part)
    return b"".join(parts)


def completion(max_tokens, **fields):
    return {"prompt": "The capital of France is", "max_tokens": max_tokens, "temperature": 0, "ignore_eos": True,
            **fields}


def test_one_byte_at_a_time():
    with connect() as slow:
        slow.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in request("/v1/completions", completion(2)):
            slow.sendall(bytes([byte]))
        answer = read_all(slow)
    assert answer.startswith(b"HTTP/1.1 200") and b"Paris" in answer, answer


def test_a_reader_of_single_bytes_gets_the_whole_stream():
    with connect() as slow:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.sendall(request("/v1/completions", completion(24, stream=True)))
        answer = read_all(slow, piece=1)
    assert b"Paris" in answer and b"data: [DONE]" in answer, answer


def test_a_closed_half_is_told_and_frees_its_sequence():
    with connect() as half:
        half.sendall(request("/v1/completions", completion(2000, stream=True)))
        assert half.recv(1)
        half.shutdown(socket.SHUT_WR)
        answer = read_all(half)
    assert b"client_closed_request" in answer and answer.count(b"data: ") < 1000, answer[-600:]
    with connect() as whole:
        whole.sendall(request("/version"))
        whole.shutdown(socket.SHUT_WR)
        assert read_all(whole).startswith(b"HTTP/1.1 200"), "what is answered at once reaches such a client"
    for _ in range(300):
        with connect() as watcher:
            watcher.sendall(request("/metrics"))
            if b"\nthalweg_sequences_running{engine=\"0\"" not in (text := read_all(watcher)):
                raise AssertionError(text)
            line = next(line for line in text.splitlines() if line.startswith(b"thalweg_sequences_running{"))
            if line.endswith(b" 0"):
                return
    raise AssertionError("the sequence of a client that has left still runs")


def test_what_is_no_request_gets_an_answer_or_a_closed_connection():
    for bytes_sent in [b"\x16\x03\x01\x02\x00" * 20, b"GET / HTTP/9.9\r\n\r\n", b"POST /v1/completions HTTP/1.1\r\n"
                       b"Host: x\r\nContent-Length: -1\r\n\r\n", b"\r\n" * 9000, b"GET /" + b"a" * 70000]:
        with connect() as odd:
            try:
                odd.sendall(bytes_sent)
                odd.shutdown(socket.SHUT_WR)
                answer = read_all(odd)
            except ConnectionError:
                continue
            assert answer == b"" or answer.startswith(b"HTTP/1.1 4") or answer.startswith(b"HTTP/1.1 505"), answer
    with connect() as plain:
        plain.sendall(request("/health"))
        assert read_all(plain).startswith(b"HTTP/1.1 200")


def main():
    for name, test in [(name, test) for name, test in globals().items() if name.startswith("test_")]:
        test()
        print("passed", name, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
