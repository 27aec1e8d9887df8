// DeepSeek-V4.1's prompts and answers against recorded ones (python/record_deepseek_encoding.py), and the rules around.
#include "text/deepseek_v41/encoding.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <functional>
#include <random>

#include "text/deepseek_v41/completion.h"
#include "text/deepseek_v41/prompt.h"
#include "text/deepseek_v41/tokens.h"
#include "text/sha256_of.h"
#include "text/test_assets.h"

namespace thalweg::text::deepseek_v41 {
namespace {
namespace json = boost::json;
using testing::HasSubstr;

std::string_view view(const json::string& text) { return {text.data(), text.size()}; }
std::string_view text_at(const json::value& value, std::string_view name) { return view(value.at(name).get_string()); }

const json::value& vectors() {
  static const json::value file = json::parse(read_file("src/text/testdata/deepseek_v41_vectors.json"));
  return file;
}

Conversation conversation_of(const json::value& recorded) {
  const json::object& fields = recorded.get_object();
  Conversation conversation{.messages_json = json::serialize(fields.at("messages")),
                            .kwargs_json = json::serialize(fields.at("variables"))};
  if (fields.contains("tools")) conversation.tools_json = json::serialize(fields.at("tools"));
  if (fields.contains("continue_final_message")) {
    conversation.continue_final_message = true;
    conversation.add_generation_prompt = false;
  }
  return conversation;
}

std::string render(std::string messages, std::string variables = {}, std::string tools = {}, bool adds_prompt = true) {
  const Result<PromptText> prompt = render_conversation({.messages_json = std::move(messages),
                                                         .tools_json = std::move(tools),
                                                         .kwargs_json = std::move(variables),
                                                         .add_generation_prompt = adds_prompt},
                                                        EffortNames::kHigh50);
  return prompt ? prompt->text : "error: " + prompt.error().message;
}

struct Answer {
  std::string reasoning, content;
  std::vector<std::pair<std::string, std::string>> calls;
  std::string error;

