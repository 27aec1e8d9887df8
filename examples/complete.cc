// The library in one page: open a model, complete token ids, close. Built and run by the tests.
//
// usage: complete MODEL NUM_TOKENS ID...
#include <cstdio>
#include <cstdlib>
#include <string>

#include "thalweg/engine.h"

int main(int argc, char** argv) {
  if (argc < 4) {
    std::fprintf(stderr, "usage: complete MODEL NUM_TOKENS ID...\n");
    return 2;
  }
  thalweg::EngineOptions options;
  options.model_path = argv[1];
  auto engine = thalweg::open_engine(options);
  if (!engine) {
    std::fprintf(stderr, "%s\n", engine.error().message.c_str());
    return 1;
  }

  thalweg::GenerateRequest request;
  request.max_tokens = std::atoi(argv[2]);
  request.sampling.temperature = 0.0F;
  for (int i = 3; i < argc; ++i) request.prompt_ids.push_back(std::atoi(argv[i]));

  const auto answers = thalweg::generate(**engine, {request});
  const thalweg::GeneratedSequence& sequence = answers[0][0];
  if (sequence.finish.error) {
    std::fprintf(stderr, "%s\n", sequence.finish.error->message.c_str());
    return 1;
  }
  std::string line;
  for (const auto token_id : sequence.token_ids) line += std::to_string(token_id) + ' ';
  std::printf("%s\n", line.c_str());
  (*engine)->close(0.0);
  return 0;
}
