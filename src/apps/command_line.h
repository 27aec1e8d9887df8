// Arguments, environment and configuration file to one Command.
//
// Precedence, highest first: flag, environment variable THALWEG_<OPTION>, configuration file (--config FILE, TOML or
// YAML), default. A key that no command knows is refused.
#pragma once

#include <expected>

#include "apps/commands.h"

namespace thalweg::apps {

/// The command, or the exit code when there is nothing to run (help, version: 0; a mistake: 2).
std::expected<Command, int> parse_command_line(int argc, const char* const* argv);

}  // namespace thalweg::apps
