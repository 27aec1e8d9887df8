"""The real `openai` Python client against a running server (THALWEG_URL)."""

import math
import os
import sys
import time
import traceback
import urllib.request

try:
    import openai
except ImportError:
    print("skipped: the openai package is not installed (tests/e2e/requirements.txt)")
    sys.exit(77)

URL = os.environ["THALWEG_URL"]
client = openai.OpenAI(base_url=URL + "/v1", api_key="none", max_retries=0, timeout=120)
QUESTION = [{"role": "user", "content": "What is the capital of France? Answer in one sentence."}]


def model():
    return client.models.list().data[0].id


def test_models():
    listed = client.models.list().data
    assert len(listed) >= 1
    assert client.models.retrieve(listed[0].id).id == listed[0].id
    assert listed[0].max_model_len > 0


def test_chat_answers():
    answer = client.chat.completions.create(model=model(), messages=QUESTION, temperature=0, max_tokens=24)
    assert "Paris" in answer.choices[0].message.content, answer
    assert answer.choices[0].finish_reason in ("stop", "length")
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens
    assert answer.usage.prompt_tokens_details.cached_tokens >= 0


def test_stream_equals_body():
    ask = dict(model=model(), messages=QUESTION, temperature=0, max_tokens=24)
    body = client.chat.completions.create(**ask)
    text, finishes, usage, ids = "", [], [], set()
    for chunk in client.chat.completions.create(**ask, stream=True, stream_options={"include_usage": True}):
        ids.add(chunk.id)
        if chunk.usage:
            usage.append(chunk.usage)
            assert chunk.choices == []
        for choice in chunk.choices:
            text += choice.delta.content or ""
            if choice.finish_reason:
                finishes.append(choice.finish_reason)
    assert text == body.choices[0].message.content
    assert finishes == [body.choices[0].finish_reason]
    assert len(usage) == 1 and usage[0].completion_tokens == body.usage.completion_tokens
    assert len(ids) == 1


def test_choices_are_seeded():
    ask = dict(model=model(), messages=QUESTION, temperature=0.9, seed=42, n=3, max_tokens=12)
    first = [c.message.content for c in client.chat.completions.create(**ask).choices]
    again = [c.message.content for c in client.chat.completions.create(**ask).choices]
    assert len(first) == 3 and first == again
    assert len(set(first)) > 1, "choices of one request must differ"
    greedy = client.chat.completions.create(**{**ask, "temperature": 0}).choices
    assert len({c.message.content for c in greedy}) == 1


def test_streamed_choices_finish_once():
    roles, finishes = {}, {}
    for chunk in client.chat.completions.create(model=model(), messages=QUESTION, n=3, max_tokens=5, stream=True):
        for choice in chunk.choices:
            roles[choice.index] = roles.get(choice.index, 0) + (choice.delta.role is not None)
            finishes[choice.index] = finishes.get(choice.index, 0) + (choice.finish_reason is not None)
            assert chunk.usage is None
    assert roles == finishes == {0: 1, 1: 1, 2: 1}


def test_logprobs():
    ask = dict(model=model(), messages=QUESTION, temperature=0, max_tokens=12, logprobs=True, top_logprobs=5)
    choice = client.chat.completions.create(**ask).choices[0]
    told = b"".join(bytes(entry.bytes) for entry in choice.logprobs.content)
    assert told.decode() == choice.message.content
    for entry in choice.logprobs.content:
        assert math.isfinite(entry.logprob) and entry.logprob <= 0
        assert len(entry.top_logprobs) == 5
        assert abs(entry.top_logprobs[0].logprob - entry.logprob) < 1e-6, "greedy takes the most likely token"
    streamed = [
        entry.token
        for chunk in client.chat.completions.create(**ask, stream=True)
        for part in chunk.choices
        if part.logprobs
        for entry in part.logprobs.content
    ]
    assert streamed == [entry.token for entry in choice.logprobs.content]


