#include "server/openai_request.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "server/field_rules.h"

namespace thalweg::server {
namespace {

constexpr std::int32_t kVocabSize = 260;

std::string chat(const std::string& fields) {
  return R"({"messages":[{"role":"user","content":"hi"}])" + (fields.empty() ? "" : "," + fields) + "}";
}
std::string completion(const std::string& fields) {
  return R"({"prompt":"hi")" + (fields.empty() ? "" : "," + fields) + "}";
}
ApiResult<OpenAiRequest> parse_chat(const std::string& body) { return parse_chat_request(body, {}, kVocabSize); }
ApiResult<OpenAiRequest> parse_completion(const std::string& body) {
  return parse_completion_request(body, {}, kVocabSize);
}

/// 400 with `param`; returns the message.
std::string refusal(const ApiResult<OpenAiRequest>& result, const std::string& param) {
  EXPECT_FALSE(result.has_value());
  if (result) return {};
  EXPECT_EQ(result.error().status, 400);
  EXPECT_EQ(result.error().param, param) << result.error().message;
  return result.error().message;
}

TEST(ParseChat, Defaults) {
  const auto request = parse_chat(chat(""));
  ASSERT_TRUE(request) << request.error().message;
  EXPECT_TRUE(request->answer.is_chat);
  EXPECT_FALSE(request->answer.stream);
  EXPECT_FALSE(request->max_tokens.has_value());
  EXPECT_EQ(request->generate.num_sequences, 1);
  EXPECT_EQ(request->generate.sampling.temperature, 1.0F);
  EXPECT_EQ(request->generate.sampling.num_logprobs, -1);
  EXPECT_TRUE(request->conversation->add_generation_prompt);
  EXPECT_EQ(request->conversation->messages_json, R"([{"role":"user","content":"hi"}])");
  EXPECT_TRUE(request->unknown_fields.empty());
}

TEST(ParseRequest, TimeoutBecomesTheDeadline) {
  EXPECT_FALSE(parse_chat(chat(""))->generate.timeout_s.has_value());
  EXPECT_EQ(parse_chat(chat(R"("timeout":2.5)"))->generate.timeout_s, 2.5);
  refusal(parse_completion(completion(R"("timeout":0)")), "timeout");
}

TEST(ParseRequest, SilentFieldsTakeTheModelsSampling) {
  ServerOptions options;
  options.default_sampling.temperature = 0.6F;
  options.default_sampling.top_k = 20;
  const auto silent = parse_chat_request(chat(""), options, kVocabSize);
  EXPECT_EQ(silent->generate.sampling.temperature, 0.6F);
  EXPECT_EQ(silent->generate.sampling.top_k, 20);
  EXPECT_EQ(parse_chat_request(chat(R"("temperature":0)"), options, kVocabSize)->generate.sampling.temperature, 0.0F);
}

std::vector<NumberRule> all_number_rules() {
  std::vector<NumberRule> rules(request_number_rules().begin(), request_number_rules().end());
  rules.insert(rules.end(), http_number_rules().begin(), http_number_rules().end());
  return rules;
}

// Every numeric field at, below and above its bounds, on both routes (the rule tables are the only owners).
TEST(ParseRequest, NumericBoundariesOnAllRoutes) {
  for (const NumberRule& rule : all_number_rules()) {
    if (rule.field == "logit_bias") continue;  // its numbers are values of a map
    const std::string field(rule.field);
    const auto accepted = [&](const std::string& value, bool in_chat) {
      std::string fields = fmt::format(R"("{}":{})", field, value);
      // Fields that need another one beside them.
      if (field == "top_logprobs") fields += R"(,"logprobs":true)";
      if (field == "min_tokens") fields += R"(,"max_tokens":2147483647)";
      const auto result = in_chat ? parse_chat(chat(fields)) : parse_completion(completion(fields));
      EXPECT_TRUE(result || result.error().status == 400);
      return result.has_value();
    };
    const bool is_wide = rule.max > 9e18;
    for (const bool in_chat : {true, false}) {
      if (in_chat && field == "logprobs") continue;       // chat's is a boolean
      if (!in_chat && field == "top_logprobs") continue;  // chat's alone
      for (const std::string value :
           {"\"NaN\"", "\"1\"", "true", "[]", "{}", "1e400", "-1e400", "99999999999999999999"}) {
        EXPECT_FALSE(accepted(value, in_chat)) << field << " " << value;
      }
      EXPECT_TRUE(accepted("null", in_chat)) << field;
      if (!is_wide) {
        EXPECT_TRUE(accepted(fmt::format("{:.0f}", rule.max), in_chat)) << field;
        EXPECT_FALSE(accepted(fmt::format("{:.2f}", rule.max + 0.01), in_chat)) << field;
        EXPECT_FALSE(accepted(fmt::format("{:.0f}", rule.max + 1), in_chat)) << field;
        EXPECT_FALSE(accepted(fmt::format("{:.0f}", rule.min - 1), in_chat)) << field;
        EXPECT_FALSE(rule.min_is_excluded && accepted(fmt::format("{}", rule.min), in_chat)) << field;
      }
      if (rule.is_integer) {
        EXPECT_TRUE(accepted("1.0", in_chat)) << field;
        EXPECT_FALSE(accepted("1.5", in_chat)) << field;
      }
    }
  }
}

// What passes here passes the engine, and what that refuses is refused here.
TEST(ParseRequest, EngineAgreesOnEveryRange) {
  for (const std::string field : {"temperature", "top_p", "min_p", "repetition_penalty", "presence_penalty",
                                  "frequency_penalty", "n", "prompt_logprobs", "logprobs"}) {
    const NumberRule& rule = number_rule(field);
    for (const double value : {rule.min - 1, rule.min, rule.max, rule.max + 1}) {
      const bool passes_here = parse_completion(completion(fmt::format(R"("{}":{})", field, value))).has_value();
      GenerateRequest request{.prompt_ids = {1}};
      SamplingParams& sampling = request.sampling;
      const std::pair<std::string_view, float*> floats[] = {{"temperature", &sampling.temperature},
                                                            {"top_p", &sampling.top_p},
                                                            {"min_p", &sampling.min_p},
                                                            {"repetition_penalty", &sampling.repetition_penalty},
                                                            {"presence_penalty", &sampling.presence_penalty},
                                                            {"frequency_penalty", &sampling.frequency_penalty}};
      for (const auto& [name, target] : floats) {
        if (name == field) *target = static_cast<float>(value);
      }
      if (field == "n") request.num_sequences = static_cast<std::int32_t>(value);
      // -1 means "none" there and is not offered here.
      if (field == "prompt_logprobs") request.num_prompt_logprobs = value < 0 ? -2 : static_cast<std::int32_t>(value);
      if (field == "logprobs") sampling.num_logprobs = value < 0 ? -2 : static_cast<std::int32_t>(value);
      EXPECT_EQ(passes_here, validate_request(request, kVocabSize).has_value()) << field << " " << value;
    }
  }
}

TEST(ParseRequest, TinyTopPStaysAboveZero) {
  const auto request = parse_chat(chat(R"("top_p":1e-300)"));
  ASSERT_TRUE(request);
  EXPECT_GT(request->generate.sampling.top_p, 0.0F);
}

TEST(ParseRequest, LogitBiasKeysAreIdsOfTheVocabulary) {
  for (const std::string key : {"99999999", "-1", "abc", "1.5", "", "260", " 1", "1 ", "99999999999999999999"}) {
    refusal(parse_chat(chat(fmt::format(R"("logit_bias":{{"{}":5}})", key))), "logit_bias");
  }
  for (const std::string value : {"101", "-101", "\"1\"", "null", "1e400"}) {
    refusal(parse_chat(chat(fmt::format(R"("logit_bias":{{"1":{}}})", value))), "logit_bias");
  }
  const auto request = parse_chat(chat(R"("logit_bias":{"259":-100,"0":2.5})"));
  ASSERT_TRUE(request);
  ASSERT_EQ(request->generate.sampling.logit_bias.size(), 2U);
  EXPECT_EQ(request->generate.sampling.logit_bias[0].token_id, 259);
}

TEST(ParseCompletion, PromptForms) {
  const auto prompts = [](const std::string& prompt) {
    const auto request = parse_completion(R"({"prompt":)" + prompt + "}");
    EXPECT_TRUE(request) << prompt;
    return request ? request->prompts : std::vector<Prompt>{};
  };
  EXPECT_EQ(prompts(R"("a")"), (std::vector<Prompt>{std::string("a")}));
  EXPECT_EQ(prompts(R"(["a","b"])"), (std::vector<Prompt>{std::string("a"), std::string("b")}));
  EXPECT_EQ(prompts("[1,2]"), (std::vector<Prompt>{std::vector<std::int32_t>{1, 2}}));
  EXPECT_EQ(prompts("[[1],[2,3]]"),
            (std::vector<Prompt>{std::vector<std::int32_t>{1}, std::vector<std::int32_t>{2, 3}}));
  for (const std::string bad : {"null",      "[]",           "[[]]",
                                "[[1],[]]",  "[-1]",         "[[-1]]",
                                "[260]",     "[2147483648]", "[9223372036854775808]",
                                "[1.0]",     "[true]",       "[null]",
                                "[\"a\",1]", "[1,\"a\"]",    "[[1],\"a\"]",
                                "[[1],2]",   "[[[1]]]",      "{}",
                                "5",         "true",         "[1000000000000000000]",
                                "[[\"1\"]]"}) {
    refusal(parse_completion(R"({"prompt":)" + bad + "}"), "prompt");
  }
  const std::string message = refusal(parse_completion(R"({"prompt":[1.0]})"), "prompt");
  EXPECT_NE(message.find("the entry 1.0;"), std::string::npos) << message;
  EXPECT_TRUE(parse_completion(R"({"prompt_token_ids":[1,2]})"));
  refusal(parse_completion(R"({"prompt":"a","prompt_token_ids":[1,2]})"), "prompt_token_ids");
}

TEST(ParseRequest, StopStrings) {
  EXPECT_EQ(parse_chat(chat(R"("stop":"x")"))->answer.stop, std::vector<std::string>{"x"});
  EXPECT_EQ(parse_chat(chat(R"("stop":["x","x","y"])"))->answer.stop, (std::vector<std::string>{"x", "y"}));
  for (const std::string bad : {"\"\"", "[\"\"]", "[1]", "5", "{}", R"(["1","2","3","4","5"])"}) {
    refusal(parse_chat(chat(R"("stop":)" + bad)), "stop");
  }
  std::string many = "[\"0\"";
  for (int i = 1; i < 500'000; ++i) many += fmt::format(",\"{}\"", i);
  EXPECT_NE(refusal(parse_chat(chat(R"("stop":)" + many + "]")), "stop").find("500000"), std::string::npos);
  refusal(parse_chat(chat(R"("stop":")" + std::string(2000, 'x') + "\"")), "stop");
}

TEST(ParseRequest, BodyMustBeAnObjectOfLimitedDepth) {
  for (const std::string bad : {"", "  ", "[]", "5", "\"x\"", "null", "{", "{}x", "{\"a\":}", "{'a':1}", "nonsense"}) {
    EXPECT_EQ(parse_chat(bad).error().status, 400) << bad;
  }
  for (const int depth : {100, 3'000, 1'000'000}) {
    for (const std::string field : {"tools", "messages", "metadata", "response_format"}) {
      std::string objects;
      for (int i = 0; i < depth; ++i) objects += "{\"a\":";
      const std::string body = chat("\"" + field + "\":" + std::string(static_cast<std::size_t>(depth), '['));
      EXPECT_NE(parse_chat(body).error().message.find("64 levels"), std::string::npos);
      EXPECT_NE(parse_chat(chat("\"" + field + "\":" + objects)).error().message.find("64 levels"), std::string::npos);
    }
  }
}

TEST(ParseRequest, UnicodeRules) {
  EXPECT_TRUE(parse_chat("\xEF\xBB\xBF" + chat("")));
  EXPECT_EQ(parse_completion(R"({"prompt":"\ud800"})").error().status, 400);
  EXPECT_EQ(parse_completion("{\"prompt\":\"\xFF\"}").error().status, 400);
  EXPECT_EQ(parse_completion("{\"prompt\":\"\xC3\"}").error().status, 400);
  const auto nul = parse_completion(R"({"prompt":"a\u0000b"})");
  ASSERT_TRUE(nul);
  EXPECT_EQ(std::get<std::string>(nul->prompts[0]), std::string("a\0b", 3));
}

TEST(ParseRequest, LastOfEqualKeysWins) { EXPECT_EQ(parse_chat(chat(R"("n":2,"n":3)"))->generate.num_sequences, 3); }

TEST(ParseRequest, LengthFields) {
  EXPECT_EQ(parse_chat(chat(R"("max_tokens":5,"max_completion_tokens":7)"))->max_tokens, 7);
  EXPECT_EQ(parse_chat(chat(R"("max_tokens":5)"))->max_tokens_field, "max_tokens");
  EXPECT_EQ(parse_completion(completion(R"("n_predict":9)"))->max_tokens, 9);
  EXPECT_FALSE(parse_completion(completion(R"("n_predict":-1)"))->max_tokens.has_value());
  refusal(parse_chat(chat(R"("max_tokens":0)")), "max_tokens");
  refusal(parse_completion(completion(R"("max_tokens":0)")), "max_tokens");
  EXPECT_TRUE(parse_completion(completion(R"("max_tokens":0,"echo":true)")));
  refusal(parse_chat(chat(R"("max_tokens":5,"min_tokens":6)")), "min_tokens");
}

TEST(ParseRequest, StreamOptionsNeedStream) {
  refusal(parse_chat(chat(R"("stream_options":{"include_usage":true})")), "stream_options");
  const auto request =
      parse_chat(chat(R"("stream":true,"stream_options":{"include_usage":true,"include_obfuscation":false})"));
  ASSERT_TRUE(request);
  EXPECT_TRUE(request->answer.include_usage);
  refusal(parse_chat(chat(R"("stream":true,"stream_options":{"include_usage":1})")), "stream_options.include_usage");
}

TEST(ParseRequest, Logprobs) {
  EXPECT_EQ(parse_chat(chat(R"("logprobs":true)"))->generate.sampling.num_logprobs, 0);
  EXPECT_EQ(parse_chat(chat(R"("logprobs":true,"top_logprobs":20)"))->generate.sampling.num_logprobs, 20);
  refusal(parse_chat(chat(R"("top_logprobs":3)")), "top_logprobs");
  refusal(parse_chat(chat(R"("logprobs":false,"top_logprobs":3,"stream":true)")), "top_logprobs");
  const auto echo = parse_completion(completion(R"("logprobs":3,"echo":true,"max_tokens":1)"));
  ASSERT_TRUE(echo);
  EXPECT_EQ(echo->generate.num_prompt_logprobs, 3);
  EXPECT_EQ(echo->generate.sampling.num_logprobs, 3);
  refusal(parse_chat(chat(R"("prompt_logprobs":1,"stream":true)")), "prompt_logprobs");
}

TEST(ParseRequest, UnsupportedFieldsAreNamed) {
  const std::pair<std::string, std::string> cases[] = {
      {"response_format", R"({"type":"json_object"})"},
      {"response_format", R"({"type":"json_schema","json_schema":{}})"},
      {"response_format", "{}"},
      {"structured_outputs", R"({"regex":"("})"},
      {"guided_json", "{}"},
      {"grammar", R"("")"},
      {"functions", "[]"},
      {"best_of", "2"},
      {"use_beam_search", "true"},
      {"modalities", R"(["text","audio"])"},
      {"truncate_prompt_tokens", "0"},
      {"cache_salt", R"("")"},
      {"cache_salt", R"("a/b")"},
      {"cache_salt", "\"" + std::string(129, 'a') + "\""},
      {"allowed_token_ids", "[]"},
      {"stop_token_ids", "[260]"},
      {"bad_words", "[5]"},
  };
  for (const auto& [field, value] : cases) {
    refusal(parse_chat(chat(fmt::format(R"("{}":{})", field, value))), field);
    refusal(parse_completion(completion(fmt::format(R"("{}":{})", field, value))), field);
  }
  EXPECT_TRUE(parse_chat(chat(R"("response_format":{"type":"text"},"best_of":1,"modalities":["text"])")));
  refusal(parse_completion(completion(R"("suffix":"x")")), "suffix");
  refusal(parse_chat(chat(R"("chat_template":"x")")), "chat_template");
}

TEST(ParseRequest, UnknownFieldsAreListedOrRefused) {
  const auto request = parse_chat(chat(R"("user":"u","metadata":{"a":1},"mirostat":2)"));
  ASSERT_TRUE(request);
  EXPECT_EQ(request->unknown_fields, std::vector<std::string>{"mirostat"});
  refusal(parse_chat_request(chat(R"("mirostat":2)"), {.refuse_unknown_fields = true}, kVocabSize), "mirostat");
}

TEST(ParseRequest, TooManyChoices) {
  refusal(parse_completion(completion(R"("n":1000000000)")), "n");
  refusal(parse_completion_request(R"({"prompt":["a","b"],"n":2})", {.max_choices = 3}, kVocabSize), "n");
  refusal(parse_completion_request(R"({"prompt":["a","b"]})", {.max_prompts = 1}, kVocabSize), "prompt");
}

TEST(ParseChat, Messages) {
  refusal(parse_chat("{}"), "messages");
  refusal(parse_chat(R"({"messages":[]})"), "messages");
  refusal(parse_chat(R"({"messages":[5]})"), "messages[0]");
  refusal(parse_chat(R"({"messages":[{"content":"x"}]})"), "messages[0].role");
  refusal(parse_chat(R"({"messages":[{"role":"robot","content":"x"}]})"), "messages[0].role");
  refusal(parse_chat(R"({"messages":[{"role":"user","content":5}]})"), "messages[0].content");
  refusal(
      parse_chat(
          R"({"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"http://127.0.0.1/"}}]}]})"),
      "messages[0].content");
  const auto parts = parse_chat(
      R"({"messages":[{"role":"developer","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]},)"
      R"({"role":"assistant","content":null,"reasoning":"r"}]})");
  ASSERT_TRUE(parts);
  EXPECT_EQ(parts->conversation->messages_json,
            R"([{"role":"system","content":"a\nb"},)"
            R"({"role":"assistant","content":"","reasoning_content":"r","reasoning":"r"}])");
}

