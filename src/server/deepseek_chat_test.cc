// Reasoning and tool calls through the whole server, with DeepSeek-V4.1's encoding in front of known answers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <map>
#include <thread>

#include "server/fake_engine.h"
#include "server/server.h"
#include "server/test_client.h"
#include "text/deepseek_v41/encoding.h"
#include "text/deepseek_v41/tokens.h"

namespace thalweg::server {
namespace {
namespace json = boost::json;
using testing::HasSubstr;

/// Bytes, and the tokens that prompts of the encoding are made of.
class TurnTokenizer final : public ByteTokenizer {
 public:
  std::optional<std::int32_t> token_id(std::string_view token) const override {
    const auto found = std::ranges::find(kNames, token);
    return found == std::end(kNames) ? std::nullopt : std::optional(kVocabSize + int(found - std::begin(kNames)));
  }
  std::string text_of(const std::vector<std::int32_t>& ids) const {
    std::string text;
    for (const std::int32_t id : ids) {
      text += id < kVocabSize ? token_bytes(id) : kNames[static_cast<std::size_t>(id - kVocabSize)];
    }
    return text;
  }

 private:
  static constexpr std::string_view kNames[] = {
      text::deepseek_v41::kBos,   text::deepseek_v41::kEos,       text::deepseek_v41::kSystem,
      text::deepseek_v41::kUser,  text::deepseek_v41::kAssistant, text::deepseek_v41::kLatestReminder,
      text::deepseek_v41::kThink, text::deepseek_v41::kEndThink,  text::deepseek_v41::kDsml};
};

const std::string kCalls =
    "\n\n<｜DSML｜ calls>\n<｜DSML｜ invoke name=\"get_weather\">\n<｜DSML｜ parameter name=\"city\" "
    "string=\"true\">Zürich \"<b>\"</｜DSML｜ parameter>\n<｜DSML｜ parameter name=\"days\" "
    "string=\"false\">2</｜DSML｜ "
    "parameter>\n</｜DSML｜ invoke>\n<｜DSML｜ invoke name=\"now\">\n\n</｜DSML｜ invoke>\n</｜DSML｜ calls>";
const std::string kTools =
    R"("tools":[{"type":"function","function":{"name":"get_weather","parameters":{}}},{"type":"function","function":{"name":"now"}}])";
const std::string kArguments = R"({"city": "Zürich \"<b>\"", "days": 2})";

class DeepseekChatTest : public testing::Test {
 protected:
  void start(const std::string& answer, FakeEngine::Options engine_options = {}) {
    ServerOptions options;
    options.port = 0;
    engine = std::make_unique<FakeEngine>(engine_options,
                                          [answer](const GenerateRequest&, std::int32_t) { return byte_ids(answer); });
    server = std::make_unique<Server>(options, *engine, tokenizer, encoding.get());
    ASSERT_TRUE(server->listen());
    thread = std::thread([this] { server->run(); });
  }
  void TearDown() override {
    server->stop();
    thread.join();
    server.reset();
    engine->close(0);
  }

  TestResponse call(const std::string& messages, const std::string& fields = {}) const {
    const std::string body = R"({"messages":)" + messages + (fields.empty() ? "" : "," + fields) + "}";
    return TestClient(server->port()).call("POST", "/v1/chat/completions", body);
  }
  json::value answer(const std::string& fields = {}) const {
    const TestResponse response = call(R"([{"role":"user","content":"hi"}])", fields);
    EXPECT_EQ(response.status, 200) << response.body;
    return json::parse(response.body);
  }
  /// What the engine was shown for `messages`.
  std::string prompt(const std::string& messages, const std::string& fields = {}) const {
    const TestResponse response = call(messages, fields);
    EXPECT_EQ(response.status, 200) << response.body;
    return tokenizer.text_of(engine->last_request().prompt_ids);
  }
  std::string refusal(const std::string& messages, const std::string& fields = {}) const {
    const TestResponse response = call(messages, fields);
    EXPECT_EQ(response.status, 400) << response.body;
    return response.body;
  }

  const TurnTokenizer tokenizer;
  const std::unique_ptr<text::ChatTemplate> encoding = text::deepseek_v41::make_encoding();
  std::unique_ptr<FakeEngine> engine;
  std::unique_ptr<Server> server;
  std::thread thread;
};

TEST_F(DeepseekChatTest, ReasoningStandsApart) {
  start("be\ncause\n</think>\n\nThe answer");
  const json::value body = answer();
  const json::value& message = body.at("choices").at(0).at("message");
  EXPECT_EQ(message.at("reasoning_content"), "be\ncause");
  EXPECT_EQ(message.at("reasoning"), "be\ncause");
  EXPECT_EQ(message.at("content"), "The answer");
  EXPECT_FALSE(message.as_object().contains("tool_calls"));
  EXPECT_EQ(body.at("choices").at(0).at("finish_reason"), "stop");
  EXPECT_EQ(body.at("usage").at("completion_tokens_details").at("reasoning_tokens"), 17);  // </think> is one of them
}

