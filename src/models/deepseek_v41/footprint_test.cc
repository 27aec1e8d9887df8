// The inventory against real files and against the released model's numbers.
#include "models/deepseek_v41/footprint.h"

#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <string>
#include <tuple>

#include "models/deepseek_v41/golden_files.h"
#include "models/deepseek_v41/released.h"

namespace thalweg::models::deepseek_v41 {
namespace {

constexpr double kGb = 1e9;

class Inventory : public testing::TestWithParam<const char*> {};

TEST_P(Inventory, IsWhatTheFileHolds) {
  if (!has_golden_files()) GTEST_SKIP() << "THALWEG_TEST_ASSETS is not set";
  const Result<std::unique_ptr<weights::Checkpoint>> checkpoint = weights::Checkpoint::open(golden_folder(GetParam()));
  ASSERT_TRUE(checkpoint) << checkpoint.error().message;
  const Result<Config> config = read_config(**checkpoint);
  ASSERT_TRUE(config) << config.error().message;

  using Entry = std::tuple<std::string, device::DType, std::vector<std::int64_t>>;
  std::set<Entry> stored, listed;
  for (const weights::TensorInfo& tensor : (*checkpoint)->tensors()) {
    stored.emplace(tensor.name, tensor.dtype, tensor.shape);
  }
  for (const Parameter& parameter : inventory(*config)) {
    for (const StoredTensor& tensor : stored_tensors(parameter)) {
      EXPECT_TRUE(listed.emplace(tensor.name, tensor.dtype, tensor.shape).second) << tensor.name << " twice";
    }
  }
  for (const Entry& entry : stored) EXPECT_TRUE(listed.contains(entry)) << std::get<0>(entry) << " is not listed";
  for (const Entry& entry : listed) EXPECT_TRUE(stored.contains(entry)) << std::get<0>(entry) << " is not stored";
  EXPECT_EQ(footprint(inventory(*config)).bytes, footprint(*config, **checkpoint).bytes);
}

INSTANTIATE_TEST_SUITE_P(Checkpoints, Inventory, testing::Values("micro", "heads-calm", "odd", "wide"),
                         [](const auto& name) { return std::string(name.param).substr(0, 4); });

/// Made once: it has 55,000 entries.
const std::vector<Parameter>& released_inventory() {
  static const std::vector<Parameter> parameters = [] {
    const Config config = released_config();
    std::vector<Parameter> all = inventory(config);
    const std::vector<Parameter> vision = inventory(released_vision_tower(), config.hidden_size);
    all.insert(all.end(), vision.begin(), vision.end());
    return all;
  }();
  return parameters;
}

TEST(Released, HasTheTensorsAndBytesOfTheRepository) {
  std::size_t num_tensors = 0;
  for (const Parameter& parameter : released_inventory()) num_tensors += stored_tensors(parameter).size();
  EXPECT_EQ(num_tensors, 96085);
  EXPECT_EQ(footprint(released_inventory()).total(), 510'286'023'000);
}

TEST(Released, PartsAreThoseOfTheTable) {
  std::map<Part, std::int64_t> parts = footprint(released_inventory()).parts();
  EXPECT_EQ(parts[Part::kAttention], 40 * 126'743'040LL);
  EXPECT_EQ(parts[Part::kSharedExperts], 40 * 35'424'000LL);
  EXPECT_EQ(parts[Part::kRouters], 40 * 3'935'232LL);
  EXPECT_EQ(parts[Part::kStreamMixes], 40 * 3'932'376LL);
  EXPECT_EQ(parts[Part::kNorms], 40 * 20'480LL + 10'240);
  EXPECT_EQ(parts[Part::kRoutedExperts], 40 * 7'219'445'760LL);
  EXPECT_NEAR(static_cast<double>(parts[Part::kCompressors]) / kGb, 0.0367, 5e-5);
  EXPECT_NEAR(static_cast<double>(parts[Part::kIndexers]) / kGb, 0.0451, 5e-5);
  EXPECT_NEAR(static_cast<double>(parts[Part::kVocabulary]) / kGb, 2 * 1.3238, 1e-4);
  EXPECT_NEAR(static_cast<double>(parts[Part::kEngramTables]) / kGb, 202.758, 5e-4);
  EXPECT_NEAR(static_cast<double>(parts[Part::kEngramProjections]) / kGb, 0.315, 5e-4);
  EXPECT_NEAR(static_cast<double>(parts[Part::kDraftExperts] + parts[Part::kDraftDense]) / kGb, 7.933, 5e-4);
  EXPECT_NEAR(static_cast<double>(parts[Part::kVision]) / kGb, 0.9705, 5e-5);
}

double rank_gb(const std::string& name) {
  const Footprint released = footprint(released_inventory());
  for (const Layout& layout : kLayouts) {
    if (layout.name == name) return static_cast<double>(bytes_per_rank(released, layout)) / kGb;
  }
  ADD_FAILURE() << "no layout " << name;
  return 0.0;
}

TEST(Released, RanksHoldWhatTheTableSays) {
  EXPECT_NEAR(rank_gb("DEP8"), 73.9, 0.05);
  EXPECT_NEAR(rank_gb("DEP32"), 27.1, 0.05);
  // Tensor parallel ranks divide what the others hold whole: more than half of the dense part.
  EXPECT_LT(rank_gb("TP8"), rank_gb("DEP8") - 0.5 * (6.8 + 2.65));
  EXPECT_GT(rank_gb("TP8"), 510.286 / 8);
  for (const Layout& layout : kLayouts) EXPECT_EQ(obstacle(released_config(), layout), "") << layout.name;
}

TEST(Layouts, ThatDoNotFitAreNamed) {
  Config config = released_config();
  config.num_output_groups = 2;
  EXPECT_EQ(obstacle(config, {"TP4", 4, true}), "2 output groups do not divide by 4");
  EXPECT_EQ(obstacle(config, {"DEP4", 4, false}), "");
  config.dspark.experts.num_experts = 100;
  EXPECT_EQ(obstacle(config, {"DEP8", 8, false}), "100 draft experts do not divide by 8");
}

}  // namespace
}  // namespace thalweg::models::deepseek_v41