def test_stop_string():
    ask = dict(model=model(), prompt="1, 2, 3, 4, 5, 6,", temperature=0, max_tokens=64)
    free = client.completions.create(**ask).choices[0].text
    stop = free[8:11]
    for stream in (False, True):
        answer = client.completions.create(**ask, stop=[stop], stream=stream)
        text = "".join(c.choices[0].text for c in answer) if stream else answer.choices[0].text
        assert text == free[: free.index(stop)], (text, stop)


def test_completions_lists_and_echo():
    answer = client.completions.create(model=model(), prompt=["One, two,", "A, B,"], n=2, max_tokens=4, temperature=0)
    assert [c.index for c in answer.choices] == [0, 1, 2, 3]
    assert answer.choices[0].text == answer.choices[1].text
    scored = client.completions.create(
        model=model(), prompt="The sky is blue", max_tokens=1, echo=True, logprobs=1, temperature=0
    ).choices[0]
    assert scored.text.startswith("The sky is blue")
    count = len(scored.logprobs.tokens)
    assert len(scored.logprobs.token_logprobs) == len(scored.logprobs.text_offset) == count
    assert scored.logprobs.token_logprobs[0] is None
    assert all(value <= 0 for value in scored.logprobs.token_logprobs[1:])
    assert scored.logprobs.text_offset == sorted(scored.logprobs.text_offset)


def test_token_ids_in_and_out():
    body = {"return_token_ids": True, "ignore_eos": True}
    text = client.completions.create(model=model(), prompt="Once upon a time", max_tokens=8, temperature=0, extra_body=body)
    ids = text.choices[0].prompt_token_ids
    again = client.completions.create(model=model(), prompt=ids, max_tokens=8, temperature=0, extra_body=body)
    assert again.choices[0].text == text.choices[0].text
    assert len(again.choices[0].token_ids) == again.usage.completion_tokens == 8


def test_errors_are_the_clients_classes():
    cases = [
        (openai.NotFoundError, dict(model="nobody", messages=QUESTION)),
        (openai.BadRequestError, dict(model=model(), messages=[])),
        (openai.BadRequestError, dict(model=model(), messages=QUESTION, temperature=5)),
        (openai.BadRequestError, dict(model=model(), messages=QUESTION, max_tokens=10**9)),
        (openai.BadRequestError, dict(model=model(), messages=QUESTION, logit_bias={"99999999": 1})),
        (openai.BadRequestError, dict(model=model(), messages=QUESTION, response_format={"type": "json_object"})),
    ]
    for expected, ask in cases:
        try:
            client.chat.completions.create(**ask)
        except expected as error:
            assert error.body["message"], error.body
        else:
            raise AssertionError(f"{expected.__name__} expected for {ask}")


def test_request_id_is_echoed():
    raw = client.chat.completions.with_raw_response.create(
        model=model(), messages=QUESTION, max_tokens=1, extra_headers={"X-Request-Id": "e2e-1"}
    )
    assert raw.headers["x-request-id"] == "e2e-1"


def metric(name):
    text = urllib.request.urlopen(URL + "/metrics").read().decode()
    return sum(float(line.rsplit(" ", 1)[1]) for line in text.splitlines() if line.startswith(name))


def test_leaving_frees():
    stream = client.completions.create(
        model=model(), prompt="Count:", max_tokens=1500, stream=True, extra_body={"ignore_eos": True}
    )
    next(iter(stream))
    stream.response.close()
    for _ in range(100):
        if metric("vllm:num_requests_running") == 0 and metric("vllm:kv_cache_usage_perc") == 0:
            return
        time.sleep(0.1)
    raise AssertionError("the request still runs 10 s after its client has gone")


def main():
    failed = 0
    for name, test in list(globals().items()):
        if not name.startswith("test_"):
            continue
        try:
            test()
            print("ok    ", name)
        except Exception:
            failed += 1
            print("FAILED", name)
            traceback.print_exc()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
