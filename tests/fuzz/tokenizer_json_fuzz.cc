// Any bytes as tokenizer.json (and, after a line of its own, tokenizer_config.json): refused in words or a tokenizer
// that keeps its promises on a few texts.
#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "fuzz_target.h"
#include "text/tokenizer.h"
#include "text/utf8.h"

using thalweg::text::Tokenizer;

namespace {

constexpr std::string_view kSeparator = "\n---\n";

void check_tokenizer(const Tokenizer& tokenizer) {
  CHECK(tokenizer.vocab_size() > 0);
  for (const std::string_view text : {"", "ab ab", " <s>a\n", "\xE2\x82 \xF0\x9F\x98\x80 12"}) {
    for (const bool parse_special : {false, true}) {
      const auto ids = tokenizer.encode(text, {.parse_special = parse_special});
      if (!ids) continue;  // a pattern may give up on a text
      CHECK(std::ranges::all_of(*ids, [&](auto id) { return id >= 0; }));
      const auto decoded = tokenizer.decode(*ids, false);
      if (!decoded) continue;  // a post-processor may name ids that are no tokens
      std::string valid;
      thalweg::text::append_valid_utf8(*decoded, valid);
      CHECK(valid == *decoded);
    }
  }
  for (const std::int32_t id : tokenizer.special_ids()) {
    CHECK(tokenizer.is_special(id));
    CHECK(!tokenizer.token_bytes(id).empty());
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const std::size_t at = input.find(kSeparator);
  const std::string_view config = at == input.npos ? std::string_view() : input.substr(at + kSeparator.size());
  const auto tokenizer = Tokenizer::from_json(input.substr(0, at), config);
  if (tokenizer) {
    check_tokenizer(**tokenizer);
  } else {
    CHECK(!tokenizer.error().message.empty());
  }
  return 0;
}

std::vector<std::string> thalweg::fuzz::seeds() {
  const std::string added =
      R"("added_tokens":[{"id":6,"content":"<s>","single_word":false,"lstrip":false,"rstrip":true,"normalized":false,"special":true}],)";
  const std::string byte_level =
      R"({"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,"use_regex":true})";
  const std::string model =
      R"("model":{"type":"BPE","unk_token":null,"vocab":{"a":0,"b":1,"Ġ":2,"ab":3,"Ġab":4,"<0x0A>":5},"merges":["a b",["Ġ","ab"]]})";
  return {
      R"({"version":"1.0",)" + added + R"("normalizer":{"type":"NFC"},"pre_tokenizer":)" + byte_level +
          R"(,"post_processor":{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"<s>","type_id":0}},)"
          R"({"Sequence":{"id":"A","type_id":0}}],"pair":[],"special_tokens":{"<s>":{"id":"<s>","ids":[6],"tokens":["<s>"]}}},)"
          R"("decoder":)" +
          byte_level + "," + model + "}" + std::string(kSeparator) +
          R"({"bos_token":{"content":"<s>"},"eos_token":"ab","add_bos_token":true,"add_eos_token":false})",
      R"({"version":"1.0",)" + added +
          R"("normalizer":{"type":"Sequence","normalizers":[{"type":"Prepend","prepend":"▁"},)"
          R"({"type":"Replace","pattern":{"String":" "},"content":"▁"}]},"pre_tokenizer":null,"post_processor":null,)"
          R"("decoder":{"type":"Sequence","decoders":[{"type":"Replace","pattern":{"String":"▁"},"content":" "},)"
          R"({"type":"ByteFallback"},{"type":"Fuse"},{"type":"Strip","content":" ","start":1,"stop":0}]},)" +
          model + "}",
      R"x({"pre_tokenizer":{"type":"Sequence","pretokenizers":[{"type":"Split","pattern":{"Regex":"\\p{N}{1,3}|\\s+(?!\\S)"},)x"
      R"("behavior":"Isolated","invert":false},{"type":"Digits","individual_digits":true},{"type":"Metaspace",)"
      R"("replacement":"▁","prepend_scheme":"first","split":true}]},"decoder":{"type":"Metaspace","replacement":"▁",)"
      R"("prepend_scheme":"first"},"model":{"type":"Unigram","unk_id":0,"vocab":[["<unk>",0.0],["a",-1.0],["▁a",-0.5]],)"
      R"("byte_fallback":false}})",
      R"({"model":{"type":"WordLevel","vocab":{"a":0,"[UNK]":1},"unk_token":"[UNK]"}})",
  };
}