  bool operator==(const Answer&) const = default;
};

void PrintTo(const Answer& answer, std::ostream* out) {
  *out << '"' << answer.reasoning << "\" / \"" << answer.content << '"';
  for (const auto& [name, arguments] : answer.calls) *out << " / " << name << ' ' << arguments;
  *out << " / error: " << answer.error;
}

void fold(const CompletionDelta& delta, Answer& answer) {
  answer.reasoning += delta.reasoning;
  answer.content += delta.content;
  for (const ToolCallDelta& call : delta.calls) {
    if (!call.name.empty()) answer.calls.emplace_back(call.name, "");
    ASSERT_EQ(static_cast<std::size_t>(call.index) + 1, answer.calls.size());
    answer.calls.back().second += call.arguments;
  }
}

/// Pieces of `piece_bytes`, each into a delta of its own.
Answer parse(std::string_view text, const CompletionStart& start, std::size_t piece_bytes = std::string::npos) {
  Completion completion(start);
  Answer answer;
  while (!text.empty()) {
    CompletionDelta delta;
    completion.push(text.substr(0, piece_bytes), delta);
    fold(delta, answer);
    text.remove_prefix(std::min(text.size(), piece_bytes));
  }
  CompletionDelta delta;
  if (const Status status = completion.finish(delta); !status) answer.error = status.error().message;
  fold(delta, answer);
  return answer;
}

CompletionStart start_of(const json::value& recorded) {
  const std::string_view stage = text_at(recorded, "start");
  return {.in_reasoning = stage.ends_with("reasoning"),
          .is_continued = stage.starts_with("continued"),
          .parses_calls = recorded.at("has_tools").get_bool()};
}

TEST(DeepseekV41Prompt, ConstantTextsAreTheReleases) {
  EXPECT_EQ(kToolsHead.size(), 884U);
  EXPECT_EQ(sha256_of(kToolsHead), "2ae2ff83edf990187ed419c4e2901bb9ea6ce2129eb503ac543b258e7de8231d");
  EXPECT_EQ(kToolsTail.size(), 99U);
  EXPECT_EQ(sha256_of(kToolsTail), "690702850fe256512cb1ee67c4e436ecb3e735c71ebee77ca45ff357a75fb5a7");
}

TEST(DeepseekV41Prompt, EqualsTheRecordedOnes) {
  ASSERT_GE(vectors().at("prompts").get_array().size(), 60U);
  for (const json::value& recorded : vectors().at("prompts").get_array()) {
    SCOPED_TRACE(text_at(recorded, "name"));
    const Result<PromptText> prompt =
        render_conversation(conversation_of(recorded.at("conversation")), EffortNames::kHigh50);
    ASSERT_TRUE(prompt) << prompt.error().message;
    EXPECT_EQ(prompt->text, text_at(recorded, "prompt"));
    const json::value* spans = recorded.get_object().if_contains("specials");
    if (spans == nullptr) continue;
    json::array specials;
    for (const auto& [begin, end] : prompt->specials) specials.push_back(json::array{begin, end});
    EXPECT_EQ(specials, *spans);
  }
}

TEST(DeepseekV41Prompt, IdsEqualTheRecordedOnes) {
  const auto path = asset_path("tokenizers/deepseek_v4/tokenizer.json");
  if (!path) GTEST_SKIP() << "THALWEG_TEST_ASSETS is not set";
  // V4's file; of the names that V4.1 has changed prompts need these two.
  std::string file = read_file(*path);
  for (const auto& [old_name, name] :
       {std::pair{"<｜place▁holder▁no▁799｜>", "<｜System｜>"}, std::pair{"<｜image2｜>", "<｜deepseek_image｜>"}}) {
    const std::size_t at = file.find(old_name);
    ASSERT_NE(at, std::string::npos);
    file.replace(at, std::string_view(old_name).size(), name);
  }
  const auto tokenizer = Tokenizer::from_json(file, "");
  ASSERT_TRUE(tokenizer) << tokenizer.error().message;
  const std::unique_ptr<ChatTemplate> encoding = make_encoding();
  int num_compared = 0;
  for (const json::value& recorded : vectors().at("prompts").get_array()) {
    const json::value* expected = recorded.get_object().if_contains("ids");
    if (expected == nullptr) continue;
    SCOPED_TRACE(text_at(recorded, "name"));
    const auto ids = encoding->encode(conversation_of(recorded.at("conversation")), **tokenizer);
    ASSERT_TRUE(ids) << ids.error().message;
    EXPECT_EQ(json::value_from(*ids), *expected);
    ++num_compared;
  }
  EXPECT_GE(num_compared, 8);
}

TEST(DeepseekV41Prompt, WithoutGenerationPrompt) {
  const std::string question = R"({"role": "user", "content": "q"})";
  const std::string answer = R"({"role": "assistant", "content": "a", "reasoning_content": "r"})";
  EXPECT_EQ(render("[" + question + "]", R"({"thinking": false})", {}, false), "<｜begin▁of▁sentence｜><｜User｜>q");
  EXPECT_THAT(render("[" + question + "," + answer + "]", {}, {}, false),
              testing::EndsWith("<｜User｜>q<｜Assistant｜><think>r</think>a<｜end▁of▁sentence｜>"));
}

TEST(DeepseekV41Prompt, ResultsSayWhatTheyCannotShow) {
  EXPECT_THAT(render(R"([{"role": "tool", "content": [{"type": "text", "text": "a"}, {"type": "video"}]}])"),
              HasSubstr("<tool_result>a\n\n[Unsupported video]</tool_result>"));
}

TEST(DeepseekV41Prompt, EffortsOfBothRevisions) {
  const auto effort = [](const std::string& variables) {
    const std::string prompt = render(R"([{"role": "user", "content": "q"}])", variables);
    const std::size_t at = prompt.find("Effort: ");
    return at == std::string::npos ? prompt : prompt.substr(at + 8, prompt.find(" (", at) - at - 8);
  };
  EXPECT_EQ(effort("{}"), "50");
  EXPECT_EQ(effort(R"({"effort_names": "high=75"})"), "75");
  EXPECT_EQ(effort(R"({"effort_names": "high=75", "reasoning_effort": "low"})"), "50");
  EXPECT_EQ(effort(R"({"reasoning_effort": "low"})"), "25");
  EXPECT_EQ(effort(R"({"reasoning_effort": 1})"), "1");
  EXPECT_EQ(effort(R"({"reasoning_effort": 100, "thinking": true})"), "100");
  EXPECT_EQ(effort(R"({"reasoning_effort": "none"})"), "<｜begin▁of▁sentence｜><｜User｜>q<｜Assistant｜></think>");
  EXPECT_EQ(effort(R"({"enable_thinking": false})"), effort(R"({"thinking": false})"));
  for (const char* wrong : {"0", "101", "true", "50.0", "\"medium\"", "\"\"", "\"50\"", "[1]", "-1"}) {
    EXPECT_THAT(effort(std::string(R"({"reasoning_effort": )") + wrong + "}"), HasSubstr("error: reasoning_effort is"));
  }
  EXPECT_THAT(effort(R"({"effort_names": "old"})"), HasSubstr("error: effort_names"));
  EXPECT_THAT(effort(R"({"thinking": 1})"), HasSubstr("error: thinking"));
  EXPECT_THAT(effort("[]"), HasSubstr("error: chat_template_kwargs"));
}

TEST(DeepseekV41Prompt, RefusesWhatItCannotShow) {
  const auto error = [](const std::string& messages) {
    const std::string text = render(messages);
    return text.starts_with("error: ") ? text : "no error";
  };
  EXPECT_THAT(error(R"([{"role": "narrator", "content": "x"}])"), HasSubstr("messages[0]: role is \"narrator\""));
  EXPECT_THAT(error(R"([{"content": "x"}])"), HasSubstr("role is \"\""));
  EXPECT_THAT(error(R"([{"role": "user", "content": "a"}, {"role": "user", "content": [{"type": "image_url"}]}])"),
              HasSubstr("messages[1]: content has an image; this build has no vision"));
  EXPECT_THAT(error(R"([{"role": "tool", "content": [{"type": "image"}]}])"), HasSubstr("no vision"));
  EXPECT_THAT(error(R"([{"role": "user", "content": [{"type": "input_audio"}]}])"), HasSubstr("input_audio"));
  EXPECT_THAT(error(R"([{"role": "user", "content": [5]}])"), HasSubstr("part of type \"\""));
  EXPECT_THAT(error(R"([{"role": "user", "content": [{"type": "text", "text": 5}]}])"), HasSubstr("text part"));
  EXPECT_THAT(error(R"([{"role": "user", "content": 5}])"), HasSubstr("neither text nor a list"));
  EXPECT_THAT(error(R"([{"role": "developer", "content": ""}])"), HasSubstr("developer's content is empty"));
  EXPECT_THAT(error(R"([{"role": "user", "content": "x", "task": "sing"}])"), HasSubstr("task \"sing\""));
  EXPECT_THAT(error(R"([{"role": "assistant", "tool_calls": [{"function": {}}]}])"), HasSubstr("tool_calls"));
  EXPECT_THAT(error(R"([{"role": "system", "content": "x", "tools": 5}])"), HasSubstr("tools"));
  EXPECT_THAT(error("[5]"), HasSubstr("messages[0] is no object"));
  EXPECT_THAT(error("[]"), HasSubstr("empty"));
  EXPECT_THAT(error("{"), HasSubstr("no JSON array"));
  EXPECT_THAT(error("[{\"role\": \"user\", \"content\": \"\xFF\"}]"), HasSubstr("no JSON array"));
  const std::string deep = std::string(100000, '[') + std::string(100000, ']');
  EXPECT_THAT(error(R"([{"role": "user", "content": )" + deep + "}]"), HasSubstr("nests deeper"));
  // Arguments nest in a string of their own.
  EXPECT_EQ(
      error(R"([{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": ")" + deep + "\"}}]}]"),
      "no error");
  EXPECT_THAT(render(R"([{"role": "user", "content": "x"}])", {}, R"([{"type": "function"}])"), HasSubstr("tools[0]"));
}

TEST(DeepseekV41Completion, EqualsTheRecordedOnesHoweverItIsCut) {
  ASSERT_GE(vectors().at("completions").get_array().size(), 60U);
  for (const json::value& recorded : vectors().at("completions").get_array()) {
    const std::string_view text = text_at(recorded, "text");
    SCOPED_TRACE(text);
    Answer expected{.reasoning = std::string(text_at(recorded, "reasoning")),
                    .content = std::string(text_at(recorded, "content")),
                    .calls = {},
                    .error = {}};
    for (const json::value& call : recorded.at("calls").get_array()) {
      expected.calls.emplace_back(view(call.at(0).get_string()), view(call.at(1).get_string()));
    }
    for (const std::size_t piece_bytes : {std::string::npos, std::size_t{1}, std::size_t{3}, std::size_t{7}}) {
      Answer answer = parse(text, start_of(recorded), piece_bytes);
      answer.error.clear();
      EXPECT_EQ(answer, expected);
    }
  }
}

TEST(DeepseekV41Completion, HoldsOnlyWhatMayBecomeAMark) {
  Completion completion({});
  const auto push = [&](std::string_view text) {
    CompletionDelta delta;
    completion.push(text, delta);
    return delta;
  };
  EXPECT_EQ(push("a < b").reasoning, "a < b");
  EXPECT_EQ(push(" </thi").reasoning, " ");
  EXPECT_EQ(push("s").reasoning, "</this");
  EXPECT_EQ(push(" </think").reasoning, " ");
  EXPECT_TRUE(completion.is_reasoning());
  EXPECT_EQ(push(">x").content, "x");
  EXPECT_FALSE(completion.is_reasoning());
  EXPECT_EQ(push("\n\n<｜DSML｜ cal").content, "");
  EXPECT_EQ(push("m").content, "\n\n<｜DSML｜ calm");
  EXPECT_EQ(push("<｜DSML｜ calls>\n<｜DSML｜ invoke name=\"f\">\n").calls.front().name, "f");
  EXPECT_EQ(push("<｜DSML｜ parameter name=\"a\" string=\"true\">\"b</").calls.front().arguments, "{\"a\": \"\\\"b");
  EXPECT_EQ(push("i>").calls.front().arguments, "</i>");
}

TEST(DeepseekV41Completion, TellsWhereAnAnswerLeavesTheFormat) {
  const std::string open = "x\n\n<｜DSML｜ calls>\n";
  const std::string call = open + "<｜DSML｜ invoke name=\"f\">\n";
  const std::string a = "<｜DSML｜ parameter name=\"a\" string=\"true\">1</｜DSML｜ parameter>\n";
  const std::string close = "</｜DSML｜ invoke>\n</｜DSML｜ calls>";
  const std::vector<std::pair<std::string, std::string>> cases = {
      {open + "junk", "where a call or the end of the calls is due"},
      {"x<｜DSML｜ calls junk", "behind the mark that opens calls"},
      {open + "\n</｜DSML｜ calls>", "where a call"},
      {open + "<｜DSML｜ invoke nam=\"f\">\n", "where a call"},
      {open + "<｜DSML｜ invoke name=\"" + std::string(5000, 'f'), "name of a call has no end"},
      {open + "<｜DSML｜ invoke name=\"\">\n", "a call has no name"},
      {call + "junk", "where a parameter"},
      {call + "\n" + a + close, "where a parameter"},
      {call + "<｜DSML｜ parameter name=\"a\" string=\"maybe\">1</｜DSML｜ parameter>\n", "whether it is a string"},
      {call + "<｜DSML｜ parameter name=\"" + std::string(5000, 'a'), "name of a parameter has no end"},
      {call + a + a + close, "\"a\" is given twice"},
      {call + a + "\n" + close, "where a parameter"},
      {call + "<｜DSML｜ parameter name=\"a\" string=\"true\">1</｜DSML｜ parameter junk", "behind a parameter"},
      {call + a + "</｜DSML｜ invoke> " + close, "behind a call"},
      {call + a + close + " and more", "text behind the calls"},
      {call + a, "ends within its calls"},
  };
  for (const auto& [text, message] : cases) {
    for (const std::size_t piece_bytes : {std::string::npos, std::size_t{1}}) {
      const Answer answer = parse(text, {.in_reasoning = false}, piece_bytes);
      EXPECT_THAT(answer.error, HasSubstr(message)) << text.substr(0, 200);
      EXPECT_EQ(answer.content, "x");
    }
  }
  EXPECT_THAT(parse("because", {}).error, HasSubstr("reasoning has no end"));
  EXPECT_EQ(parse("because</think>x", {}).error, "");
  EXPECT_EQ(parse(call + a + close, {.in_reasoning = false}).error, "");
  EXPECT_EQ(parse("", {.in_reasoning = false}).error, "");
}

TEST(DeepseekV41Completion, ManyPiecesOfAnything) {
  const std::string_view parts[] = {"\n",
                                    "<",
                                    "/",
                                    "｜DSML｜",
                                    " calls",
                                    ">\n",
                                    " invoke name=\"",
                                    " parameter name=\"",
                                    "\" string=\"true\">",
                                    "\" string=\"false\">",
                                    "think>",
                                    "\xFF\xFE",
                                    "a",
                                    "</｜DSML｜ invoke>\n",
                                    "<｜DSML｜ calls>\n",
                                    "\">\n"};
  std::mt19937 random(7);
  for (int round = 0; round < 2000; ++round) {
    std::string text;
    for (int i = 0; i < 12; ++i) text += parts[random() % std::size(parts)];
    const CompletionStart start{.in_reasoning = random() % 2 == 0, .is_continued = random() % 2 == 0};
    Answer whole = parse(text, start);
    Answer cut = parse(text, start, 1 + random() % 5);
    EXPECT_EQ(cut.error.empty(), whole.error.empty()) << text;
    cut.error = whole.error;  // it shows what had come
    EXPECT_EQ(cut, whole) << text;
  }
}

TEST(DeepseekV41Completion, WhatWasRenderedIsReadBack) {
  const std::string arguments =
      R"({"s": "a \"q\" \n </tag> é", "n": -1.5, "o": {"k": [1, null]}, "b": false, "empty": "", "ключ": "v"})";
  const json::array calls = {
      {{"id", "1"}, {"type", "function"}, {"function", {{"name", "f"}, {"arguments", arguments}}}},
      {{"id", "2"}, {"type", "function"}, {"function", {{"name", "g"}, {"arguments", "{}"}}}}};
  for (const bool thinking : {true, false}) {
    for (const bool has_calls : {true, false}) {
      json::object answer = {{"role", "assistant"}, {"content", "Two\n\nlines."}, {"reasoning_content", "be\n\ncause"}};
      if (has_calls) answer["tool_calls"] = calls;
      const json::array messages = {{{"role", "user"}, {"content", "q"}}, answer};
      const std::string prompt =
          render(json::serialize(messages), thinking ? R"({"thinking": true})" : R"({"thinking": false})", {}, false);
      const std::string opened = render(R"([{"role": "user", "content": "q"}])",
                                        thinking ? R"({"thinking": true})" : R"({"thinking": false})");
      ASSERT_TRUE(prompt.starts_with(opened));
      ASSERT_TRUE(prompt.ends_with(kEos));
      const std::string completion = prompt.substr(opened.size(), prompt.size() - opened.size() - kEos.size());
      const Answer read = parse(completion, {.in_reasoning = thinking}, 5);
      EXPECT_EQ(read.error, "");
      EXPECT_EQ(read.reasoning, thinking ? "be\n\ncause" : "");
      EXPECT_EQ(read.content, "Two\n\nlines.");
      ASSERT_EQ(read.calls.size(), has_calls ? 2U : 0U);
      if (!has_calls) continue;
      EXPECT_EQ(read.calls[0], (std::pair<std::string, std::string>("f", arguments)));
      EXPECT_EQ(read.calls[1], (std::pair<std::string, std::string>("g", "{}")));
    }
  }
}

