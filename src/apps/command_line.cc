#include "apps/command_line.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <set>

#include "apps/completion.h"
#include "apps/config_file.h"
#include "apps/version.h"
#include "base/request_rules.h"

namespace thalweg::apps {
namespace {

constexpr std::string_view kEnvironmentPrefix = "THALWEG_";
constexpr int kMaxSequences = 1 << 14;      // per step; beyond it the logits alone would fill a machine
constexpr int kMaxBatchedTokens = 1 << 20;  // per step
constexpr int kMaxDrafts = 16;              // per sequence and step
constexpr int kDefaultDrafts = 5;           // where only their source is chosen

/// Everything the parser fills; the chosen subcommand decides which member is taken.
struct Fields {
  ServeCommand serve;
  ChatCommand chat;
  GenerateCommand generate;
  LogitsCommand logits;
  PerplexityCommand perplexity;
  PullCommand pull;
  ModelsCommand models;
  InspectCommand inspect;
  MakeTinyCommand make_tiny;
  TokenizeCommand tokenize;
  DoctorCommand doctor;
  std::string draft_source;  // empty: n-grams, if there are to be drafts
  std::string completion_shell;
  std::string config_path;
  bool print_config = false;
};

void add_model(CLI::App& app, std::string& model, bool required = true) {
  auto* option = app.add_option("model", model, "a .gguf file, a Hugging Face folder, or a name that `models` lists");
  if (required) option->required();
}

void add_engine_options(CLI::App& app, EngineOptions& engine, bool model_required) {
  add_model(app, engine.model_path, model_required);
  const std::string group = "Engine";
  app.add_option("--threads", engine.num_threads, "threads that compute; 0: one per usable processor")
      ->check(CLI::Range(0, 1024))
      ->group(group);
  app.add_option("--max-model-len", engine.max_model_len, "most tokens of prompt and output together; 0: the model's")
      ->check(CLI::NonNegativeNumber)
      ->group(group);
  app.add_option("--kv-cache-bytes", engine.kv_cache_bytes, "memory for keys and values, e.g. 512MB; 0: chosen")
      ->transform(CLI::AsSizeValue(false))
      ->check(CLI::NonNegativeNumber)
      ->group(group);
  app.add_option("--max-num-seqs", engine.max_num_seqs, "most sequences in one step; 0: chosen")
      ->check(CLI::Range(0, kMaxSequences))
      ->group(group);
  app.add_option("--max-num-batched-tokens", engine.max_num_batched_tokens, "most tokens in one step; 0: chosen")
      ->check(CLI::Range(0, kMaxBatchedTokens))
      ->group(group);
  app.add_option("--max-queued-requests", engine.max_queued_requests,
                 "requests beyond this wait are refused; 0: chosen")
      ->check(CLI::NonNegativeNumber)
      ->group(group);
  app.add_flag("--prefix-cache,!--no-prefix-cache", engine.enable_prefix_cache, "reuse blocks of shared beginnings")
      ->group(group);
  app.add_option_function<std::string>(
         "--replay",
         [&engine](const std::string& tokens) {
           engine.replay_tokens = tokens == "model" ? -1 : tokens == "off" ? 0 : std::stoi(tokens);
         },
         "of models that rebuild state: last prompt tokens that all layers compute, model: as it was made for, or off: "
         "compute everything, so that tokens depend on the request alone")
      ->type_name("model|off|TOKENS")
      ->check(CLI::IsMember({"model", "off"}) | CLI::Range(1, 1 << 20))
      ->default_str(engine.replay_tokens == 0 ? "off" : "model")
      ->group(group);
}

void add_speculation_options(CLI::App& app, EngineOptions& engine, std::string& draft_source) {
  const std::string group = "Speculation";
  SpeculationOptions& speculation = engine.speculation;
  app.add_option("--spec", draft_source,
                 "where drafts come from: ngram (what the output repeats), draft (the model's own draft model) or off")
      ->check(CLI::IsMember({"ngram", "draft", "off"}))
      ->group(group);
  app.add_option("--draft-tokens,--num-draft-tokens", engine.num_draft_tokens,
                 fmt::format("most drafts per sequence and step; 0: off, or {} with --spec", kDefaultDrafts))
      ->check(CLI::Range(0, kMaxDrafts))
      ->group(group);
  app.add_option_function<std::string>(
         "--spec-accept",
         [&speculation](const std::string& method) {
           speculation.acceptance = method == "match" ? AcceptanceMethod::kMatch : AcceptanceMethod::kRejection;
         },
         "match: tokens never depend on drafts; rejection: only their distribution does not, and more drafts hold")
      ->check(CLI::IsMember({"match", "rejection"}))
      ->default_str("match")
      ->group(group);
  app.add_option("--spec-confidence", speculation.min_survival,
                 "verify drafts while the draft model gives all of them together this probability; 0: always")
      ->check(CLI::Range(0.0, 1.0))
      ->group(group);
  app.add_option_function<double>(
         "--spec-force-acceptance", [&speculation](const double& mean) { speculation.forced_acceptance = mean; },
         "for benchmarks: that many drafts hold on average in a step; the output is not the model's")
      ->check(CLI::Range(0.0, static_cast<double>(kMaxDrafts)))
      ->group(group);
}

/// The range that every door of the engine has for a request's field.
CLI::Validator range_of(std::string_view field) {
  const NumberRule& rule = request_number_rule(field);
  const auto check = [&rule](std::string& text) -> std::string {
    double value = 0.0;
    if (CLI::detail::lexical_cast(text, value) && in_range(rule, rule.is_integer ? value : static_cast<float>(value))) {
      return {};
    }
    return fmt::format("{} is {}, {}", rule.field, text, describe(rule));
  };
  return {check, ""};
}

void add_sampling_options(CLI::App& app, SamplingParams& sampling, std::int32_t& max_tokens) {
  const auto add = [&app](const std::string& name, auto& value, std::string_view field, const std::string& help) {
    app.add_option(name, value, help)->check(range_of(field))->group("Sampling");
  };
  add("--max-tokens", max_tokens, "max_tokens", "most tokens to generate");
  add("--temperature", sampling.temperature, "temperature", "0: greedy");
  add("--top-k", sampling.top_k, "top_k", "0: off");
  add("--top-p", sampling.top_p, "top_p", "1: off");
  add("--min-p", sampling.min_p, "min_p", "0: off");
  add("--repetition-penalty", sampling.repetition_penalty, "repetition_penalty", "1: off");
  add("--presence-penalty", sampling.presence_penalty, "presence_penalty", "0: off");
  add("--frequency-penalty", sampling.frequency_penalty, "frequency_penalty", "0: off");
  app.add_option_function<std::uint64_t>(
         "--seed", [&sampling](const std::uint64_t& seed) { sampling.seed = seed; }, "the same seed, the same tokens")
      ->group("Sampling");
}

void add_serve(CLI::App& root, Fields& fields) {
  auto& app = *root.add_subcommand("serve", "serve a model over HTTP")->group("Serving");
  add_engine_options(app, fields.serve.engine, true);
  add_speculation_options(app, fields.serve.engine, fields.draft_source);
  const std::string group = "Server";
  app.add_option("--host", fields.serve.host, "address to listen on")->capture_default_str()->group(group);
  app.add_option("--port", fields.serve.port, "0: any free one")
      ->capture_default_str()
      ->check(CLI::Range(0, 65535))
      ->group(group);
  app.add_option("--io-threads", fields.serve.num_io_threads, "threads that own connections")
      ->capture_default_str()
      ->check(CLI::Range(1, 64))
      ->group(group);
  app.add_option("--served-model-name", fields.serve.served_model_names, "names clients may ask for")->group(group);
  app.add_flag("--any-model", fields.serve.any_model, "answer whatever model name a request carries")->group(group);
  app.add_option("--base-path", fields.serve.base_path, "prefix that a proxy leaves in paths, e.g. /llm")->group(group);
  app.add_flag("--strict-fields", fields.serve.strict_fields, "refuse requests with fields that are not known")
      ->group(group);
  app.add_option("--log-level", fields.serve.log_level, "debug, info, warning or error")
      ->capture_default_str()
      ->check(CLI::IsMember({"debug", "info", "warning", "error"}))
      ->group(group);
  app.add_option("--api-key", fields.serve.api_keys, "keys that are accepted; none: everybody is")->group(group);
  app.add_option("--admin-key", fields.serve.admin_key, "key of the operator's routes; none: they are off")
      ->group(group);
  app.add_option("--allowed-origin", fields.serve.allowed_origin, "browser origin that may call, or *")->group(group);
  app.add_option("--max-body-bytes", fields.serve.max_body_bytes, "largest request body")
      ->transform(CLI::AsSizeValue(false))
      ->group(group);
  app.add_option("--drain-seconds", fields.serve.drain_s, "how long running requests may go on after SIGTERM")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber)
      ->group(group);
}

void add_chat(CLI::App& root, Fields& fields) {
  auto& app = *root.add_subcommand("chat", "talk to a model in the terminal")->group("Serving");
  add_engine_options(app, fields.chat.engine, true);
  add_speculation_options(app, fields.chat.engine, fields.draft_source);
  app.add_option("--system", fields.chat.system, "system message");
  add_sampling_options(app, fields.chat.sampling, fields.chat.max_tokens);
}

void add_generate(CLI::App& root, Fields& fields) {
  auto& app =
      *root.add_subcommand("generate", "prompts in, completions out, offline and deterministic")->group("Offline");
  fields.generate.engine.replay_tokens = 0;  // or tokens would depend on who ran before
  add_engine_options(app, fields.generate.engine, true);
  add_speculation_options(app, fields.generate.engine, fields.draft_source);
  app.add_option("-i,--input", fields.generate.input, "JSON lines with \"prompt\" or \"messages\"; -: standard input")
      ->required();
  app.add_option("-o,--output", fields.generate.output, "JSON lines; -: standard output")->default_str("-");
  fields.generate.output = "-";
  app.add_flag("--chat", fields.generate.chat, "put each prompt through the chat template as a user message");
  add_sampling_options(app, fields.generate.sampling, fields.generate.max_tokens);
}

void add_logits(CLI::App& root, Fields& fields) {
  auto& app = *root.add_subcommand("logits", "the logits after each token of given id lists")->group("Offline");
  add_model(app, fields.logits.model);
  app.add_option("--input", fields.logits.input, "JSON lines: {\"id\": \"...\", \"ids\": [...]}")->required();
  app.add_option("--output", fields.logits.output, "a safetensors file, one fp32 tensor per id")->required();
  app.add_option("--chunk", fields.logits.chunk, "tokens per prefill step; 0: all at once")
      ->check(CLI::NonNegativeNumber);
  app.add_option_function<std::int32_t>(
         "--decode-from", [&fields](const std::int32_t& from) { fields.logits.decode_from = from; },
         "feed the tokens from this position on one at a time")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--kv-dtype", fields.logits.kv_dtype, "f32, f16 or bf16")
      ->capture_default_str()
      ->check(CLI::IsMember({"f32", "f16", "bf16"}));
  app.add_option_function<std::string>(
         "--replay",
         [&fields](const std::string& tokens) {
           fields.logits.replay_tokens = tokens == "off" ? 0 : std::stoi(tokens);
         },
         "last prompt tokens that all layers compute, or off; logits of those before are NaN")
      ->type_name("off|TOKENS")
      ->check(CLI::IsMember({"off"}) | CLI::Range(1, 1 << 20));
  app.add_option("--prefix-hit", fields.logits.prefix_hit,
                 "compute that many tokens, forget their state, go on as after a hit of the prefix cache")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--numerics", fields.logits.numerics, "how a model of narrow activations rounds")
      ->capture_default_str()
      ->check(CLI::IsMember({"fp32", "reference", "fast"}));
  app.add_option("--threads", fields.logits.num_threads, "0: one per usable processor")->check(CLI::Range(0, 1024));
}

void add_perplexity(CLI::App& root, Fields& fields) {
  auto& app = *root.add_subcommand("perplexity", "how well a model predicts a text file")->group("Offline");
  add_model(app, fields.perplexity.model);
  app.add_option("--input", fields.perplexity.input, "a text file")->required();
  app.add_option("--context", fields.perplexity.context, "tokens per chunk; the second half is scored")
      ->capture_default_str()
      ->check(CLI::Range(8, 1 << 20));
  app.add_option("--chunks", fields.perplexity.max_chunks, "most chunks; 0: all")->check(CLI::NonNegativeNumber);
  app.add_option("--kv-dtype", fields.perplexity.kv_dtype, "f32, f16 or bf16")
      ->capture_default_str()
      ->check(CLI::IsMember({"f32", "f16", "bf16"}));
  app.add_option("--threads", fields.perplexity.num_threads, "0: one per usable processor")->check(CLI::Range(0, 1024));
}

void add_file_commands(CLI::App& root, Fields& fields) {
  const std::string group = "Models";
  auto& pull = *root.add_subcommand("pull", "fetch a model into the cache folder")->group(group);
  pull.add_option("name", fields.pull.name, "a name that `models` lists")->required()->configurable(false);
  pull.add_option("--sha256", fields.pull.sha256, "refuse the file unless it has this sum");
  auto& models = *root.add_subcommand("models", "known models and those in the cache folder")->group(group);
  models.add_flag("--json", fields.models.json, "for programs");
  auto& inspect = *root.add_subcommand("inspect", "a model file's metadata, sizes and tensors")->group(group);
  add_model(inspect, fields.inspect.model, false);
  inspect.add_option("--preset", fields.inspect.preset, "a released model, in place of a file")
      ->check(CLI::IsMember({"deepseek-v4.1-flash"}));
  inspect.add_flag("--tensors", fields.inspect.tensors, "list every tensor");
  inspect.add_flag("--metadata", fields.inspect.metadata, "list every metadata key");
  auto& make_tiny = *root.add_subcommand("make-tiny", "write a small checkpoint of random weights")->group(group);
  make_tiny.add_option("architecture", fields.make_tiny.architecture, "deepseek_v41")
      ->required()
      ->configurable(false)
      ->check(CLI::IsMember({"deepseek_v41"}));
  make_tiny.add_option("folder", fields.make_tiny.folder, "a new or empty folder")->required()->configurable(false);
  make_tiny.add_option("--seed", fields.make_tiny.seed, "the same seed, the same bytes")->capture_default_str();
  make_tiny.add_option("--model-config", fields.make_tiny.model_config, "a config.json with other sizes");
  auto& tokenize = *root.add_subcommand("tokenize", "text to ids, or ids to text")->group(group);
  add_model(tokenize, fields.tokenize.model);
  auto* text = tokenize.add_option("text", fields.tokenize.text, "the text")->configurable(false);
  auto* from_stdin = tokenize.add_flag("--stdin", fields.tokenize.from_stdin, "read the text from standard input");
  auto* decode = tokenize.add_option("--decode", fields.tokenize.decode_ids, "ids to turn into text");
  text->excludes(from_stdin)->excludes(decode);
  from_stdin->excludes(decode);
  tokenize.add_flag("--chat", fields.tokenize.chat, "as a user message through the chat template");
  tokenize.add_flag("--parse-special", fields.tokenize.parse_special, "special tokens in the text count as such");
  tokenize.add_flag("--no-special-tokens", fields.tokenize.no_special_tokens, "add no BOS or EOS");
}

void add_machine_commands(CLI::App& root, Fields& fields) {
  const std::string group = "Machine";
  auto& doctor = *root.add_subcommand("doctor", "this machine and what would be used of it")->group(group);
  add_model(doctor, fields.doctor.model, false);
  auto& completion = *root.add_subcommand("completion", "print a shell completion script")->group(group);
  completion.add_option("shell", fields.completion_shell, "bash, zsh or fish")
      ->required()
      ->configurable(false)
      ->check(CLI::IsMember({"bash", "zsh", "fish"}));
}

/// "--max-num-seqs" as THALWEG_MAX_NUM_SEQS.
std::string environment_name(const CLI::Option& option) {
  std::string name(kEnvironmentPrefix);
  for (const char letter : option.get_single_name()) {
    name += letter == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(letter)));
  }
  return name;
}

