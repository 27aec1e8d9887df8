#include <fmt/format.h>

#include <boost/json.hpp>
#include <fstream>
#include <iostream>
#include <iterator>
#include <string>
#include <vector>

#include "apps/commands.h"
#include "apps/loaded_model.h"
#include "apps/offline_batch.h"
#include "apps/progress_bar.h"

namespace thalweg::apps {
namespace {

constexpr std::size_t kWindow = 256;  // lines prepared and submitted ahead of the one being written

void set_default(boost::json::object& body, std::string_view key, boost::json::value value) {
  if (!body.contains(key)) body.emplace(key, std::move(value));
}

/// A line as the HTTP routes would take it, with the command line's sampling where the line says nothing.
BatchBody body_of(const std::string& line, const GenerateCommand& command) {
  boost::system::error_code error;
  boost::json::value value = boost::json::parse(line, error);
  if (error || !value.is_object()) return {.json = line};  // the server's parser words the refusal
  boost::json::object& body = value.as_object();
  if (command.chat && body.contains("prompt") && body.at("prompt").is_string()) {
    body["messages"] = boost::json::array{{{"role", "user"}, {"content", body.at("prompt")}}};
    body.erase("prompt");
  }
  const SamplingParams& sampling = command.sampling;
  if (!body.contains("max_completion_tokens") && !body.contains("n_predict")) {
    set_default(body, "max_tokens", command.max_tokens);
  }
  set_default(body, "temperature", sampling.temperature);
  set_default(body, "top_k", sampling.top_k);
  set_default(body, "top_p", sampling.top_p);
  set_default(body, "min_p", sampling.min_p);
  set_default(body, "repetition_penalty", sampling.repetition_penalty);
  set_default(body, "presence_penalty", sampling.presence_penalty);
  set_default(body, "frequency_penalty", sampling.frequency_penalty);
  set_default(body, "seed", sampling.seed.value_or(0));
  return {body.contains("messages") ? server::GenerateRoute::kChat : server::GenerateRoute::kCompletion,
          boost::json::serialize(body)};
}

boost::json::object logprob_of(const TokenLogprob& token) {
  return {{"token_id", token.token_id}, {"logprob", token.logprob}};
}

/// Of each token; the first of a prompt has none, and says null.
boost::json::array logprobs_of(const std::vector<server::TokenEntry>& entries) {
  boost::json::array list;
  for (const server::TokenEntry& entry : entries) {
    boost::json::object one = logprob_of(entry.chosen);
    if (!entry.has_logprob) one["logprob"] = nullptr;
    if (!entry.top.empty()) {
      boost::json::array& top = one["top_logprobs"].emplace_array();
      for (const TokenLogprob& token : entry.top) top.push_back(logprob_of(token));
    }
    list.push_back(std::move(one));
  }
  return list;
}

std::string json_of(std::size_t line, const BatchAnswer& answer) {
  boost::json::object object{{"index", line}};
  if (!answer.error.empty()) object["error"] = answer.error;
  boost::json::array choices;
  for (const BatchChoice& choice : answer.choices) {
    boost::json::object one{{"text", choice.text},
                            {"token_ids", boost::json::value_from(choice.token_ids)},
                            {"finish_reason", choice.finish_reason}};
    if (!choice.entries.empty()) one["logprobs"] = logprobs_of(choice.entries);
    if (!choice.prompt_entries.empty()) one["prompt_logprobs"] = logprobs_of(choice.prompt_entries);
    choices.push_back(std::move(one));
  }
  object["choices"] = std::move(choices);
  object["usage"] = {{"prompt_tokens", answer.usage.num_prompt_tokens},
                     {"completion_tokens", answer.usage.num_output_tokens}};
  return boost::json::serialize(object);
}

Result<std::vector<BatchBody>> read_bodies(const GenerateCommand& command) {
  std::ifstream file;
  if (command.input != "-") {
    file.open(command.input);
    if (!file) return fail(ErrorCode::kNotFound, fmt::format("cannot read {}", command.input), "input");
  }
  std::istream& stream = command.input == "-" ? std::cin : file;
  std::vector<BatchBody> bodies;
  for (std::string line; std::getline(stream, line);) {
    if (line.find_first_not_of(" \t\r") != std::string::npos) bodies.push_back(body_of(line, command));
  }
  return bodies;
}

}  // namespace

int run(const GenerateCommand& command) {
  const auto bodies = read_bodies(command);
  if (!bodies) return report(bodies.error());
  ProgressBar loading("loading");
  auto served = load_served_model(command.engine, [&](double fraction) { loading.update(fraction); });
  if (!served) return report(served.error());
  std::ofstream file;
  if (command.output != "-") {
    file.open(command.output);
    if (!file) return report({ErrorCode::kNotFound, fmt::format("cannot write {}", command.output), "output"});
  }
  std::ostream& stream = command.output == "-" ? std::cout : file;

  server::ServerOptions options;
  options.accept_any_model_name = true;
  options.served_model_names = {served->engine->model().name};
  const server::ServedModel model{options, served->engine->model(), *served->text.tokenizer,
                                  served->text.chat_template.get()};
  ProgressBar bar("generating");
  bool failed = false;
  run_batch(*served->engine, model, *bodies, kWindow, [&](std::size_t line, const BatchAnswer& answer) {
    failed = failed || !answer.error.empty();
    stream << json_of(line, answer) << '\n';
    bar.update(static_cast<double>(line + 1) / static_cast<double>(bodies->size()),
               fmt::format("{}/{}", line + 1, bodies->size()));
  });
  stream.flush();
  served->engine->close(0.0);
  if (!stream)
    return report({ErrorCode::kResourceExhausted, fmt::format("writing {} failed", command.output), "output"});
  return failed ? 1 : 0;
}

}  // namespace thalweg::apps