TEST(DeepseekV41Completion, BeginsWhereThePromptEnds) {
  const std::unique_ptr<ChatTemplate> encoding = make_encoding();
  const std::string question = R"({"role": "user", "content": "q"})";
  const auto is_reasoning = [&](const Conversation& conversation) {
    return encoding->completion_parser(conversation)->is_reasoning();
  };
  EXPECT_TRUE(is_reasoning({.messages_json = "[" + question + "]"}));
  EXPECT_FALSE(is_reasoning({.messages_json = "[" + question + "]", .kwargs_json = R"({"thinking": false})"}));
  Conversation continued{.messages_json = "[" + question + R"(, {"role": "assistant", "content": "\n"}])",
                         .add_generation_prompt = false,
                         .continue_final_message = true};
  const std::unique_ptr<CompletionParser> content = encoding->completion_parser(continued);
  EXPECT_FALSE(content->is_reasoning());
  CompletionDelta delta;
  content->push("\nx", delta);
  EXPECT_EQ(delta.content, "\nx");
  continued.messages_json = "[" + question + R"(, {"role": "assistant", "reasoning_content": "r"}])";
  EXPECT_TRUE(is_reasoning(continued));
  continued.messages_json = "[" + question + "]";
  EXPECT_FALSE(encoding->render(continued));
}

}  // namespace
}  // namespace thalweg::text::deepseek_v41
