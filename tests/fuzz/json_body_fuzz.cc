// Any bytes as the JSON body of each route that takes one.
#include <string_view>

#include "base/check.h"
#include "fuzz_target.h"
#include "server/openai_request.h"

using namespace thalweg::server;

namespace {

constexpr std::int32_t kVocabSize = 1000;

template <typename T>
void check(const ApiResult<T>& result) {
  if (result) return;
  CHECK_EQ(result.error().status, 400);
  CHECK(!result.error().message.empty());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view body(reinterpret_cast<const char*>(data), size);
  const ServerOptions options;
  check(parse_chat_request(body, options, kVocabSize));
  check(parse_completion_request(body, options, kVocabSize));
  check(parse_tokenize_request(body, options));
  check(parse_detokenize_request(body, options, kVocabSize));
  return 0;
}

std::vector<std::string> thalweg::fuzz::seeds() {
  return {
      R"({"model":"m","messages":[{"role":"user","content":"hi"},{"role":"assistant","content":null,"tool_calls":)"
      R"([{"id":"1","type":"function","function":{"name":"f","arguments":"{\"a\":1}"}}]},{"role":"tool",)"
      R"("tool_call_id":"1","content":[{"type":"text","text":"x"}]}],"tools":[{"type":"function","function":)"
      R"({"name":"f","parameters":{"type":"object"}}}],"tool_choice":"auto","stream":true,"stream_options":)"
      R"({"include_usage":true},"logprobs":true,"top_logprobs":5,"chat_template_kwargs":{"enable_thinking":false}})",
      R"({"prompt":"text","max_tokens":5,"temperature":0.5,"top_p":0.9,"top_k":-1,"min_p":0.1,"n":2,"seed":-1,)"
      R"("stop":["a","b"],"logit_bias":{"5":-100.0},"frequency_penalty":2,"presence_penalty":-2,)"
      R"("repetition_penalty":1.1,"echo":true,"logprobs":5,"bad_words":["x"],"allowed_token_ids":[1,2]})",
      R"({"prompt":[[1,2],[3]],"ignore_eos":true,"min_tokens":1,"stop_token_ids":[7],"cache_salt":"s",)"
      R"("priority":3,"truncate_prompt_tokens":-1,"return_token_ids":true,"prompt_logprobs":1})",
      R"({"prompt":["\u00e9\ud83d\ude00\u0000","b"],"add_special_tokens":false,"suffix":null,"best_of":1})",
      R"({"content":"x","add_special":true,"with_pieces":true,"tokens":[1,2,3]})",
      "\xEF\xBB\xBF {\"a\":[[[[[[{\"b\":1e400,\"b\":-0.0,\"c\":99999999999999999999}]]]]]]}",
  };
}