TEST_F(DeepseekChatTest, WithoutThinkingAllIsContent) {
  start("The answer");
  const json::value body = answer(R"("thinking":{"type":"disabled"})");
  EXPECT_EQ(body.at("choices").at(0).at("message").at("content"), "The answer");
  EXPECT_FALSE(body.at("choices").at(0).at("message").as_object().contains("reasoning_content"));
  EXPECT_FALSE(body.at("usage").as_object().contains("completion_tokens_details"));
}

TEST_F(DeepseekChatTest, ToolCalls) {
  start("because</think>" + kCalls);
  const json::value body = answer(kTools);
  const json::value& choice = body.at("choices").at(0);
  EXPECT_EQ(choice.at("finish_reason"), "tool_calls");
  EXPECT_TRUE(choice.at("message").at("content").is_null());
  EXPECT_EQ(choice.at("message").at("reasoning_content"), "because");
  const json::array& calls = choice.at("message").at("tool_calls").as_array();
  ASSERT_EQ(calls.size(), 2U);
  EXPECT_EQ(calls[0].at("type"), "function");
  EXPECT_EQ(calls[0].at("function").at("name"), "get_weather");
  EXPECT_EQ(calls[0].at("function").at("arguments").as_string(), kArguments);
  EXPECT_EQ(calls[1].at("function").at("name"), "now");
  EXPECT_EQ(calls[1].at("function").at("arguments"), "{}");
  EXPECT_NE(calls[0].at("id"), calls[1].at("id"));
}

TEST_F(DeepseekChatTest, CallsAreTextWhereNoToolsAre) {
  start("r</think>x" + kCalls);
  const json::value body = answer();
  EXPECT_EQ(body.at("choices").at(0).at("message").at("content").as_string(), "x" + kCalls);
  EXPECT_EQ(body.at("choices").at(0).at("finish_reason"), "stop");
}

TEST_F(DeepseekChatTest, StreamedPartsAddUp) {
  start("because</think>See:" + kCalls);
  const TestResponse response =
      call(R"([{"role":"user","content":"hi"}])", kTools + R"(,"stream":true,"n":2,"logprobs":true)");
  struct Folded {
    std::string order;  // which parts came, repeats left out
    std::string reasoning, content, finish;
    std::vector<std::string> ids, names, arguments;
  };
  std::map<std::int64_t, Folded> choices;
  for (std::size_t at = response.body.find("data: {"); at != std::string::npos;
       at = response.body.find("data: {", at + 1)) {
    const json::value chunk = json::parse(response.body.substr(at + 6, response.body.find("\n\n", at) - at - 6));
    const json::value& choice = chunk.at("choices").at(0);
    const json::object& delta = choice.at("delta").as_object();
    Folded& folded = choices[choice.at("index").as_int64()];
    const auto add = [&](char part) {
      if (folded.order.empty() || folded.order.back() != part) folded.order += part;
    };
    if (delta.contains("role")) add('R');
    if (delta.contains("reasoning_content")) {
      add('r');
      folded.reasoning += delta.at("reasoning_content").as_string();
    }
    if (delta.contains("content") && !delta.at("content").as_string().empty()) {
      add('c');
      folded.content += delta.at("content").as_string();
    }
    if (delta.contains("tool_calls")) {
      add('t');
      for (const json::value& call : delta.at("tool_calls").as_array()) {
        const auto index = static_cast<std::size_t>(call.at("index").as_int64());
        if (call.as_object().contains("id")) {
          ASSERT_EQ(index, folded.names.size());
          folded.ids.emplace_back(call.at("id").as_string());
          folded.names.emplace_back(call.at("function").at("name").as_string());
          folded.arguments.emplace_back();
        }
        ASSERT_EQ(index + 1, folded.arguments.size());
        folded.arguments.back() += call.at("function").at("arguments").as_string();
      }
    }
    if (!choice.at("finish_reason").is_null()) folded.finish = choice.at("finish_reason").as_string();
  }
  ASSERT_EQ(choices.size(), 2U);
  for (const auto& [index, folded] : choices) {
    EXPECT_EQ(folded.order, "Rrct");
    EXPECT_EQ(folded.reasoning, "because");
    EXPECT_EQ(folded.content, "See:");
    EXPECT_EQ(folded.names, (std::vector<std::string>{"get_weather", "now"}));
    EXPECT_EQ(folded.arguments, (std::vector<std::string>{kArguments, "{}"}));
    EXPECT_EQ(folded.finish, "tool_calls");
  }
  EXPECT_NE(choices[0].ids[0], choices[1].ids[0]);
}

TEST_F(DeepseekChatTest, ACutCallEndsByLength) {
  start("because</think>" + kCalls);
  const json::value body = answer(kTools + R"(,"max_tokens":140)");
  EXPECT_EQ(body.at("choices").at(0).at("finish_reason"), "length");
  EXPECT_EQ(body.at("choices").at(0).at("message").at("tool_calls").at(0).at("function").at("name"), "get_weather");
}

