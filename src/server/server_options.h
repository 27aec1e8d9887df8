// Choices and limits of the HTTP server, fixed at start. apps fills them from flags and configuration.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "thalweg/request.h"

namespace thalweg::server {

struct ServerOptions {
  std::string host = "127.0.0.1";
  std::uint16_t port = 8000;  // 0: any free one, see Server::port()
  std::string base_path;      // prefix that a proxy leaves in the path, "/llm"
  std::string version = "0";  // what /version answers

  std::vector<std::string> served_model_names;  // the first one is written in answers; empty: the engine's name
  bool accept_any_model_name = false;
  std::vector<std::string> api_keys;  // empty: no key is asked for
  std::string admin_key;              // empty: operator routes are refused
  std::string cors_origin;            // empty: no CORS headers
  SamplingParams default_sampling;    // for fields that a request leaves out: the model makers' recommendation
  bool refuse_unknown_fields = false;
  bool usage_null_in_chunks = false;  // OpenAI's "usage": null in all chunks but the last

  // Threads.
  std::int32_t num_io_threads = 1;
  std::int32_t num_text_threads = 2;  // templates and tokenising of long prompts

  // Limits of one request.
  std::size_t max_header_bytes = 32 << 10;
  std::size_t max_body_bytes = 16 << 20;
  std::int32_t max_json_depth = 64;
  std::int32_t max_prompts = 1024;  // prompts of one completions request
  std::int32_t max_choices = 2048;  // prompts times n
  std::int32_t max_stop_strings = 4;
  std::int32_t max_stop_bytes = 1024;  // of one stop string
  std::int32_t max_bad_words = 128;
  std::size_t inline_body_bytes = 4 << 10;  // longer bodies are prepared on a text thread

  // Limits of the whole.
  std::int32_t max_connections = 0;        // 0: what the file descriptor limit allows
  std::int32_t max_queued_texts = 1024;    // requests waiting for a text thread
  std::size_t max_unsent_bytes = 1 << 20;  // of a stream whose client does not read

  // Times, in seconds.
  double header_timeout_s = 30;
  double body_timeout_s = 120;
  double idle_timeout_s = 120;   // a kept connection without a request
  double write_timeout_s = 60;   // unsent bytes without progress
  double ping_interval_s = 15;   // a comment line in a silent stream
  double stall_timeout_s = 120;  // /health is 503 when running sequences make no step for that long
  double drain_timeout_s = 30;   // what drain() grants running requests
};

}  // namespace thalweg::server