TEST(ParseChat, ToolCallArgumentsBecomeObjectsWhenTheyAre) {
  const auto arguments = [](const std::string& sent) {
    const auto request = parse_chat(
        R"({"messages":[{"role":"user","content":"x"},{"role":"assistant","tool_calls":[{"id":"1","type":"function",)"
        R"("function":{"name":"f","arguments":)" +
        sent + "}}]}]}");
    EXPECT_TRUE(request) << sent;
    const std::string& json = request->conversation->messages_json;
    return json.substr(json.find("\"arguments\":") + 12);
  };
  EXPECT_TRUE(arguments(R"("{\"a\":1}")").starts_with(R"({"a":1})"));
  EXPECT_TRUE(arguments(R"({"a":1})").starts_with(R"({"a":1})"));
  EXPECT_TRUE(arguments(R"("{broken")").starts_with(R"("{broken")"));
  EXPECT_TRUE(arguments(R"("")").starts_with(R"("")"));
}

TEST(ParseChat, Tools) {
  const std::string tools = R"("tools":[{"type":"function","function":{"name":"f","parameters":{}}}])";
  EXPECT_FALSE(parse_chat(chat(tools))->conversation->tools_json.empty());
  EXPECT_FALSE(parse_chat(chat(tools + R"(,"tool_choice":"auto")"))->conversation->tools_json.empty());
  EXPECT_TRUE(parse_chat(chat(tools + R"(,"tool_choice":"none")"))->conversation->tools_json.empty());
  EXPECT_TRUE(parse_chat(chat(R"("tool_choice":"none")")));
  refusal(parse_chat(chat(R"("tools":[])")), "tools");
  refusal(parse_chat(chat(R"("tools":[{}])")), "tools");
  for (const std::string bad : {"\"x\"", "[1]", "3", "true"}) {
    refusal(parse_chat(chat(R"("tools":[{"type":"function","function":{"name":"f","parameters":)" + bad + "}}]")),
            "tools");
  }
  EXPECT_TRUE(parse_chat(chat(R"("tools":[{"type":"function","function":{"name":"f","parameters":null}}])")));
  refusal(parse_chat(chat(R"("tool_choice":"auto")")), "tool_choice");
  refusal(parse_chat(chat(tools + R"(,"tool_choice":"required")")), "tool_choice");
  refusal(parse_chat(chat(tools + R"(,"tool_choice":{"type":"function","function":{"name":"f"}})")), "tool_choice");
}

TEST(ParseChat, TemplateVariables) {
  const auto request = parse_chat(chat(R"("chat_template_kwargs":{"enable_thinking":false},"reasoning_effort":"low")"));
  ASSERT_TRUE(request);
  EXPECT_EQ(request->conversation->kwargs_json, R"({"enable_thinking":false,"reasoning_effort":"low"})");
  refusal(parse_chat(chat(R"("chat_template_kwargs":{"messages":[]})")), "chat_template_kwargs");
  refusal(parse_chat(chat(R"("continue_final_message":true,"add_generation_prompt":true)")), "continue_final_message");
  EXPECT_FALSE(parse_chat(chat(R"("continue_final_message":true)"))->conversation->add_generation_prompt);
  const auto variables = [](const std::string& fields) {
    const auto parsed = parse_chat(chat(fields));
    return parsed ? parsed->conversation->kwargs_json : parsed.error().message;
  };
  EXPECT_EQ(variables(R"("reasoning_effort":30)"), R"({"reasoning_effort":30})");
  EXPECT_EQ(variables(R"("thinking":{"type":"enabled"})"), R"({"thinking":true})");
  EXPECT_EQ(variables(R"("thinking":{"type":"disabled","budget_tokens":5})"), R"({"thinking":false})");
  EXPECT_EQ(variables(R"("thinking":true)"), R"({"thinking":true})");
  for (const char* wrong : {"1.5", "[]", "{}"}) {
    refusal(parse_chat(chat(std::string(R"("reasoning_effort":)") + wrong)), "reasoning_effort");
  }
  for (const char* wrong : {"1", "\"enabled\"", "{}", R"({"type":"x"})"}) {
    refusal(parse_chat(chat(std::string(R"("thinking":)") + wrong)), "thinking");
  }
}

}  // namespace
}  // namespace thalweg::server
