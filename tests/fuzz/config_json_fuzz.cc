// Any bytes as config.json and as model.safetensors.index.json.
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "fuzz_target.h"
#include "weights/json_metadata.h"

using namespace thalweg::weights;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  static_cast<void>(parse_weight_map(text, "index.json"));
  const thalweg::Result<JsonMetadata> config = JsonMetadata::parse(text, "config.json");
  if (!config) {
    CHECK(!config.error().message.empty());
    return 0;
  }
  std::size_t sum = 0;
  for (const auto& [key, value] : config->describe()) {
    sum += value.size();
    sum += config->get_int(key).value_or(0) != 0;
    sum += config->get_float(key).value_or(0) != 0;
    sum += config->get_bool(key).value_or(false);
    sum += config->get_string(key).value_or("").size();
    sum += config->get_ints(key).value_or(std::vector<std::int64_t>{}).size();
    sum += config->get_floats(key).value_or(std::vector<double>{}).size();
    sum += config->get_strings(key).value_or(std::vector<std::string>{}).size();
    sum += language_model_key(*config, key).size();
  }
  volatile std::size_t kept = sum;
  static_cast<void>(kept);
  return 0;
}

std::vector<std::string> thalweg::fuzz::seeds() {
  return {
      R"({"architectures":["LlamaForCausalLM"],"hidden_size":64,"rope_theta":10000.0,"rms_norm_eps":1e-05,)"
      R"("rope_scaling":{"rope_type":"llama3","factor":32.0},"tie_word_embeddings":true,"eos_token_id":[1,2],)"
      R"("text_config":{"hidden_size":65},"pad":null,"big":18446744073709551615,"a.b":{"c":-1}})",
      R"({"metadata":{"total_size":8},"weight_map":{"a":"one.safetensors","b":"two.safetensors"}})",
      "{}",
  };
}
