#include "apps/config_file.h"

#include <fmt/format.h>
#include <toml++/toml.h>
#include <yaml-cpp/yaml.h>

#include <fstream>
#include <iterator>

namespace thalweg::apps {
namespace {

std::string option_name(std::string_view key) {
  std::string name(key);
  for (char& letter : name) {
    if (letter == '_') letter = '-';
  }
  return name;
}

Result<std::string> toml_scalar(const std::string& path, std::string_view key, const toml::node& node) {
  if (const auto* text = node.as_string()) return text->get();
  if (const auto* number = node.as_integer()) return fmt::format("{}", number->get());
  if (const auto* number = node.as_floating_point()) return fmt::format("{}", number->get());
  if (const auto* flag = node.as_boolean()) return std::string(flag->get() ? "true" : "false");
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("{}:{}: the value of '{}' is neither text, number, true/false nor a list of these", path,
                          node.source().begin.line, key));
}

Result<std::vector<std::string>> toml_values(const std::string& path, std::string_view key, const toml::node& node) {
  std::vector<std::string> values;
  const toml::array* list = node.as_array();
  if (list == nullptr) {
    auto value = toml_scalar(path, key, node);
    if (!value) return std::unexpected(value.error());
    values.push_back(std::move(*value));
    return values;
  }
  for (const toml::node& item : *list) {
    auto value = toml_scalar(path, key, item);
    if (!value) return std::unexpected(value.error());
    values.push_back(std::move(*value));
  }
  return values;
}

Status read_toml_table(const std::string& path, const toml::table& table, ConfigValues& into, ConfigFile* root) {
  for (const auto& [key, node] : table) {
    if (const toml::table* inner = node.as_table(); inner != nullptr && root != nullptr) {
      if (auto status = read_toml_table(path, *inner, root->commands[std::string(key.str())], nullptr); !status) {
        return status;
      }
      continue;
    }
    auto values = toml_values(path, key.str(), node);
    if (!values) return std::unexpected(values.error());
    into[option_name(key.str())] = std::move(*values);
  }
  return {};
}

Result<ConfigFile> read_toml(const std::string& path, const std::string& text) {
  const toml::parse_result parsed = toml::parse(text, path);
  if (!parsed) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{}:{}: {}", path, parsed.error().source().begin.line, parsed.error().description()));
  }
  ConfigFile file;
  if (auto status = read_toml_table(path, parsed.table(), file.common, &file); !status) {
    return std::unexpected(status.error());
  }
  return file;
}

void read_yaml_map(const std::string& path, const YAML::Node& map, ConfigValues& into, ConfigFile* root) {
  for (const auto& entry : map) {
    const std::string key = entry.first.as<std::string>();
    const YAML::Node& node = entry.second;
    if (node.IsMap() && root != nullptr) {
      read_yaml_map(path, node, root->commands[key], nullptr);
      continue;
    }
    std::vector<std::string> values;
    if (node.IsSequence()) {
      for (const auto& item : node) values.push_back(item.as<std::string>());
    } else {
      values.push_back(node.as<std::string>());
    }
    into[option_name(key)] = std::move(values);
  }
}

Result<ConfigFile> read_yaml(const std::string& path, const std::string& text) {
  try {
    const YAML::Node root = YAML::Load(text);
    ConfigFile file;
    if (root.IsNull()) return file;
    if (!root.IsMap()) {
      return fail(ErrorCode::kInvalidArgument, fmt::format("{}: the top of the file is not a map of options", path));
    }
    read_yaml_map(path, root, file.common, &file);
    return file;
  } catch (const YAML::Exception& error) {
    return fail(ErrorCode::kInvalidArgument, fmt::format("{}:{}: {}", path, error.mark.line + 1, error.msg));
  }
}

}  // namespace

Result<ConfigFile> read_config_file(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  if (!stream) return fail(ErrorCode::kNotFound, fmt::format("cannot read the configuration file {}", path), "config");
  const std::string text{std::istreambuf_iterator<char>(stream), {}};
  if (path.ends_with(".toml")) return read_toml(path, text);
  if (path.ends_with(".yaml") || path.ends_with(".yml")) return read_yaml(path, text);
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("{}: a configuration file must end in .toml, .yaml or .yml", path), "config");
}

}  // namespace thalweg::apps