bool is_configurable(const CLI::Option& option) {
  return option.get_configurable() && option.get_single_name() != "help" && option.get_single_name() != "config" &&
         option.get_single_name() != "print-config";
}

void set_values(CLI::Option& option, const std::vector<std::string>& values) {
  if (option.get_expected_min() == 0 && values.size() == 1) {  // a flag: its value may turn it off
    option.add_result(option.get_flag_value(option.get_single_name(), values[0]));
  } else {
    option.add_result(values);
  }
  option.run_callback();
}

/// What a command cannot do without, taken out of the parser's own check: environment and file have their say first.
std::vector<CLI::Option*> defer_required(CLI::App& root) {
  std::vector<CLI::Option*> required;
  for (CLI::App* command : root.get_subcommands([](CLI::App*) { return true; })) {
    for (CLI::Option* option : command->get_options()) {
      if (!option->get_required() || !is_configurable(*option)) continue;
      option->required(false);
      required.push_back(option);
    }
  }
  return required;
}

void check_required(CLI::App& command, const std::vector<CLI::Option*>& required) {
  for (const CLI::Option* option : command.get_options()) {
    if (option->count() == 0 && std::ranges::find(required, option) != required.end()) {
      throw CLI::RequiredError(option->get_name());
    }
  }
}

CLI::ConfigError config_mistake(std::string message) { return {std::move(message), CLI::ExitCodes::ConfigError}; }

