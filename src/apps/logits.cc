#include <fmt/format.h>

#include <boost/json.hpp>
#include <fstream>
#include <string>
#include <vector>

#include "apps/commands.h"
#include "apps/loaded_model.h"
#include "apps/progress_bar.h"
#include "base/check.h"
#include "base/log.h"
#include "weights/safetensors_writer.h"
#include "worker/logits_run.h"

namespace thalweg::apps {
namespace {

struct Prompt {
  std::string id;
  std::vector<std::int32_t> ids;
};

Result<Prompt> parse_prompt(const std::string& line, const std::string& where) {
  boost::system::error_code error;
  const boost::json::value value = boost::json::parse(line, error);
  const boost::json::object* object = error ? nullptr : value.if_object();
  const boost::json::string* id = object == nullptr                      ? nullptr
                                  : object->if_contains("id") != nullptr ? object->at("id").if_string()
                                                                         : nullptr;
  const boost::json::array* ids =
      id == nullptr || object->if_contains("ids") == nullptr ? nullptr : object->at("ids").if_array();
  if (ids == nullptr) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{}: needs {{\"id\": \"...\", \"ids\": [...]}}, found {:.60}", where, line), "input");
  }
  Prompt prompt{std::string(*id), {}};
  for (const boost::json::value& entry : *ids) {
    const auto number = entry.to_number<std::int32_t>(error);
    if (error) {
      return fail(ErrorCode::kInvalidArgument, fmt::format("{}: an entry of \"ids\" is not a token id", where),
                  "input");
    }
    prompt.ids.push_back(number);
  }
  if (prompt.ids.empty()) return fail(ErrorCode::kInvalidArgument, fmt::format("{}: \"ids\" is empty", where), "input");
  return prompt;
}

Result<std::vector<Prompt>> read_prompts(const std::string& path) {
  std::ifstream stream(path);
  if (!stream) return fail(ErrorCode::kNotFound, fmt::format("cannot read {}", path), "input");
  std::vector<Prompt> prompts;
  std::size_t number = 0;
  for (std::string line; std::getline(stream, line);) {
    ++number;
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    auto prompt = parse_prompt(line, fmt::format("{}:{}", path, number));
    if (!prompt) return std::unexpected(prompt.error());
    prompts.push_back(std::move(*prompt));
  }
  if (prompts.empty()) return fail(ErrorCode::kInvalidArgument, fmt::format("{} holds no prompts", path), "input");
  return prompts;
}

models::Numerics numerics_of(const std::string& name) {
  if (name == "fp32") return models::Numerics::kFp32;
  if (name == "fast") return models::Numerics::kFast;
  CHECK_EQ(name, "reference");
  return models::Numerics::kReference;
}

models::LoadOptions load_options(const LogitsCommand& command) {
  models::LoadOptions options;
  options.kv_dtype = kv_dtype_of(command.kv_dtype);
  options.numerics = numerics_of(command.numerics);
  options.prefill_tail_tokens = command.replay_tokens.value_or(-1);
  return options;
}

/// Whoever asks for a replay must not be shown logits without it.
Status check_replay(const LogitsCommand& command, const models::ModelInfo& info) {
  const std::int32_t wanted = command.replay_tokens.value_or(0);
  if (wanted == 0 || info.prefill_tail_tokens == wanted) return {};
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("replay is {}, but this {} model computes all layers for every token; leave it off", wanted,
                          info.architecture),
              "replay");
}

Status write_logits(const LogitsCommand& command, BareModel& bare, const std::vector<Prompt>& prompts) {
  const std::int64_t vocab_size = bare.model->info().vocab_size;
  std::vector<weights::SafetensorsWriter::Tensor> entries;
  std::size_t longest = 0;
  for (const Prompt& prompt : prompts) {
    entries.push_back({prompt.id, device::DType::kF32, {static_cast<std::int64_t>(prompt.ids.size()), vocab_size}});
    longest = std::max(longest, prompt.ids.size());
  }
  worker::LogitsOptions options;
  options.chunk = command.chunk;
  options.decode_from = command.decode_from.value_or(-1);
  options.prompt_tail_only = command.replay_tokens.has_value();
  options.num_hit_tokens = command.prefix_hit;
  auto run = worker::LogitsRun::create(*bare.model, bare.stream, static_cast<std::int32_t>(longest), options);
  if (!run) return std::unexpected(run.error());
  auto writer = weights::SafetensorsWriter::create(command.output, entries);
  if (!writer) return std::unexpected(writer.error());

  ProgressBar bar("logits");
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    const auto sink = [&](std::int32_t, std::int32_t num_tokens, const float* logits) {
      const auto num_values = static_cast<std::size_t>(num_tokens * vocab_size);
      return writer->append(std::as_bytes(std::span(logits, num_values)));
    };
    if (auto status = run->run(prompts[i].ids, sink); !status) {
      return fail(status.error().code, fmt::format("{}: {}", prompts[i].id, status.error().message), "input");
    }
    bar.update(static_cast<double>(i + 1) / static_cast<double>(prompts.size()),
               fmt::format("{}/{}", i + 1, prompts.size()));
  }
  if (run->num_partial_tokens() > 0) {
    log(LogLevel::kWarning, "the logits of {} tokens are NaN: they lie before the last {} of their prompt",
        run->num_partial_tokens(), bare.model->info().prefill_tail_tokens);
  }
  return writer->finish();
}

}  // namespace

int run(const LogitsCommand& command) {
  const auto prompts = read_prompts(command.input);
  if (!prompts) return report(prompts.error());
  auto bare = load_bare_model(command.model, command.num_threads, load_options(command));
  if (!bare) return report(bare.error());
  if (auto status = check_replay(command, bare->model->info()); !status) return report(status.error());
  if (auto status = write_logits(command, *bare, *prompts); !status) return report(status.error());
  return 0;
}

}  // namespace thalweg::apps