TEST_F(DeepseekChatTest, AStopStringEndsTheAnswerAsText) {
  start("because</think>See: this");
  const json::value body = answer(R"("stop":" this")");
  EXPECT_EQ(body.at("choices").at(0).at("message").at("content"), "See:");
  EXPECT_EQ(body.at("choices").at(0).at("finish_reason"), "stop");
  EXPECT_EQ(body.at("choices").at(0).at("stop_reason"), " this");
}

TEST_F(DeepseekChatTest, PromptsFollowTheRequest) {
  start("x");
  const std::string hi = R"([{"role":"user","content":"hi"}])";
  const auto effort = [](const std::string& number) {
    return "<｜begin▁of▁sentence｜><｜System｜>Reasoning Effort: " + number +
           " (range 1-100, the higher the value, the more thorough the reasoning)\n\n";
  };
  EXPECT_EQ(prompt(hi), effort("50") + "<｜User｜>hi<｜Assistant｜><think>");
  EXPECT_EQ(prompt(hi, R"("reasoning_effort":"max")"), effort("100") + "<｜User｜>hi<｜Assistant｜><think>");
  EXPECT_EQ(prompt(hi, R"("reasoning_effort":7)"), effort("7") + "<｜User｜>hi<｜Assistant｜><think>");
  EXPECT_EQ(prompt(hi, R"("chat_template_kwargs":{"effort_names":"high=75"})"),
            effort("75") + "<｜User｜>hi<｜Assistant｜><think>");
  const std::string chat = "<｜begin▁of▁sentence｜><｜User｜>hi<｜Assistant｜></think>";
  EXPECT_EQ(prompt(hi, R"("reasoning_effort":"none")"), chat);
  EXPECT_EQ(prompt(hi, R"("chat_template_kwargs":{"thinking":false})"), chat);
  EXPECT_EQ(prompt(R"([{"role":"developer","content":"D"},{"role":"user","content":[{"type":"text","text":"a"},
                      {"type":"text","text":"<｜User｜>"}]},{"role":"latest_reminder","content":"L"}])"),
            effort("50") + "D<｜User｜>a\n\n<｜User｜><｜latest_reminder｜>L<｜Assistant｜><think>");
  EXPECT_THAT(prompt(hi, kTools), HasSubstr("### Available Tool Schemas\n\n{\"name\": \"get_weather\""));
  EXPECT_THAT(prompt(hi, kTools + R"(,"tool_choice":"none")"), testing::Not(HasSubstr("Tool Schemas")));
  EXPECT_THAT(
      prompt(R"([{"role":"user","content":"q"},{"role":"assistant","content":null,"reasoning":"r","tool_calls":[
                      {"id":"c","type":"function","function":{"name":"f","arguments":"{\"a\": 1}"}}]},
                      {"role":"tool","tool_call_id":"c","content":"42"}])",
             kTools),
      testing::EndsWith("<｜User｜>q<｜Assistant｜><think>r</think>\n\n<｜DSML｜ calls>\n<｜DSML｜ invoke name=\"f\">\n"
                        "<｜DSML｜ parameter name=\"a\" string=\"false\">1</｜DSML｜ parameter>\n</｜DSML｜ invoke>\n"
                        "</｜DSML｜ calls><｜end▁of▁sentence｜><｜User｜><tool_result>42</tool_result>"
                        "<｜Assistant｜><think>"));
}

TEST_F(DeepseekChatTest, Refusals) {
  start("x");
  const std::string hi = R"([{"role":"user","content":"hi"}])";
  EXPECT_THAT(refusal(R"([{"role":"user","content":[{"type":"image_url","image_url":{"url":"x"}}]}])"),
              HasSubstr("no vision"));
  EXPECT_THAT(refusal(R"([{"role":"user","content":"x"},{"role":"poet","content":"x"}])"), HasSubstr("poet"));
  EXPECT_THAT(refusal(hi, R"("reasoning_effort":"medium")"), HasSubstr("low, high, xhigh or max"));
  EXPECT_THAT(refusal(hi, R"("reasoning_effort":true)"), HasSubstr("reasoning_effort"));
  EXPECT_THAT(refusal(hi, R"("thinking":{"type":"maybe"})"), HasSubstr("thinking"));
  EXPECT_THAT(refusal(hi, kTools + R"(,"tool_choice":"required")"), HasSubstr("forced calls are not supported"));
}

TEST_F(DeepseekChatTest, AContinuedAnswerGoesOnWhereItWas) {
  start("more</think>x");
  const TestResponse reasoning = call(R"([{"role":"user","content":"q"},{"role":"assistant","reasoning_content":"r"}])",
                                      R"("continue_final_message":true)");
  EXPECT_EQ(json::parse(reasoning.body).at("choices").at(0).at("message").at("reasoning_content"), "more");
  const TestResponse content = call(R"([{"role":"user","content":"q"},{"role":"assistant","content":"a"}])",
                                    R"("continue_final_message":true,"chat_template_kwargs":{"thinking":false})");
  EXPECT_EQ(json::parse(content.body).at("choices").at(0).at("message").at("content"), "morex");
}

}  // namespace
}  // namespace thalweg::server
