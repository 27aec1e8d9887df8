// The whole server over real sockets, in front of an engine that answers with known tokens.
#include "server/server.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <boost/json.hpp>
#include <chrono>
#include <fstream>
#include <functional>
#include <set>
#include <thread>

#include "server/fake_engine.h"
#include "server/test_client.h"

namespace thalweg::server {
namespace {
namespace json = boost::json;
using std::chrono::milliseconds;

/// Every sequence answers `text`, sequence s > 0 with its number behind.
FakeEngine::Script says(std::string text) {
  return [text](const GenerateRequest&, std::int32_t sequence) {
    return byte_ids(sequence == 0 ? text : text + std::to_string(sequence));
  };
}

bool eventually(const std::function<bool()>& condition) {
  for (int i = 0; i < 3000; ++i) {  // patient: the machine may be busy with other tests
    if (condition()) return true;
    std::this_thread::sleep_for(milliseconds(10));
  }
  return false;
}

class ServerTest : public testing::Test {
 protected:
  void start(FakeEngine::Script script = says("Hello"), ServerOptions options = {},
             FakeEngine::Options engine_options = {}) {
    options.port = 0;
    options.version = "1.2.3";
    engine = std::make_unique<FakeEngine>(engine_options, std::move(script));
    server = std::make_unique<Server>(options, *engine, tokenizer, &chat_template);
    const Status listening = server->listen();
    ASSERT_TRUE(listening) << listening.error().message;
    thread = std::thread([this] { server->run(); });
  }
  void TearDown() override {
    if (!server) return;
    server->stop();
    if (thread.joinable()) thread.join();
    server.reset();
    engine->close(0);
  }

  TestClient client() const { return TestClient(server->port()); }
  TestResponse call(std::string_view method, std::string_view path, std::string_view body = {},
                    std::string_view headers = {}) const {
    return client().call(method, path, body, headers);
  }
  static std::string chat(const std::string& fields = {}) {
    return R"({"messages":[{"role":"user","content":"hi"}])" + (fields.empty() ? "" : "," + fields) + "}";
  }
  std::string metric(const std::string& line_start) const {
    const std::string text = call("GET", "/metrics").body;
    const std::size_t at = text.find("\n" + line_start);
    if (at == std::string::npos) return {};
    const std::size_t end = text.find('\n', at + 1);
    return text.substr(text.rfind(' ', end) + 1, end - text.rfind(' ', end) - 1);
  }

