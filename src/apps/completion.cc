#include "apps/completion.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "apps/commands.h"

namespace thalweg::apps {
namespace {

std::string flags_of(const CLI::App& command) {
  std::string flags;
  for (const CLI::Option* option : command.get_options()) {
    for (const std::string& name : option->get_lnames()) flags += fmt::format(" --{}", name);
  }
  return flags.empty() ? flags : flags.substr(1);
}

std::string names_of(const CLI::App& root) {
  std::string names;
  for (const CLI::App* command : root.get_subcommands({})) names += ' ' + command->get_name();
  return names.substr(1);
}

std::string quoted(std::string text) {
  for (char& letter : text) {
    if (letter == '\'') letter = '`';
  }
  return text;
}

std::string bash(const CLI::App& root) {
  std::string cases;
  for (const CLI::App* command : root.get_subcommands({})) {
    cases += fmt::format("    {}) words='{}' ;;\n", command->get_name(), flags_of(*command));
  }
  return fmt::format(R"(_thalweg() {{
  local current=${{COMP_WORDS[COMP_CWORD]}} words
  case ${{COMP_WORDS[1]}} in
{0}    *) words='{1}' ;;
  esac
  [ "$COMP_CWORD" -eq 1 ] && words='{1}'
  COMPREPLY=($(compgen -W "$words" -- "$current"))
  [[ $current == -* ]] || [ "$COMP_CWORD" -eq 1 ] || COMPREPLY+=($(compgen -f -- "$current"))
}}
complete -o filenames -F _thalweg thalweg
)",
                     cases, names_of(root));
}

std::string zsh(const CLI::App& root) {
  return "#compdef thalweg\nautoload -U +X bashcompinit && bashcompinit\n" + bash(root);
}

std::string fish(const CLI::App& root) {
  std::string script;
  for (const CLI::App* command : root.get_subcommands({})) {
    script += fmt::format("complete -c thalweg -n __fish_use_subcommand -f -a {} -d '{}'\n", command->get_name(),
                          quoted(command->get_description()));
    for (const CLI::Option* option : command->get_options()) {
      for (const std::string& name : option->get_lnames()) {
        script += fmt::format("complete -c thalweg -n '__fish_seen_subcommand_from {}' -l {} -d '{}'\n",
                              command->get_name(), name, quoted(option->get_description()));
      }
    }
  }
  return script;
}

}  // namespace

std::string completion_script(const CLI::App& root, std::string_view shell) {
  if (shell == "zsh") return zsh(root);
  if (shell == "fish") return fish(root);
  return bash(root);
}

int run(const CompletionCommand& command) {
  fmt::print("{}", command.script);
  return 0;
}

}  // namespace thalweg::apps
