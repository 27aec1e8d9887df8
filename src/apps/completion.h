// Shell completion scripts, made from the command tree itself so that they cannot fall behind it.
#pragma once

#include <string>
#include <string_view>

namespace CLI {
class App;
}

namespace thalweg::apps {

/// `shell` is bash, zsh or fish.
std::string completion_script(const CLI::App& root, std::string_view shell);

}  // namespace thalweg::apps
