// What each subcommand of `thalweg` was asked to do: plain values, filled by command_line.cc, run by one file each.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "server/server_options.h"
#include "thalweg/engine.h"

namespace thalweg::apps {

struct ServeCommand {
  EngineOptions engine;
  std::string host = "127.0.0.1";
  int port = 8000;
  int num_io_threads = 1;
  std::vector<std::string> served_model_names;  // empty: the file's own
  std::vector<std::string> api_keys;
  std::string admin_key;
  std::string allowed_origin;
  bool any_model = false;
  std::string base_path;
  bool strict_fields = false;
  std::string log_level = "info";
  std::int64_t max_body_bytes = static_cast<std::int64_t>(server::ServerOptions().max_body_bytes);
  double drain_s = 30.0;
};

struct ChatCommand {
  EngineOptions engine;
  std::string system;
  SamplingParams sampling;
  std::int32_t max_tokens = 1024;
};

struct GenerateCommand {
  EngineOptions engine;
  std::string input;   // JSON lines; "-": standard input
  std::string output;  // "-": standard output
  SamplingParams sampling;
  std::int32_t max_tokens = 128;
  bool chat = false;
};

struct LogitsCommand {
  std::string model;
  std::string input;
  std::string output;
  std::int32_t num_threads = 0;
  std::int32_t chunk = 0;                   // 0: whole prompt in one step
  std::optional<std::int32_t> decode_from;  // tokens from here on are fed one at a time
  std::string kv_dtype = "f32";
  std::optional<std::int32_t> replay_tokens;  // of the prompt, computed in full; 0: all
  std::int32_t prefix_hit = 0;
  std::string numerics = "reference";
};

struct PerplexityCommand {
  std::string model;
  std::string input;
  std::int32_t num_threads = 0;
  std::int32_t context = 512;
  std::int32_t max_chunks = 0;
  std::string kv_dtype = "f16";
};

struct PullCommand {
  std::string name;
  std::string sha256;
};

struct ModelsCommand {
  bool json = false;
};

struct InspectCommand {
  std::string model;   // empty with a preset
  std::string preset;  // a released model whose files are not at hand
  bool tensors = false;
  bool metadata = false;
};

struct MakeTinyCommand {
  std::string architecture;
  std::string folder;
  std::uint64_t seed = 1;
  std::string model_config;  // a config.json with other sizes; empty: sizes of our own
};

struct TokenizeCommand {
  std::string model;
  std::string text;
  bool from_stdin = false;
  bool chat = false;
  bool parse_special = false;
  bool no_special_tokens = false;
  std::vector<std::int32_t> decode_ids;
};

struct DoctorCommand {
  std::string model;  // optional: what would be used for it
};

struct CompletionCommand {
  std::string script;  // the finished script
};

using Command =
    std::variant<ServeCommand, ChatCommand, GenerateCommand, LogitsCommand, PerplexityCommand, PullCommand,
                 ModelsCommand, InspectCommand, MakeTinyCommand, TokenizeCommand, DoctorCommand, CompletionCommand>;

/// Each returns the exit code of the process: 0, or 1 after one clear sentence on standard error.
int run(const ServeCommand& command);
int run(const ChatCommand& command);
int run(const GenerateCommand& command);
int run(const LogitsCommand& command);
int run(const PerplexityCommand& command);
int run(const PullCommand& command);
int run(const ModelsCommand& command);
int run(const InspectCommand& command);
int run(const MakeTinyCommand& command);
int run(const TokenizeCommand& command);
int run(const DoctorCommand& command);
int run(const CompletionCommand& command);

/// Prints "thalweg: <message>" and returns 1.
int report(const Error& error);

}  // namespace thalweg::apps
