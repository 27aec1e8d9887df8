#include "apps/command_line.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "apps/config_file.h"
#include "apps/model_catalog.h"

namespace thalweg::apps {
namespace {

std::expected<Command, int> parse(std::vector<const char*> words) {
  words.insert(words.begin(), "thalweg");
  return parse_command_line(static_cast<int>(words.size()), words.data());
}

class CommandLine : public testing::Test {
 protected:
  void TearDown() override {
    for (const std::string& path : files_) std::filesystem::remove(path);
    unsetenv("THALWEG_PORT");
  }

  std::string write(const std::string& ending, const std::string& text) {
    files_.push_back(testing::TempDir() + "thalweg_config_" + std::to_string(getpid()) + ending);
    std::ofstream(files_.back()) << text;
    return files_.back();
  }

 private:
  std::vector<std::string> files_;
};

TEST_F(CommandLine, FlagThenEnvironmentThenFileThenDefault) {
  const std::string file =
      write(".toml", "threads = 3\n[serve]\nport = 1001\nhost = \"::1\"\napi-key = [\"a\", \"b\"]\n");
  const auto port_of = [&](std::vector<const char*> words) {
    const auto command = parse(std::move(words));
    EXPECT_TRUE(command.has_value());
    return std::get<ServeCommand>(*command);
  };
  EXPECT_EQ(port_of({"serve", "m"}).port, 8000);
  const ServeCommand from_file = port_of({"serve", "m", "--config", file.c_str()});
  EXPECT_EQ(from_file.port, 1001);
  EXPECT_EQ(from_file.host, "::1");
  EXPECT_EQ(from_file.engine.num_threads, 3);
  EXPECT_THAT(from_file.api_keys, testing::ElementsAre("a", "b"));
  setenv("THALWEG_PORT", "1002", 1);
  EXPECT_EQ(port_of({"serve", "m", "--config", file.c_str()}).port, 1002);
  EXPECT_EQ(port_of({"serve", "m", "--config", file.c_str(), "--port", "1003"}).port, 1003);
}

TEST_F(CommandLine, YamlSaysTheSame) {
  const std::string file = write(".yaml", "threads: 3\nserve:\n  prefix-cache: false\n  kv-cache-bytes: 64MB\n");
  const auto command = parse({"serve", "m", "--config", file.c_str()});
  ASSERT_TRUE(command.has_value());
  const auto& serve = std::get<ServeCommand>(*command);
  EXPECT_EQ(serve.engine.num_threads, 3);
  EXPECT_FALSE(serve.engine.enable_prefix_cache);
  EXPECT_EQ(serve.engine.kv_cache_bytes, 64 << 20);
}

TEST_F(CommandLine, RefusesWhatNoCommandKnows) {
  const std::string unknown_key = write(".toml", "prot = 1\n");
  EXPECT_EQ(parse({"serve", "m", "--config", unknown_key.c_str()}).error(), 2);
  const std::string other_command = write(".yml", "serve:\n  decode-from: 1\n");
  EXPECT_EQ(parse({"serve", "m", "--config", other_command.c_str()}).error(), 2);
  EXPECT_EQ(parse({"serve", "m", "--config", "/no/such/file.toml"}).error(), 2);
  EXPECT_EQ(parse({"serve", "m", "--prot", "1"}).error(), 2);
  EXPECT_EQ(parse({"serv", "m"}).error(), 2);
  EXPECT_EQ(parse({}).error(), 2);
}

TEST_F(CommandLine, RangesHoldForEverySource) {
  EXPECT_EQ(parse({"serve", "m", "--port", "65536"}).error(), 2);
  setenv("THALWEG_PORT", "-1", 1);
  EXPECT_EQ(parse({"serve", "m"}).error(), 2);
  unsetenv("THALWEG_PORT");
  const std::string file = write(".toml", "[serve]\nport = 70000\n");
  EXPECT_EQ(parse({"serve", "m", "--config", file.c_str()}).error(), 2);
}

TEST_F(CommandLine, BrokenFilesNameTheirLine) {
  const auto toml = read_config_file(write(".toml", "a = 1\nb = = 2\n"));
  ASSERT_FALSE(toml.has_value());
  EXPECT_THAT(toml.error().message, testing::HasSubstr(".toml:2"));
  const auto yaml = read_config_file(write(".yaml", "a: 1\nb: [1\n"));
  ASSERT_FALSE(yaml.has_value());
  EXPECT_THAT(yaml.error().message, testing::HasSubstr(".yaml:"));
}

TEST_F(CommandLine, HelpAndVersionSucceed) {
  EXPECT_EQ(parse({"--help"}).error(), 0);
  EXPECT_EQ(parse({"--version"}).error(), 0);
  EXPECT_EQ(parse({"serve", "--help"}).error(), 0);
}

TEST_F(CommandLine, CompletionKnowsEveryCommand) {
  for (const char* shell : {"bash", "zsh", "fish"}) {
    const auto command = parse({"completion", shell});
    ASSERT_TRUE(command.has_value());
    const std::string& script = std::get<CompletionCommand>(*command).script;
    for (const char* name : {"serve", "chat", "generate", "logits", "inspect", "doctor", "kv-cache-bytes"}) {
      EXPECT_THAT(script, testing::HasSubstr(name));
    }
  }
  EXPECT_EQ(parse({"completion", "tcsh"}).error(), 2);
}

TEST(Catalog, HoldsTheDefaultModelAndItsSum) {
  const CatalogEntry* entry = find_in_catalog("smollm2-135m-instruct");
  ASSERT_NE(entry, nullptr);
  EXPECT_EQ(entry->sha256.size(), 64U);
  ASSERT_EQ(entry->parts.size(), 1U);
  EXPECT_EQ(find_in_catalog("smollm2"), nullptr);
  EXPECT_EQ(find_in_catalog("gemma-3-270m")->parts.size(), 4U);
}

}  // namespace
}  // namespace thalweg::apps
