#include <fmt/core.h>

#include <cstdio>
#include <exception>
#include <variant>

#include "apps/command_line.h"

namespace thalweg::apps {

int report(const Error& error) {
  fmt::print(stderr, "thalweg: {}\n", error.message);
  return 1;
}

}  // namespace thalweg::apps

int main(int argc, char** argv) {
  const auto command = thalweg::apps::parse_command_line(argc, argv);
  if (!command) return command.error();
  try {
    return std::visit([](const auto& chosen) { return thalweg::apps::run(chosen); }, *command);
  } catch (const std::exception& error) {  // of the standard library: a name too long, memory that is not there
    return thalweg::apps::report({thalweg::ErrorCode::kInternal, error.what(), {}});
  }
}
