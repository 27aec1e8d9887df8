// The real `openai` npm client against a running server (THALWEG_URL).
// THALWEG_NODE_MODULES is the folder that `npm ci` has filled from package-lock.json.
import assert from "node:assert/strict";
import { createRequire } from "node:module";
import path from "node:path";

let OpenAI;
try {
  const folder = process.env.THALWEG_NODE_MODULES ?? path.join(import.meta.dirname ?? ".", "node_modules");
  OpenAI = createRequire(path.resolve(folder) + path.sep)("openai").OpenAI;
} catch (error) {
  console.log(`skipped: the openai package is not installed (tests/e2e/package.json): ${error.message}`);
  process.exit(77);
}

const client = new OpenAI({ baseURL: process.env.THALWEG_URL + "/v1", apiKey: "none", maxRetries: 0 });
const model = (await client.models.list()).data[0].id;
const messages = [{ role: "user", content: "What is the capital of France? Answer in one sentence." }];
const ask = { model, messages, temperature: 0, max_tokens: 24 };

const tests = {
  async chatAnswers() {
    const answer = await client.chat.completions.create(ask);
    assert.match(answer.choices[0].message.content, /Paris/);
    assert.equal(answer.usage.total_tokens, answer.usage.prompt_tokens + answer.usage.completion_tokens);
  },

  async streamEqualsBody() {
    const body = await client.chat.completions.create(ask);
    const stream = await client.chat.completions.create({
      ...ask,
      stream: true,
      stream_options: { include_usage: true },
    });
    let text = "";
    let usage = 0;
    const finishes = [];
    for await (const chunk of stream) {
      if (chunk.usage) usage += 1;
      for (const choice of chunk.choices) {
        text += choice.delta.content ?? "";
        if (choice.finish_reason) finishes.push(choice.finish_reason);
      }
    }
    assert.equal(text, body.choices[0].message.content);
    assert.deepEqual(finishes, [body.choices[0].finish_reason]);
    assert.equal(usage, 1);
  },

  async accumulatorOfTheClientAgrees() {
    const body = await client.chat.completions.create(ask);
    const final = await client.chat.completions.stream(ask).finalChatCompletion();
    assert.equal(final.choices[0].message.content, body.choices[0].message.content);
    assert.equal(final.choices[0].message.role, "assistant");
  },

  async abortEndsTheRequest() {
    const stream = await client.completions.create({
      model,
      prompt: "Count:",
      max_tokens: 1500,
      stream: true,
      ignore_eos: true,
    });
    for await (const chunk of stream) {
      assert.equal(chunk.object, "text_completion");
      break; // the client aborts the response
    }
    for (let i = 0; ; i++) {
      const text = await (await fetch(process.env.THALWEG_URL + "/metrics")).text();
      if (/^vllm:num_requests_running\S* 0$/m.test(text)) return;
      assert.ok(i < 100, "the request still runs 10 s after its client has gone");
      await new Promise((resolve) => setTimeout(resolve, 100));
    }
  },

  async errorsAreTheClientsClasses() {
    await assert.rejects(client.chat.completions.create({ ...ask, model: "nobody" }), OpenAI.NotFoundError);
    await assert.rejects(client.chat.completions.create({ ...ask, top_p: 0 }), OpenAI.BadRequestError);
    await assert.rejects(client.chat.completions.create({ ...ask, messages: [], stream: true }), (error) => {
      assert.ok(error instanceof OpenAI.BadRequestError);
      assert.equal(error.param, "messages");
      return true;
    });
  },
};

let failed = 0;
for (const [name, test] of Object.entries(tests)) {
  try {
    await test();
    console.log("ok    ", name);
  } catch (error) {
    failed += 1;
    console.log("FAILED", name, error);
  }
}
process.exit(failed === 0 ? 0 : 1);