  const ByteTokenizer tokenizer;
  const PlainTemplate chat_template;
  std::unique_ptr<FakeEngine> engine;
  std::unique_ptr<Server> server;
  std::thread thread;
};

void expect_error(const TestResponse& response, int status, const std::string& code) {
  EXPECT_EQ(response.status, status) << response.head << response.body;
  const json::value error = json::parse(response.body).at("error");
  EXPECT_EQ(error.at("code").as_string(), code) << response.body;
  EXPECT_EQ(error.at("status").as_int64(), status);
  EXPECT_FALSE(error.at("message").as_string().empty());
  EXPECT_TRUE(error.as_object().contains("param"));
}

std::vector<std::string> events_of(const std::string& body) {
  std::vector<std::string> events;
  std::size_t from = 0;
  while (from < body.size()) {
    const std::size_t end = body.find("\n\n", from);
    if (end == std::string::npos) break;
    events.push_back(body.substr(from, end - from));
    from = end + 2;
  }
  return events;
}

TEST_F(ServerTest, ChatBody) {
  start();
  const TestResponse response = call("POST", "/v1/chat/completions", chat(), "X-Request-Id: my-id\r\n");
  ASSERT_EQ(response.status, 200) << response.body;
  EXPECT_EQ(response.header("X-Request-Id"), "my-id");
  const json::value body = json::parse(response.body);
  EXPECT_TRUE(body.at("id").as_string().starts_with("chatcmpl-"));
  EXPECT_EQ(body.at("model"), "fake");
  const json::value& choice = body.at("choices").at(0);
  EXPECT_EQ(choice.at("message").at("content"), "Hello");
  EXPECT_EQ(choice.at("message").at("role"), "assistant");
  EXPECT_EQ(choice.at("finish_reason"), "stop");
  EXPECT_TRUE(choice.at("stop_reason").is_null());
  EXPECT_EQ(body.at("usage").at("completion_tokens"), 6);  // with the end token
  EXPECT_EQ(body.at("usage").at("prompt_tokens_details").at("cached_tokens"), 2);
}

TEST_F(ServerTest, ChatStream) {
  start();
  const TestResponse response =
      call("POST", "/v1/chat/completions",
           chat(R"("stream":true,"n":3,"max_tokens":5,"stream_options":{"include_usage":true})"));
  ASSERT_EQ(response.status, 200);
  EXPECT_TRUE(response.header("Content-Type").starts_with("text/event-stream"));
  EXPECT_FALSE(response.header("X-Request-Id").empty());
  const std::vector<std::string> events = events_of(response.body);
  ASSERT_GE(events.size(), 3U);
  EXPECT_EQ(events.back(), "data: [DONE]");
  std::set<std::string> ids;
  std::map<std::int64_t, std::string> state;  // R role, C content, F finish
  int num_usage = 0;
  for (std::size_t i = 0; i + 1 < events.size(); ++i) {
    const json::value chunk = json::parse(events[i].substr(6));
    ids.insert(std::string(chunk.at("id").as_string()));
    if (chunk.as_object().contains("usage")) {
      ++num_usage;
      EXPECT_TRUE(chunk.at("choices").as_array().empty());
      EXPECT_EQ(i + 2, events.size());
      EXPECT_EQ(chunk.at("usage").at("completion_tokens"), 15);
      continue;
    }
    const json::value& choice = chunk.at("choices").at(0);
    const json::object& delta = choice.at("delta").as_object();
    const char kind = !choice.at("finish_reason").is_null() ? 'F' : delta.contains("role") ? 'R' : 'C';
    EXPECT_TRUE(kind != 'C' || !delta.at("content").as_string().empty());
    EXPECT_TRUE(kind != 'F' || choice.at("finish_reason") == "length");
    state[choice.at("index").as_int64()] += kind;
  }
  EXPECT_EQ(ids.size(), 1U);
  EXPECT_EQ(num_usage, 1);
  ASSERT_EQ(state.size(), 3U);
  for (const auto& [index, kinds] : state) EXPECT_EQ(kinds, "RCCCCCF");
}

TEST_F(ServerTest, NoUsageUnlessAsked) {
  start();
  EXPECT_EQ(call("POST", "/v1/chat/completions", chat(R"("stream":true)")).body.find("usage"), std::string::npos);
}

TEST_F(ServerTest, StopStringEndsGenerationAndCancelsTheEngine) {
  start(says("A B C D E F G H I J K L M N O P Q R S T U V W X Y Z and so on for ever"), {}, {.step_ms = 1});
  for (const std::string stream : {"false", "true"}) {
    const TestResponse response =
        call("POST", "/v1/completions", R"({"prompt":"A","stop":["O P Q"],"max_tokens":60,"stream":)" + stream + "}");
    ASSERT_EQ(response.status, 200);
    EXPECT_NE(response.body.find(R"("stop_reason":"O P Q")"), std::string::npos) << response.body;
    EXPECT_NE(response.body.find(R"("finish_reason":"stop")"), std::string::npos);
    if (stream == "false") {
      const json::value body = json::parse(response.body);
      EXPECT_EQ(body.at("choices").at(0).at("text"), "A B C D E F G H I J K L M N ");
      EXPECT_EQ(body.at("usage").at("completion_tokens"), 33);
    }
  }
  EXPECT_TRUE(eventually([&] { return engine->num_cancelled() == 2 && engine->num_running() == 0; }));
}

TEST_F(ServerTest, TokenIdsAndStopsAgreeWithTheTextPath) {
  start(says("one STOP two"));
  const auto text_path = json::parse(call("POST", "/v1/completions", R"({"prompt":"ab","stop":"STOP"})").body);
  const auto id_path =
      json::parse(call("POST", "/v1/completions", R"({"prompt":[97,98],"stop":"STOP","return_token_ids":true})").body);
  EXPECT_EQ(text_path.at("choices").at(0).at("text"), id_path.at("choices").at(0).at("text"));
  EXPECT_EQ(id_path.at("choices").at(0).at("token_ids"), json::value_from(byte_ids("one STOP")));
  EXPECT_EQ(id_path.at("choices").at(0).at("prompt_token_ids"), (json::array{97, 98}));
  const auto kept = json::parse(
      call("POST", "/v1/completions", R"({"prompt":"ab","stop":"STOP","include_stop_str_in_output":true})").body);
  EXPECT_EQ(kept.at("choices").at(0).at("text"), "one STOP");
}

TEST_F(ServerTest, StopTokenIdIsNamed) {
  start(says("abcd"));
  const auto body = json::parse(call("POST", "/v1/completions", R"({"prompt":"x","stop_token_ids":[99]})").body);
  EXPECT_EQ(body.at("choices").at(0).at("stop_reason"), 99);
  EXPECT_EQ(body.at("choices").at(0).at("text"), "ab");
  EXPECT_EQ(body.at("usage").at("completion_tokens"), 3);
}

TEST_F(ServerTest, IgnoreEosRunsToTheLength) {
  start(says("ab"));
  const auto body =
      json::parse(call("POST", "/v1/completions", R"({"prompt":"x","ignore_eos":true,"max_tokens":10})").body);
  EXPECT_EQ(body.at("usage").at("completion_tokens"), 10);
  EXPECT_EQ(body.at("choices").at(0).at("finish_reason"), "length");
  EXPECT_EQ(body.at("choices").at(0).at("text"), "ab");
}

TEST_F(ServerTest, PromptListsNumberChoicesPromptMajor) {
  start([](const GenerateRequest& request, std::int32_t sequence) {
    return byte_ids(fmt::format("{}{}", static_cast<char>(request.prompt_ids.back()), sequence));
  });
  const auto body = json::parse(call("POST", "/v1/completions", R"({"prompt":["a","b"],"n":2})").body);
  std::string texts;
  for (const json::value& choice : body.at("choices").as_array()) {
    texts += fmt::format("{}={} ", choice.at("index").as_int64(), std::string(choice.at("text").as_string()));
  }
  EXPECT_EQ(texts, "0=a0 1=a1 2=b0 3=b1 ");
  EXPECT_EQ(body.at("usage").at("prompt_tokens"), 4);
}

TEST_F(ServerTest, EchoWithLogprobsAsEvaluationHarnessesAskForIt) {
  start(says("z"));
  for (const int max_tokens : {0, 1}) {
    const auto body = json::parse(
        call("POST", "/v1/completions",
             fmt::format(R"({{"prompt":[97,98,99],"max_tokens":{},"logprobs":2,"echo":true,"temperature":0}})",
                         max_tokens))
            .body);
    const json::value& choice = body.at("choices").at(0);
    EXPECT_EQ(choice.at("text"), max_tokens == 0 ? "abc" : "abcz");
    const json::array& logprobs = choice.at("logprobs").at("token_logprobs").as_array();
    ASSERT_EQ(logprobs.size(), static_cast<std::size_t>(3 + max_tokens));
    EXPECT_TRUE(logprobs[0].is_null());
    EXPECT_EQ(logprobs[1].to_number<double>(), -0.5);
  }
}

TEST_F(ServerTest, PromptLogprobs) {
  start();
  const auto body = json::parse(call("POST", "/v1/completions", R"({"prompt":[97,98],"prompt_logprobs":1})").body);
  const json::array& list = body.at("choices").at(0).at("prompt_logprobs").as_array();
  ASSERT_EQ(list.size(), 2U);
  EXPECT_TRUE(list[0].is_null());
  EXPECT_EQ(list[1].at("98").at("decoded_token"), "b");
}

TEST_F(ServerTest, ToolsAndVariablesReachTheTemplate) {
  start();
  const TestResponse response =
      call("POST", "/v1/chat/completions",
           chat(R"("tools":[{"type":"function","function":{"name":"f"}}],)"
                R"("chat_template_kwargs":{"enable_thinking":false},"return_token_ids":true)"));
  ASSERT_EQ(response.status, 200);
  std::string prompt;
  const json::value body = json::parse(response.body);
  for (const json::value& id : body.at("prompt_token_ids").as_array()) prompt += static_cast<char>(id.as_int64());
  EXPECT_NE(prompt.find(R"("name":"f")"), std::string::npos) << prompt;
  EXPECT_NE(prompt.find(R"({"enable_thinking":false})"), std::string::npos) << prompt;
}

TEST_F(ServerTest, TokenizeAgreesWithChat) {
  start();
  const auto ids = json::parse(call("POST", "/tokenize", chat()).body);
  const auto body = json::parse(call("POST", "/v1/chat/completions", chat(R"("return_token_ids":true)")).body);
  EXPECT_EQ(ids.at("tokens"), body.at("prompt_token_ids"));
  EXPECT_EQ(ids.at("count").to_number<std::size_t>(), ids.at("tokens").as_array().size());
  const auto back = json::parse(call("POST", "/detokenize", R"({"tokens":[104,105]})").body);
  EXPECT_EQ(back.at("prompt"), "hi");
  EXPECT_EQ(back.at("content"), "hi");
  expect_error(call("POST", "/detokenize", R"({"tokens":[-1]})"), 400, "invalid_request");
}

TEST_F(ServerTest, ErrorsHaveTheRightStatus) {
  start();
  expect_error(call("POST", "/v1/chat/completions", "{"), 400, "invalid_request");
  expect_error(call("POST", "/v1/chat/completions", chat(R"("model":"other")")), 404, "model_not_found");
  expect_error(call("POST", "/v1/chat/completions", R"({"messages":[{"role":"user","content":"RAISE"}]})"), 400,
               "invalid_request");
  expect_error(call("POST", "/v1/completions", R"({"prompt":"x","max_tokens":5000})"), 400, "context_length_exceeded");
  expect_error(call("POST", "/v1/completions", R"({"prompt":")" + std::string(5000, 'x') + R"("})"), 400,
               "context_length_exceeded");
  expect_error(call("GET", "/nowhere"), 404, "route_not_found");
  expect_error(call("GET", "/v1/models/other"), 404, "model_not_found");
  const TestResponse wrong_method = call("GET", "/v1/completions");
  expect_error(wrong_method, 405, "method_not_allowed");
  EXPECT_EQ(wrong_method.header("Allow"), "POST, OPTIONS");
  TestClient form = client();
  form.send("POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n\r\n{}");
  expect_error(form.read_response(), 415, "unsupported_media_type");
  expect_error(call("POST", "/reset_prefix_cache"), 403, "admin_key_required");
  engine->fail_next({.code = ErrorCode::kInternal, .message = "broken"});
  expect_error(call("POST", "/v1/completions", R"({"prompt":"x"})"), 500, "internal");
  engine->fail_next({.code = ErrorCode::kResourceExhausted, .message = "the queue is full"});
  const TestResponse full = call("POST", "/v1/completions", R"({"prompt":"x","stream":true})");
  expect_error(full, 429, "resource_exhausted");
  EXPECT_FALSE(full.header("Retry-After").empty());
}

TEST_F(ServerTest, RefusedPromptOfAListCancelsTheOthers) {
  start(says(std::string(500, 'x')), {}, {.max_queued = 1, .step_ms = 1});
  expect_error(call("POST", "/v1/completions", R"({"prompt":["a","b"],"max_tokens":500})"), 429, "resource_exhausted");
  EXPECT_TRUE(eventually([&] { return engine->num_running() == 0; }));
  EXPECT_EQ(engine->num_cancelled(), 1);
}

TEST_F(ServerTest, ErrorAfterTheStartIsOneEvent) {
  start(says(std::string(4000, 'x')), {}, {.step_ms = 1});
  TestClient stream = client();
  stream.send_request("POST", "/v1/chat/completions", chat(R"("stream":true)"));
  stream.read_until("\"content\":\"x\"");
  engine->break_all({.code = ErrorCode::kUnavailable, .message = "the device is gone"});
  const std::string rest = stream.read_until("0\r\n\r\n");
  const std::size_t error = rest.find("data: {\"error\":{\"message\":\"the device is gone\"");
  ASSERT_NE(error, std::string::npos) << rest;
  EXPECT_NE(rest.find("data: [DONE]", error), std::string::npos);
}

TEST_F(ServerTest, TimeoutsBeforeTheStartAreAStatus) {
  start();
  engine->hold(true);
  std::thread breaker([&] {
    EXPECT_TRUE(eventually([&] { return engine->num_running() == 1; }));
    engine->break_all({.code = ErrorCode::kDeadlineExceeded, .message = "too late"});
  });
  const TestResponse response = call("POST", "/v1/completions", R"({"prompt":"x"})");
  breaker.join();
  expect_error(response, 504, "deadline_exceeded");
}

TEST_F(ServerTest, PathsAndMethods) {
  start();
  EXPECT_EQ(call("GET", "/health").status, 200);
  EXPECT_TRUE(call("GET", "/health").body.empty());
  EXPECT_EQ(call("POST", "/ping").status, 200);
  EXPECT_EQ(call("GET", "/v1/models/").status, 200);
  EXPECT_EQ(call("GET", "/models").status, 200);
  EXPECT_EQ(call("GET", "/v1/models/fake").status, 200);
  EXPECT_EQ(call("POST", "/chat/completions", chat()).status, 200);
  EXPECT_EQ(call("POST", "/completions/?x=1", R"({"prompt":"x"})").status, 200);
  EXPECT_EQ(call("GET", "/version").body, R"({"version":"1.2.3"})");
  EXPECT_EQ(call("GET", "/load").body, R"({"server_load":0})");
  const TestResponse head = call("HEAD", "/v1/models");
  EXPECT_EQ(head.status, 200);
  EXPECT_NE(head.header("Content-Length"), "0");
  const TestResponse options = call("OPTIONS", "/v1/models");
  EXPECT_EQ(options.status, 204);
  EXPECT_EQ(options.header("Allow"), "GET, HEAD, OPTIONS");
  const json::value models = json::parse(call("GET", "/v1/models").body);
  EXPECT_EQ(models.at("data").at(0).at("id"), "fake");
  EXPECT_EQ(models.at("data").at(0).at("max_model_len"), 4096);
}

TEST_F(ServerTest, KeysGuardAllButHealth) {
  start(says("Hello"),
        {.served_model_names = {"a/b", "c"}, .api_keys = {"k1", "k2"}, .admin_key = "boss", .cors_origin = "*"});
  const TestResponse none = call("GET", "/v1/models");
  expect_error(none, 401, "invalid_api_key");
  EXPECT_EQ(none.header("WWW-Authenticate"), "Bearer");
  EXPECT_EQ(none.header("Access-Control-Allow-Origin"), "*");
  for (const std::string wrong : {"Bearer k", "Bearer k11", "Bearer ", "Basic k1", "k1"}) {
    EXPECT_EQ(call("GET", "/v1/models", {}, "Authorization: " + wrong + "\r\n").status, 401) << wrong;
  }
  EXPECT_EQ(call("GET", "/nowhere").status, 401);
  EXPECT_EQ(call("GET", "/metrics").status, 401);
  EXPECT_EQ(call("GET", "/health").status, 200);
  EXPECT_EQ(call("OPTIONS", "/v1/models").status, 204);
  EXPECT_EQ(call("GET", "/v1/models", {}, "Authorization: bearer k2\r\n").status, 200);
  EXPECT_EQ(call("GET", "/v1/models/a%2Fb", {}, "Authorization: Bearer k1\r\n").status, 200);
  EXPECT_EQ(call("GET", "/v1/models/a/b", {}, "Authorization: Bearer k1\r\n").status, 200);
  EXPECT_EQ(call("POST", "/reset_prefix_cache", {}, "Authorization: Bearer k1\r\n").status, 401);
  EXPECT_EQ(call("POST", "/reset_prefix_cache", {}, "Authorization: Bearer boss\r\n").status, 200);
}

TEST_F(ServerTest, AResetThatWaitsForAStepKeepsNobodyElseWaiting) {
  start(says("Hello"), {.admin_key = "boss"});  // one I/O thread
  engine->hold_resets(true);
  TestClient waits = client();
  waits.send_request("POST", "/reset_prefix_cache", {}, "Authorization: Bearer boss\r\n");
  for (int i = 0; i < 3; ++i) EXPECT_EQ(call("GET", "/version").status, 200);
  engine->hold_resets(false);
  EXPECT_EQ(waits.read_response().body, R"({"success":true})");
}

TEST_F(ServerTest, PipelinedAndKeptConnections) {
  start();
  TestClient one = client();
  const std::string get = "GET /version HTTP/1.1\r\nHost: x\r\n\r\n";
  one.send(get + get + "\r\n" + get);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(one.read_response().status, 200);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(one.call("POST", "/v1/chat/completions", chat(R"("stream":true)")).status, 200);
  one.send("GET /version HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
  EXPECT_EQ(one.read_response().header("Connection"), "close");
  EXPECT_TRUE(one.at_end());
}

TEST_F(ServerTest, RequestsInPiecesChunkedAndWithExpectation) {
  start();
  TestClient slow = client();
  const std::string body = R"({"prompt":"x"})";
  const std::string text =
      fmt::format("POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n{}", body.size(), body);
  for (const char c : text) slow.send(std::string_view(&c, 1));
  EXPECT_EQ(slow.read_response().status, 200);

  TestClient chunked = client();
  chunked.send("POST /v1/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n");
  chunked.send(fmt::format("5\r\n{}\r\n{:x}\r\n{}\r\n0\r\n\r\n", body.substr(0, 5), body.size() - 5, body.substr(5)));
  EXPECT_EQ(chunked.read_response().status, 200);

  TestClient expecting = client();
  expecting.send(fmt::format(
      "POST /v1/completions HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: {}\r\n\r\n", body.size()));
  EXPECT_EQ(expecting.read_until("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
  expecting.send(body);
  EXPECT_EQ(expecting.read_response().status, 200);
}

TEST_F(ServerTest, OldHttpStreamsToTheEndOfTheConnection) {
  start();
  TestClient old = client();
  const std::string body = chat(R"("stream":true)");
  old.send(fmt::format("POST /v1/chat/completions HTTP/1.0\r\nContent-Length: {}\r\n\r\n{}", body.size(), body));
  const std::string all = old.read_to_end();
  EXPECT_EQ(all.find("Transfer-Encoding"), std::string::npos);
  EXPECT_TRUE(all.ends_with("data: [DONE]\n\n"));
}

TEST_F(ServerTest, HostileBytes) {
  start(says("Hello"), {.max_header_bytes = 4096, .max_body_bytes = 100'000});
  const std::pair<std::string, int> cases[] = {
      {"\x16\x03\x01\x02\n\r\n\r\n", 400},
      {"GET / HTTP/9.9\r\n\r\n", 400},
      {"GET /health HTTP/1.1\r\n\r\n", 400},
      {"GET /health HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400},
      {"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400},
      {"GET /health HTTP/1.1\r\nHost: x\r\nBad Header: y\r\n\r\n", 400},
      {"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n", 400},
      {"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999999999\r\n\r\n", 400},
      {"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n", 400},
      {"POST /v1/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", 400},
      {"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 100001\r\n\r\n", 413},
      {"GET / HTTP/1.1\r\nHost: x\r\nA: " + std::string(5000, 'a') + "\r\n\r\n", 431},
      {"POST /v1/completions HTTP/1.1\r\nHost: x\r\nExpect: cookies\r\nContent-Length: 2\r\n\r\n{}", 417},
  };
  for (const auto& [bytes, status] : cases) {
    TestClient hostile = client();
    hostile.send(bytes);
    const TestResponse response = hostile.read_response();
    EXPECT_EQ(response.status, status) << bytes.substr(0, 80);
    EXPECT_EQ(response.header("Connection"), "close");
    EXPECT_TRUE(hostile.at_end());
  }
  // A client that goes on sending still gets the answer.
  TestClient pusher = client();
  pusher.send("POST /v1/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n");
  for (int i = 0; i < 40; ++i) pusher.send("2710\r\n" + std::string(10'000, ' ') + "\r\n");
  EXPECT_EQ(pusher.read_response().status, 413);
  EXPECT_EQ(call("GET", "/%00%ff%zz\x7F").status, 400);
  EXPECT_EQ(call("GET", "/%00%ff").status, 404);
  EXPECT_EQ(call("GET", "/health").status, 200);
}

TEST_F(ServerTest, SlowSendersAreTimedOut) {
  start(says("Hello"), {.header_timeout_s = 0.3, .body_timeout_s = 0.3, .idle_timeout_s = 0.3});
  TestClient header = client();
  header.send("GET /hea");
  EXPECT_EQ(header.read_response().status, 408);
  TestClient body = client();
  body.send("POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n{");
  EXPECT_EQ(body.read_response().status, 408);
  TestClient silent = client();
  EXPECT_TRUE(silent.at_end());
}

TEST_F(ServerTest, DisconnectCancelsAtOnce) {
  start(says(std::string(4000, 'x')), {}, {.step_ms = 1});
  for (const std::string stream : {"true", "false"}) {
    const std::int32_t before = engine->num_cancelled();
    TestClient leaver = client();
    leaver.send_request("POST", "/v1/completions", R"({"prompt":"x","max_tokens":4000,"n":2,"stream":)" + stream + "}");
    ASSERT_TRUE(eventually([&] { return engine->num_running() == 2; }));
    leaver.close();
    EXPECT_TRUE(eventually([&] { return engine->num_running() == 0; }));
    EXPECT_EQ(engine->num_cancelled(), before + 2);
  }
  EXPECT_TRUE(eventually([&] { return call("GET", "/load").body == R"({"server_load":0})"; }));
}

TEST_F(ServerTest, HalfClosedClientIsToldAndFreed) {
  start(says(std::string(4000, 'x')), {}, {.step_ms = 1});
  TestClient half = client();
  half.send_request("POST", "/v1/completions", R"({"prompt":"x","max_tokens":4000})");
  ASSERT_TRUE(eventually([&] { return engine->num_running() == 1; }));
  half.close_writing();
  expect_error(half.read_response(), 400, "client_closed_request");
  EXPECT_TRUE(eventually([&] { return engine->num_running() == 0; }));
  // Answers that are made at once reach such a client as usual.
  TestClient quick = client();
  quick.send_request("GET", "/version");
  quick.close_writing();
  EXPECT_EQ(quick.read_response().status, 200);
}

TEST_F(ServerTest, ClientThatDoesNotReadIsCutOff) {
  start(
      [](const GenerateRequest& request, std::int32_t) {
        return std::vector<std::int32_t>(static_cast<std::size_t>(request.max_tokens), ByteTokenizer::kHello);
      },
      {.max_unsent_bytes = 64 << 10},
      // At least ten seconds of text: on a busy machine the engine must not be done before the server has looked.
      {.max_model_len = 1 << 24, .tokens_per_step = 200, .step_ms = 1});
  TestClient deaf = client();
  const int small = 4096;
  setsockopt(deaf.socket(), SOL_SOCKET, SO_RCVBUF, &small, sizeof(small));
  deaf.send_request("POST", "/v1/completions",
                    R"({"prompt":"x","max_tokens":2000000,"n":4,"stream":true,"ignore_eos":true})");
  EXPECT_TRUE(eventually([&] { return engine->num_cancelled() == 4; }));
  EXPECT_EQ(call("GET", "/health").status, 200);
}

TEST_F(ServerTest, SilentStreamsGetComments) {
  start(says("Hello"), {.ping_interval_s = 0.2});
  engine->hold(true);
  TestClient waiting = client();
  waiting.send_request("POST", "/v1/chat/completions", chat(R"("stream":true)"));
  EXPECT_NE(waiting.read_until(": ping\n\n").find(R"("role":"assistant")"), std::string::npos);
  engine->hold(false);
  EXPECT_NE(waiting.read_until("[DONE]").find("\"finish_reason\":\"stop\""), std::string::npos);
}

TEST_F(ServerTest, ClientChosenIdsAreNotInternal) {
  start(says("abcdefgh"), {}, {.step_ms = 2});
  TestClient first = client();
  TestClient second = client();
  const std::string body = chat(R"("stream":true,"request_id":"same")");
  first.send_request("POST", "/v1/chat/completions", body, "X-Request-Id: same\r\n");
  second.send_request("POST", "/v1/chat/completions", body);
  first.close();
  const TestResponse response = second.read_response();
  EXPECT_EQ(response.header("X-Request-Id"), "same");
  std::string text;
  for (const std::string& event : events_of(response.body)) {
    const std::size_t at = event.find("\"content\":\"");
    if (at != std::string::npos) text += event.substr(at + 11, event.find('"', at + 11) - at - 11);
  }
  EXPECT_EQ(text, "abcdefgh");
}

TEST_F(ServerTest, LongPromptsAreTokenisedBesideTheStreams) {
  start(says("ok"), {}, {.max_model_len = 8 << 20});
  std::vector<TestClient> clients;
  const std::string body = R"({"prompt":")" + std::string(2 << 20, 'x') + R"("})";
  for (int i = 0; i < 4; ++i) {
    clients.push_back(client());
    clients.back().send_request("POST", "/v1/completions", body);
  }
  for (TestClient& one : clients) {
    const TestResponse response = one.read_response();
    EXPECT_EQ(response.status, 200) << response.body;
    EXPECT_EQ(json::parse(response.body).at("usage").at("prompt_tokens"), (2 << 20) + 1);
  }
}

TEST_F(ServerTest, DrainRefusesNewAndFinishesRunning) {
  start(says("Hello"));
  engine->hold(true);
  TestClient running = client();
  running.send_request("POST", "/v1/chat/completions", chat(R"("stream":true)"));
  running.read_until("assistant");
  server->drain();
  const TestResponse health = call("GET", "/health");
  expect_error(health, 503, "unavailable");
  EXPECT_FALSE(health.header("Retry-After").empty());
  expect_error(call("POST", "/v1/chat/completions", chat()), 503, "unavailable");
  engine->hold(false);
  EXPECT_NE(running.read_until("[DONE]").find("\"finish_reason\":\"stop\""), std::string::npos);
  thread.join();
}

TEST_F(ServerTest, DrainHasADeadline) {
  start(says("Hello"), {.drain_timeout_s = 0.2});
  engine->hold(true);
  TestClient running = client();
  running.send_request("POST", "/v1/chat/completions", chat(R"("stream":true)"));
  running.read_until("assistant");
  server->drain();
  EXPECT_NE(running.read_to_end().find("the server is shutting down"), std::string::npos);
  thread.join();
}

TEST_F(ServerTest, TwoServersCannotShareAPort) {
  start();
  Server second({.port = server->port()}, *engine, tokenizer, nullptr);
  const Status listening = second.listen();
  ASSERT_FALSE(listening);
  EXPECT_EQ(listening.error().param, "port");
}

TEST_F(ServerTest, NoTemplateNoChat) {
  FakeEngine other({}, says("x"));
  Server without({.port = 0}, other, tokenizer, nullptr);
  ASSERT_TRUE(without.listen());
  std::thread running([&] { without.run(); });
  TestClient one(without.port());
  const TestResponse response = one.call("POST", "/v1/chat/completions", chat());
  expect_error(response, 400, "invalid_request");
  EXPECT_NE(response.body.find("/v1/completions"), std::string::npos);
  without.stop();
  running.join();
}

TEST_F(ServerTest, ThousandsOfIdleStreams) {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
  const std::size_t num_streams = std::min<std::size_t>(2000, limit.rlim_cur / 2 - 100);
  start(says("done"), {.num_io_threads = 2});
  engine->hold(true);
  std::vector<TestClient> streams;
  for (std::size_t i = 0; i < num_streams; ++i) {
    streams.push_back(client());
    streams.back().send_request("POST", "/v1/chat/completions", chat(R"("stream":true)"));
  }
  for (TestClient& stream : streams) EXPECT_NE(stream.read_until("assistant").find("200 OK"), std::string::npos);
  EXPECT_EQ(call("GET", "/health").status, 200);
  EXPECT_EQ(call("GET", "/load").body, fmt::format(R"({{"server_load":{}}})", num_streams));
  for (std::size_t i = 0; i < num_streams; i += 2) streams[i].close();
  const auto left = static_cast<std::int32_t>(num_streams / 2);
  EXPECT_TRUE(eventually([&] { return engine->num_running() == left; }));
  engine->hold(false);
  for (std::size_t i = 1; i < num_streams; i += 2) {
    EXPECT_NE(streams[i].read_until("[DONE]").find("\"finish_reason\":\"stop\""), std::string::npos);
  }
}

TEST_F(ServerTest, MetricsAddUpAfterAborts) {
  start(says(std::string(4000, 'x')), {}, {.step_ms = 20});
  {
    std::vector<TestClient> leavers;
    for (int i = 0; i < 200; ++i) {
      leavers.push_back(client());
      leavers.back().send_request("POST", "/v1/completions", R"({"prompt":"x","max_tokens":4000,"stream":true})");
    }
    ASSERT_TRUE(eventually([&] { return engine->num_running() == 200; }));
  }
  ASSERT_TRUE(eventually([&] { return engine->num_running() == 0; }));
  call("POST", "/v1/completions", R"({"prompt":"x","max_tokens":3})");
  engine->fail_next({.code = ErrorCode::kResourceExhausted, .message = "full"});
  call("POST", "/v1/completions", R"({"prompt":"x","max_tokens":3})");
  const std::string model = R"({engine="0",model_name="fake")";
  ASSERT_TRUE(eventually([&] { return metric("thalweg_requests_in_flight" + model) == "0"; }));
  EXPECT_EQ(metric("vllm:num_requests_running" + model), "0");
  EXPECT_EQ(metric("vllm:num_requests_waiting" + model), "0");
  EXPECT_EQ(metric("thalweg_requests_admitted_total" + model), "201");
  EXPECT_EQ(metric("thalweg_requests_finished_total" + model + R"(,reason="abort")"), "200");
  EXPECT_EQ(metric("thalweg_requests_finished_total" + model + R"(,reason="length")"), "1");
  EXPECT_EQ(metric("vllm:e2e_request_latency_seconds_count" + model), "1");
}

TEST_F(ServerTest, MetricsOfTheEngine) {
  start();
  EngineStats stats;
  stats.num_waiting = 7;
  stats.num_held = 3;
  stats.num_computed_tokens = 1 + 9 + 20000;
  stats.num_steps_by_tokens[0] = 1;      // 1 token
  stats.num_steps_by_tokens[2] = 1;      // 9 of at most 16
  stats.num_steps_by_tokens.back() = 1;  // 20,000
  stats.num_accepted_at[0] = 5;
  stats.num_accepted_at[1] = 2;
  engine->set_stats(stats);
  const std::string model = R"({engine="0",model_name="fake")";
  EXPECT_EQ(metric("vllm:num_requests_waiting_by_reason" + model + R"(,reason="capacity"})"), "4");
  EXPECT_EQ(metric("vllm:num_requests_waiting_by_reason" + model + R"(,reason="deferred"})"), "3");
  EXPECT_EQ(metric("vllm:spec_decode_num_accepted_tokens_per_pos_total" + model + R"(,position="0"})"), "5");
  EXPECT_EQ(metric("vllm:spec_decode_num_accepted_tokens_per_pos_total" + model + R"(,position="1"})"), "2");
  for (const std::string name : {"thalweg_step_tokens", "vllm:iteration_tokens_total"}) {
    const std::string bucket = name + R"(_bucket{model_name="fake",engine="0",le=)";
    EXPECT_EQ(metric(bucket + R"("1"})"), "1");
    EXPECT_EQ(metric(bucket + R"("8"})"), "1");
    EXPECT_EQ(metric(bucket + R"("16"})"), "2");
    EXPECT_EQ(metric(bucket + R"("16384"})"), "2");
    EXPECT_EQ(metric(bucket + R"("+Inf"})"), "3");
    EXPECT_EQ(metric(name + R"(_sum{model_name="fake",engine="0"})"), "20010");
    EXPECT_EQ(metric(name + R"(_count{model_name="fake",engine="0"})"), "3");
  }
}

/// Private memory that does not go back, also if swapped out.
long private_kib() {
  std::ifstream status("/proc/self/status");
  long total = 0;
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("RssAnon:") || line.starts_with("VmSwap:"))
      total += std::atol(line.c_str() + line.find(':') + 1);
  }
  return total;
}

TEST_F(ServerTest, MemoryIsSteady) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "the address sanitizer keeps freed memory on purpose";
#endif
  start(says("some text to answer with"));
  TestClient one = client();
  const auto ask = [&](int i) {
    const TestResponse response =
        one.call("POST", "/v1/completions",
                 fmt::format(R"({{"prompt":"unique {}","logprobs":5,"max_tokens":20,"stream":{}}})", i, i % 2 == 0));
    ASSERT_EQ(response.status, 200);
  };
  for (int i = 0; i < 300; ++i) ask(i);
  const long before = private_kib();
  for (int i = 0; i < 1500; ++i) ask(i);
  EXPECT_LT(private_kib() - before, 4096);
}

}  // namespace
}  // namespace thalweg::server
