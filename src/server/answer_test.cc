// Token events to deltas to JSON: the state machine of a choice, and that a body equals the fold of its stream.
#include "server/answer.h"

#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <map>

#include "server/choice_stream.h"
#include "server/fake_engine.h"
#include "server/json_writer.h"

namespace thalweg::server {
namespace {
namespace json = boost::json;

class RecordingExchange final : public Exchange {
 public:
  HttpRequest& request() override { return request_; }
  void set_route(std::string_view /*route*/) override {}
  void respond(HttpResponse response) override { response_ = std::move(response); }
  void begin_stream() override { ++num_begun; }
  void write_stream(std::string_view bytes) override { events.emplace_back(bytes); }
  void flush() override {}
  void end_stream() override { ++num_ended; }
  void set_on_abandoned(std::move_only_function<void()> /*callback*/) override {}

  HttpRequest request_;
  HttpResponse response_;
  std::vector<std::string> events;
  int num_begun = 0;
  int num_ended = 0;
};

std::vector<ChoiceDelta> deltas_of(const AnswerOptions& options, const EndRule& rule, const PromptPart& prompt,
                                   const std::vector<std::int32_t>& ids, FinishReason reason,
                                   std::size_t tokens_per_event = 1) {
  const ByteTokenizer tokenizer;
  ChoiceStream choice(0, tokenizer, options, rule);
  std::vector<ChoiceDelta> deltas;
  choice.start(prompt, deltas);
  for (std::size_t i = 0; i < ids.size(); i += tokens_per_event) {
    TokenEvent event;
    for (std::size_t k = i; k < std::min(ids.size(), i + tokens_per_event); ++k) {
      event.token_ids.push_back(ids[k]);
      event.logprobs.push_back({.chosen = {.token_id = ids[k], .logprob = -0.25F, .rank = 1}, .top = {}});
    }
    choice.push(std::move(event), deltas);
  }
  choice.finish({.reason = reason}, deltas);
  return deltas;
}

std::string text_of(const std::vector<ChoiceDelta>& deltas) {
  std::string text;
  for (const ChoiceDelta& delta : deltas) text += delta.text;
  return text;
}

const EndRule kEnd{.token_ids = {ByteTokenizer::kEnd}};

TEST(ChoiceStream, StartContentFinish) {
  const auto deltas = deltas_of({.is_chat = true}, kEnd, {}, {'a', 'b', ByteTokenizer::kEnd}, FinishReason::kStop);
  ASSERT_EQ(deltas.size(), 4U);
  EXPECT_TRUE(deltas[0].is_start);
  EXPECT_EQ(deltas[1].text, "a");
  EXPECT_EQ(deltas[2].text, "b");
  ASSERT_TRUE(deltas[3].finish);
  EXPECT_TRUE(deltas[3].text.empty());
  EXPECT_EQ(deltas[3].finish->reason, "stop");
  EXPECT_TRUE(std::holds_alternative<std::monostate>(deltas[3].finish->stop_reason));
}

TEST(ChoiceStream, HeldTextMakesNoChunk) {
  const AnswerOptions options{.is_chat = true, .stop = {"bcd"}};
  const auto deltas = deltas_of(options, kEnd, {}, byte_ids("abcx"), FinishReason::kLength);
  for (std::size_t i = 1; i + 1 < deltas.size(); ++i) EXPECT_FALSE(deltas[i].text.empty());
  EXPECT_EQ(text_of(deltas), "abcx");
  EXPECT_EQ(deltas.back().finish->reason, "length");
}

TEST(ChoiceStream, StopStringEndsOnceWhereverChunksFall) {
  const AnswerOptions options{.is_chat = true, .stop = {"STOP", "OP"}};
  for (const std::size_t tokens_per_event : {1U, 2U, 3U, 7U, 20U}) {
    const auto deltas =
        deltas_of(options, kEnd, {}, byte_ids("xxSTSTOPyyyyyyy"), FinishReason::kLength, tokens_per_event);
    EXPECT_EQ(text_of(deltas), "xxST");
    int num_finished = 0;
    for (const ChoiceDelta& delta : deltas) num_finished += delta.finish.has_value();
    EXPECT_EQ(num_finished, 1);
    EXPECT_EQ(std::get<std::string>(deltas.back().finish->stop_reason), "STOP");
  }
}

TEST(ChoiceStream, StopInsideOneTokenKeepsTheTextBefore) {
  const AnswerOptions options{.is_chat = true, .stop = {"STOP"}};
  EXPECT_EQ(text_of(deltas_of(options, kEnd, {}, {'x', ByteTokenizer::kStopMid}, FinishReason::kLength)), "xa");
}

TEST(ChoiceStream, IncludedStopStaysInTheText) {
  const AnswerOptions options{.is_chat = true, .include_stop = true, .stop = {"STOP"}};
  EXPECT_EQ(text_of(deltas_of(options, kEnd, {}, byte_ids("xSTOPy"), FinishReason::kLength)), "xSTOP");
}

TEST(ChoiceStream, CharactersAreWhole) {
  const std::string text = "a\xF0\x9F\x91\xA9\xE2\x80\x8D\xF0\x9F\x91\xA7\xE0\xB8\x81 ";
  for (const ChoiceDelta& delta : deltas_of({.is_chat = true}, kEnd, {}, byte_ids(text), FinishReason::kLength)) {
    EXPECT_EQ(to_valid_utf8(delta.text), delta.text);
    EXPECT_EQ(delta.text.find("\xEF\xBF\xBD"), std::string::npos);
  }
  EXPECT_EQ(text_of(deltas_of({.is_chat = true}, kEnd, {}, byte_ids(text), FinishReason::kLength)), text);
  // One lone continuation byte is one replacement and holds nothing up.
  EXPECT_EQ(text_of(deltas_of({.is_chat = true}, kEnd, {}, byte_ids("\x80 b"), FinishReason::kLength)),
            "\xEF\xBF\xBD b");
  // Half a character at the end.
  EXPECT_EQ(text_of(deltas_of({.is_chat = true}, kEnd, {}, byte_ids("a\xE2\x82"), FinishReason::kLength)),
            "a\xEF\xBF\xBD");
}

TEST(ChoiceStream, LogprobsCoverTheReleasedText) {
  const AnswerOptions options{.is_chat = true, .logprobs = true, .stop = {"bcd"}};
  const ByteTokenizer tokenizer;
  std::string bytes;
  for (const ChoiceDelta& delta : deltas_of(options, kEnd, {}, byte_ids("abc\xE2\x82\xAC!"), FinishReason::kLength)) {
    std::string chunk;
    for (const TokenEntry& entry : delta.entries) chunk += tokenizer.token_bytes(entry.chosen.token_id);
    EXPECT_EQ(chunk, delta.text);
    bytes += chunk;
  }
  EXPECT_EQ(bytes, "abc\xE2\x82\xAC!");
}

TEST(ChoiceStream, LogprobsOfAStopAreLeftOut) {
  const AnswerOptions options{.is_chat = true, .logprobs = true, .stop = {"STOP", "STOPPED"}};
  const ByteTokenizer tokenizer;
  for (const std::string text : {"xyzSTOP", "xyzSTOPxx"}) {
    std::string bytes;
    const auto deltas = deltas_of(options, kEnd, {}, byte_ids(text), FinishReason::kLength);
    for (const ChoiceDelta& delta : deltas) {
      for (const TokenEntry& entry : delta.entries) bytes += tokenizer.token_bytes(entry.chosen.token_id);
    }
    EXPECT_EQ(bytes, "xyz");
    EXPECT_EQ(text_of(deltas), "xyz");
    EXPECT_EQ(std::get<std::string>(deltas.back().finish->stop_reason), "STOP");
  }
}

TEST(ChoiceStream, TokenIdsAreCompleteAndImmediate) {
  const AnswerOptions options{.is_chat = true, .return_token_ids = true, .stop = {"zz"}};
  const std::vector<std::int32_t> ids = {'a', 'z', 0xE2, 0x82, ByteTokenizer::kEnd};
  std::vector<std::int32_t> seen;
  for (const ChoiceDelta& delta : deltas_of(options, kEnd, {}, ids, FinishReason::kStop)) {
    seen.insert(seen.end(), delta.token_ids.begin(), delta.token_ids.end());
  }
  EXPECT_EQ(seen, ids);
}

TEST(ChoiceStream, StreamIntervalCollectsTokens) {
  const AnswerOptions options{.is_chat = true, .stream_interval = 4};
  const auto deltas = deltas_of(options, kEnd, {}, byte_ids("abcdefghij"), FinishReason::kLength);
  std::vector<std::string> texts;
  for (const ChoiceDelta& delta : deltas) texts.push_back(delta.text);
  EXPECT_EQ(texts, (std::vector<std::string>{"", "a", "bcde", "fghi", "j", ""}));
}

TEST(ChoiceStream, MinTokensMakeAnEndTokenOrdinary) {
  const AnswerOptions options{.is_chat = true, .skip_special_tokens = false};
  const EndRule rule{.token_ids = {'x'}, .min_tokens = 2};
  EXPECT_EQ(text_of(deltas_of(options, rule, {}, byte_ids("xax"), FinishReason::kStop)), "xa");
}

struct Folded {
  std::map<std::int64_t, std::string> text, finish;
  std::map<std::int64_t, std::vector<std::int64_t>> token_ids;
  std::map<std::int64_t, json::array> logprobs;
  json::value usage;
  int num_role_chunks = 0;
};

Folded fold_chat_stream(const std::vector<std::string>& events) {
  Folded folded;
  EXPECT_EQ(events.back(), "data: [DONE]\n\n");
  for (std::size_t i = 0; i + 1 < events.size(); ++i) {
    EXPECT_TRUE(events[i].starts_with("data: {") && events[i].ends_with("}\n\n")) << events[i];
    EXPECT_EQ(events[i].find('\n'), events[i].size() - 2);
    const json::value chunk = json::parse(events[i].substr(6));
    EXPECT_EQ(chunk.at("object"), "chat.completion.chunk");
    if (chunk.at("choices").as_array().empty()) folded.usage = chunk.at("usage");
    for (const json::value& choice : chunk.at("choices").as_array()) {
      const std::int64_t index = choice.at("index").as_int64();
      const json::object& delta = choice.at("delta").as_object();
      folded.num_role_chunks += delta.contains("role");
      if (delta.contains("content")) folded.text[index] += delta.at("content").as_string();
      if (choice.at("finish_reason").is_string()) {
        EXPECT_TRUE(delta.empty());
        EXPECT_FALSE(folded.finish.contains(index));
        folded.finish[index] = choice.at("finish_reason").as_string();
      }
      if (choice.at("logprobs").is_object()) {
        for (const json::value& entry : choice.at("logprobs").at("content").as_array()) {
          folded.logprobs[index].push_back(entry);
        }
      }
      if (choice.as_object().contains("token_ids")) {
        for (const json::value& id : choice.at("token_ids").as_array())
          folded.token_ids[index].push_back(id.as_int64());
      }
    }
  }
  return folded;
}

TEST(Answer, BodyIsTheFoldOfTheStream) {
  const ByteTokenizer tokenizer;
  const AnswerOptions options{.is_chat = true,
                              .stream = true,
                              .include_usage = true,
                              .logprobs = true,
                              .return_token_ids = true,
                              .stop = {"ZZ"}};
  const AnswerHead head{.id = "chatcmpl-1", .model = "m\"x", .created = 5, .options = options};
  auto streamed = std::make_shared<RecordingExchange>();
  auto whole = std::make_shared<RecordingExchange>();
  const auto stream = make_stream_writer(head, tokenizer, streamed);
  const auto body = make_body_writer(head, tokenizer, whole);

  const PromptPart prompt{.ids = {1, 2, 3}};
  std::vector<ChoiceStream> choices;
  for (int i = 0; i < 2; ++i) choices.emplace_back(i, tokenizer, options, kEnd);
  const auto write = [&](std::vector<ChoiceDelta> deltas) {
    for (const ChoiceDelta& delta : deltas) {
      stream->add(delta, {});
      body->add(delta, {});
    }
  };
  const std::string texts[2] = {"caf\xC3\xA9 \"q\"\n\x01", "stop ZZ here"};
  for (int i = 0; i < 2; ++i) {
    std::vector<ChoiceDelta> deltas;
    choices[static_cast<std::size_t>(i)].start(prompt, deltas);
    write(std::move(deltas));
  }
  for (std::size_t t = 0; t < 12; ++t) {
    for (std::size_t i = 0; i < 2; ++i) {
      if (t >= texts[i].size() || choices[i].finished()) continue;
      std::vector<ChoiceDelta> deltas;
      TokenEvent event{.token_ids = {static_cast<unsigned char>(texts[i][t])}};
      event.logprobs.push_back({.chosen = {.token_id = event.token_ids[0], .logprob = -1.0F / 3}, .top = {}});
      choices[i].push(std::move(event), deltas);
      write(std::move(deltas));
    }
  }
  for (ChoiceStream& choice : choices) {
    std::vector<ChoiceDelta> deltas;
    choice.finish({.reason = FinishReason::kLength}, deltas);
    write(std::move(deltas));
  }
  const Usage usage{.num_prompt_tokens = 3, .num_cached_tokens = 1, .num_output_tokens = 17};
  stream->complete(usage);
  body->complete(usage);

  EXPECT_EQ(streamed->num_begun, 1);
  EXPECT_EQ(streamed->num_ended, 1);
  const Folded folded = fold_chat_stream(streamed->events);
  EXPECT_EQ(folded.num_role_chunks, 2);
  const json::value parsed = json::parse(whole->response_.body);
  EXPECT_EQ(parsed.at("object"), "chat.completion");
  EXPECT_EQ(parsed.at("usage"), folded.usage);
  EXPECT_EQ(parsed.at("prompt_token_ids"), (json::array{1, 2, 3}));
  EXPECT_EQ(folded.text.at(0), texts[0]);
  EXPECT_EQ(folded.text.at(1), "stop ");
  for (const json::value& choice : parsed.at("choices").as_array()) {
    const std::int64_t index = choice.at("index").as_int64();
    EXPECT_EQ(choice.at("message").at("content").as_string(), folded.text.at(index));
    EXPECT_EQ(choice.at("finish_reason").as_string(), folded.finish.at(index));
    EXPECT_EQ(choice.at("token_ids"), json::value_from(folded.token_ids.at(index)));
    EXPECT_EQ(choice.at("logprobs").at("content"), folded.logprobs.at(index));
  }
  EXPECT_EQ(parsed.at("choices").at(1).at("stop_reason"), "ZZ");
}

TEST(Answer, ErrorBeforeAndAfterTheFirstPart) {
  const ByteTokenizer tokenizer;
  const AnswerHead head{.id = "x", .options = {.is_chat = true, .stream = true}};
  const ApiError error(500, "internal", "broken");
  auto early = std::make_shared<RecordingExchange>();
  make_stream_writer(head, tokenizer, early)->fail(error);
  EXPECT_EQ(early->response_.status, 500);
  EXPECT_TRUE(early->events.empty());

  auto late = std::make_shared<RecordingExchange>();
  const auto writer = make_stream_writer(head, tokenizer, late);
  writer->add({.is_start = true}, {});
  writer->fail(error);
  ASSERT_EQ(late->events.size(), 3U);
  EXPECT_EQ(json::parse(late->events[1].substr(6)).at("error").at("message"), "broken");
  EXPECT_EQ(late->events[2], "data: [DONE]\n\n");
}

TEST(Answer, CompletionLogprobsWithEcho) {
  const ByteTokenizer tokenizer;
  const AnswerOptions options{.logprobs = true, .num_top_logprobs = 1, .echo = true};
  const AnswerHead head{.id = "x", .options = options};
  const PromptPart prompt{
      .ids = {ByteTokenizer::kBos, 'a', 0xC3, 0xA9},
      .echo = "a\xC3\xA9",
      .logprobs = std::vector<TokenLogprobs>{{.chosen = {.token_id = 'a', .logprob = -1}, .top = {}},
                                             {.chosen = {.token_id = 0xC3, .logprob = -2}, .top = {}},
                                             {.chosen = {.token_id = 0xA9, .logprob = -3}, .top = {}}}};
  auto exchange = std::make_shared<RecordingExchange>();
  const auto body = make_body_writer(head, tokenizer, exchange);
  for (ChoiceDelta& delta : deltas_of(options, kEnd, prompt, {'b', ByteTokenizer::kEnd}, FinishReason::kStop)) {
    body->add(std::move(delta), {});
  }
  body->complete({});
  const json::value choice = json::parse(exchange->response_.body).at("choices").at(0);
  EXPECT_EQ(choice.at("text"),
            "a\xC3\xA9"
            "b");
  const json::value& logprobs = choice.at("logprobs");
  EXPECT_EQ(logprobs.at("tokens").as_array().size(), 6U);
  EXPECT_TRUE(logprobs.at("token_logprobs").at(0).is_null());
  EXPECT_EQ(logprobs.at("token_logprobs").at(3).to_number<double>(), -3.0);
  EXPECT_TRUE(logprobs.at("top_logprobs").at(0).is_null());
  EXPECT_EQ(logprobs.at("top_logprobs").at(4).at("b").to_number<double>(), -0.25);
  EXPECT_EQ(logprobs.at("text_offset"), (json::array{0, 0, 1, 2, 2, 3}));
}

TEST(JsonWriter, Strings) {
  std::string out;
  JsonWriter(out).string("a\"\\\n\t\r\x01\x7F\xC3\xA9");
  EXPECT_EQ(out, "\"a\\\"\\\\\\n\\t\\r\\u0001\\u007f\xC3\xA9\"");
  EXPECT_EQ(to_valid_utf8("a\xFF\xC3\xA9\xED\xA0\x80\xC0\xAF"),
            "a\xEF\xBF\xBD\xC3\xA9\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD");
}

TEST(JsonWriter, NumbersThatAreNoneBecomeNull) {
  std::string out;
  JsonWriter(out).number(-INFINITY).raw(",").number(NAN).raw(",").number(-9999.0F);
  EXPECT_EQ(out, "null,null,-9999");
}

}  // namespace
}  // namespace thalweg::server