/// Refuses keys that belong to no command, or in a command's table to another command.
void check_known_keys(const CLI::App& root, const std::string& path, const ConfigFile& file) {
  std::map<std::string, std::set<std::string>> known;
  std::set<std::string> all;
  for (const CLI::App* command : root.get_subcommands({})) {
    for (const CLI::Option* option : command->get_options()) {
      if (!is_configurable(*option)) continue;
      known[command->get_name()].insert(option->get_single_name());
      all.insert(option->get_single_name());
    }
  }
  for (const auto& [key, values] : file.common) {
    if (!all.contains(key)) throw config_mistake(fmt::format("{}: no command has an option '{}'", path, key));
  }
  for (const auto& [command, entries] : file.commands) {
    if (!known.contains(command)) throw config_mistake(fmt::format("{}: no command '{}'", path, command));
    for (const auto& [key, values] : entries) {
      if (!known[command].contains(key)) {
        throw config_mistake(fmt::format("{}: `{}` has no option '{}'", path, command, key));
      }
    }
  }
}

/// Fills what no flag has set, and tells where each value came from.
std::map<std::string, std::string> apply_environment_and_file(const CLI::App& root, CLI::App& command,
                                                              const std::string& path) {
  ConfigFile file;
  if (!path.empty()) {
    auto read = read_config_file(path);
    if (!read) throw config_mistake(read.error().message);
    file = std::move(*read);
    check_known_keys(root, path, file);
  }
  std::map<std::string, std::string> sources;
  for (CLI::Option* option : command.get_options()) {
    if (!is_configurable(*option)) continue;
    const std::string& name = option->get_single_name();
    if (option->count() > 0) {
      sources[name] = "flag";
      continue;
    }
    if (const char* value = std::getenv(environment_name(*option).c_str())) {
      set_values(*option, {value});
      sources[name] = environment_name(*option);
      continue;
    }
    const ConfigValues& own = file.commands[command.get_name()];
    const auto* found = own.contains(name)           ? &own.at(name)
                        : file.common.contains(name) ? &file.common.at(name)
                                                     : nullptr;
    if (found != nullptr) {
      set_values(*option, *found);
      sources[name] = path;
    }
  }
  return sources;
}

