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
#include "base/request_rules.h"

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
    for (const char* name : {"THALWEG_PORT", "THALWEG_MODEL", "THALWEG_OUTPUT"}) unsetenv(name);
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

TEST_F(CommandLine, WhatACommandNeedsMayComeFromAnywhere) {
  EXPECT_EQ(parse({"logits"}).error(), 2);
  const std::string file = write(".toml", "model = \"of the file\"\n[logits]\ninput = \"prompts\"\n");
  EXPECT_EQ(parse({"logits", "--config", file.c_str()}).error(), 2) << "no output yet";
  setenv("THALWEG_OUTPUT", "of the environment", 1);
  const auto command = parse({"logits", "--config", file.c_str()});
  ASSERT_TRUE(command.has_value());
  const auto& logits = std::get<LogitsCommand>(*command);
  EXPECT_EQ(logits.model, "of the file");
  EXPECT_EQ(logits.input, "prompts");
  EXPECT_EQ(logits.output, "of the environment");
  setenv("THALWEG_MODEL", "of the environment", 1);
  EXPECT_EQ(std::get<ServeCommand>(*parse({"serve"})).engine.model_path, "of the environment");
  EXPECT_EQ(std::get<ServeCommand>(*parse({"serve", "m"})).engine.model_path, "m");
}

TEST_F(CommandLine, ReplayIsOffOrANumberOfTokens) {
  const auto replay_of = [&](const char* value) -> std::optional<std::int32_t> {
    const auto command = parse({"logits", "m", "--input", "i", "--output", "o", "--replay", value});
    return command ? std::get<LogitsCommand>(*command).replay_tokens : std::nullopt;
  };
  EXPECT_EQ(replay_of("off"), 0);
  EXPECT_EQ(replay_of("140"), 140);
  for (const char* bad : {"0", "-1", "on", "1.5", "140x"}) EXPECT_EQ(replay_of(bad), std::nullopt) << bad;
  const auto silent = parse({"logits", "m", "--input", "i", "--output", "o"});
  EXPECT_EQ(std::get<LogitsCommand>(*silent).replay_tokens, std::nullopt);
}

TEST_F(CommandLine, SamplingHasTheRangesOfEveryDoor) {
  for (const auto& [field, flag] :
       {std::pair("top_p", "--top-p"), std::pair("repetition_penalty", "--repetition-penalty"),
        std::pair("temperature", "--temperature"), std::pair("top_k", "--top-k")}) {
    const NumberRule& rule = request_number_rule(field);
    const std::string low = std::to_string(rule.min);
    const std::string high = std::to_string(static_cast<std::int64_t>(rule.max));
    const std::string beyond = std::to_string(static_cast<std::int64_t>(rule.max) + 1);
    EXPECT_EQ(parse({"chat", "m", flag, rule.is_integer ? "-1" : low.c_str()}).has_value(), !rule.min_is_excluded)
        << field;
    EXPECT_TRUE(parse({"chat", "m", flag, high.c_str()}).has_value()) << field;
    EXPECT_FALSE(parse({"chat", "m", flag, beyond.c_str()}).has_value()) << field;
    EXPECT_FALSE(parse({"chat", "m", flag, "nan"}).has_value()) << field;
  }
}

TEST_F(CommandLine, SpeculationIsChosenBySourceOrByNumber) {
  const auto engine_of = [](std::vector<const char*> arguments) {
    arguments.insert(arguments.begin(), {"serve", "m"});
    return std::get<ServeCommand>(*parse(arguments)).engine;
  };
  EXPECT_EQ(engine_of({}).num_draft_tokens, 0);
  EXPECT_EQ(engine_of({"--draft-tokens", "3"}).num_draft_tokens, 3);
  EXPECT_EQ(engine_of({"--num-draft-tokens", "3"}).speculation.source, DraftSource::kNgram);
  EXPECT_EQ(engine_of({"--draft-tokens", "3", "--spec", "off"}).num_draft_tokens, 0);
  const EngineOptions draft = engine_of({"--spec", "draft", "--spec-accept", "rejection", "--spec-confidence", "0.4"});
  EXPECT_EQ(draft.num_draft_tokens, 5);
  EXPECT_EQ(draft.speculation.source, DraftSource::kModel);
  EXPECT_EQ(draft.speculation.acceptance, AcceptanceMethod::kRejection);
  EXPECT_EQ(draft.speculation.min_survival, 0.4F);
  EXPECT_FALSE(draft.speculation.forced_acceptance.has_value());
  const std::string file = write(".toml", "spec = \"draft\"\nspec-force-acceptance = 2.51\n");
  const EngineOptions forced = engine_of({"--config", file.c_str(), "--draft-tokens", "4"});
  EXPECT_EQ(forced.num_draft_tokens, 4);
  EXPECT_EQ(forced.speculation.source, DraftSource::kModel);
  EXPECT_EQ(forced.speculation.forced_acceptance, 2.51);
  EXPECT_FALSE(parse({"serve", "m", "--spec", "guess"}).has_value());
}

TEST_F(CommandLine, YamlSaysTheSame) {
  const std::string file = write(".yaml", "threads: 3\nserve:\n  prefix-cache: false\n  kv-cache-bytes: 64MB\n");
  const auto command = parse({"serve", "m", "--config", file.c_str()});
  ASSERT_TRUE(command.has_value());
  const auto& serve = std::get<ServeCommand>(*command);
  EXPECT_EQ(serve.engine.num_threads, 3);
  EXPECT_EQ(serve.engine.replay_tokens, -1);
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

TEST_F(CommandLine, TinyModelsAreOfKnownArchitectures) {
  const auto command = parse({"make-tiny", "deepseek_v41", "folder", "--seed", "7", "--model-config", "sizes.json"});
  ASSERT_TRUE(command.has_value());
  const auto& make = std::get<MakeTinyCommand>(*command);
  EXPECT_EQ(make.folder, "folder");
  EXPECT_EQ(make.seed, 7U);
  EXPECT_EQ(make.model_config, "sizes.json");
  EXPECT_EQ(parse({"make-tiny", "llama", "folder"}).error(), 2);
  EXPECT_EQ(parse({"make-tiny", "deepseek_v41"}).error(), 2);
  EXPECT_EQ(parse({"inspect", "--preset", "deepseek-v9"}).error(), 2);
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