bool is_secret(const CLI::Option& option) { return option.get_single_name().ends_with("-key"); }

void print_config(const CLI::App& command, const std::map<std::string, std::string>& sources) {
  for (const CLI::Option* option : command.get_options()) {
    if (!is_configurable(*option)) continue;
    const auto source = sources.find(option->get_single_name());
    fmt::print("{:<26} {:<24} {}\n", option->get_single_name(),
               option->count() > 0 ? is_secret(*option) ? "(hidden)" : CLI::detail::join(option->results(), ",")
                                   : option->get_default_str(),
               source == sources.end() ? "default" : source->second);
  }
}

/// Draws the conclusions of --spec, whatever the order of the options was.
void choose_drafts(const std::string& source, EngineOptions& engine) {
  if (source.empty()) return;
  if (source == "off") {
    engine.num_draft_tokens = 0;
    return;
  }
  engine.speculation.source = source == "draft" ? DraftSource::kModel : DraftSource::kNgram;
  if (engine.num_draft_tokens == 0) engine.num_draft_tokens = kDefaultDrafts;
}

Command take(Fields& fields, const CLI::App& root, const std::string& name) {
  for (EngineOptions* engine : {&fields.serve.engine, &fields.chat.engine, &fields.generate.engine}) {
    choose_drafts(fields.draft_source, *engine);
  }
  if (name == "serve") return std::move(fields.serve);
  if (name == "chat") return std::move(fields.chat);
  if (name == "generate") return std::move(fields.generate);
  if (name == "logits") return std::move(fields.logits);
  if (name == "perplexity") return std::move(fields.perplexity);
  if (name == "pull") return std::move(fields.pull);
  if (name == "models") return std::move(fields.models);
  if (name == "inspect") return std::move(fields.inspect);
  if (name == "make-tiny") return std::move(fields.make_tiny);
  if (name == "tokenize") return std::move(fields.tokenize);
  if (name == "doctor") return std::move(fields.doctor);
  return CompletionCommand{completion_script(root, fields.completion_shell)};
}

}  // namespace

std::expected<Command, int> parse_command_line(int argc, const char* const* argv) {
  Fields fields;
  CLI::App root("Thalweg: an inference and serving engine for large language models", "thalweg");
  root.set_version_flag("--version", std::string(version()));
  root.require_subcommand(1);
  root.get_formatter()->column_width(34);
  add_serve(root, fields);
  add_chat(root, fields);
  add_generate(root, fields);
  add_logits(root, fields);
  add_perplexity(root, fields);
  add_file_commands(root, fields);
  add_machine_commands(root, fields);
  for (CLI::App* command : root.get_subcommands({})) {
    command->add_option("--config", fields.config_path, "TOML or YAML file with options of this or any command")
        ->envname("THALWEG_CONFIG")
        ->group("Configuration");
    command->add_flag("--print-config", fields.print_config, "print every option, its value and where it is from")
        ->group("Configuration");
    command->footer("Precedence: flag, THALWEG_<OPTION>, --config file, default.");
  }
  const std::vector<CLI::Option*> required = defer_required(root);
  try {
    root.parse(argc, argv);
    CLI::App& command = *root.get_subcommands().front();
    const auto sources = apply_environment_and_file(root, command, fields.config_path);
    check_required(command, required);
    if (fields.print_config) {
      print_config(command, sources);
      return std::unexpected(0);
    }
    return take(fields, root, command.get_name());
  } catch (const CLI::ParseError& error) {
    for (CLI::Option* option : required) option->required();  // as help shows them
    return std::unexpected(root.exit(error) == 0 ? 0 : 2);
  }
}

}  // namespace thalweg::apps
