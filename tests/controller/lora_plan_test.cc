// What a plan counts of adapters and of the base under them.
#include <catch2/catch.hpp>

#include "controller/memory_plan_input.h"
#include "tests/support/temp_dir.h"
#include "tests/support/tiny_model.h"

namespace tandem {
namespace {

using testing::TempDir;
using testing::TinyModelOptions;
using testing::WriteTinyModel;

TrainerMemoryOptions PlannedOptions(const std::string& model_dir,
                                    const std::vector<std::string>& overrides) {
  std::vector<std::string> all = {"model.path=" + model_dir, "data.train_files=[/t.jsonl]",
                                  "cluster.run_dir=/r"};
  all.insert(all.end(), overrides.begin(), overrides.end());
  const auto loaded = LoadConfig("", all);
  REQUIRE(loaded.ok());
  const auto spec = LoadModelSpec(model_dir);
  REQUIRE(spec.ok());
  return MakeMemoryPlanInput(*spec, loaded->config, int64_t{1} << 30).trainer;
}

TEST_CASE("a plan with adapters counts them, and the base as it is stored") {
  const TempDir dir;
  for (const bool float32 : {false, true}) {
    TinyModelOptions model;
    model.float32 = float32;
    REQUIRE(WriteTinyModel(dir.path(), model).ok());
    REQUIRE(PlannedOptions(dir.path(), {}).adapters == 0);
    const std::vector<std::string> lora = {"model.lora.rank=3",
                                           "model.lora.target_modules=[o_proj]"};
    const TrainerMemoryOptions one = PlannedOptions(dir.path(), lora);
    // A [3, 64] and B [64, 3] in each of two layers.
    REQUIRE(one.adapters == 2 * (3 * 64 + 64 * 3));
    REQUIRE(one.adapter_shard == one.adapters);
    REQUIRE(one.base_element_bytes == (float32 ? 4 : 2));
    std::vector<std::string> two = lora;
    two.insert(two.end(), {"cluster.trainers=2", "cluster.rollouts=2"});
    // Of A's three rows the first rank has two, of B's 64 half.
    REQUIRE(PlannedOptions(dir.path(), two).adapter_shard == 2 * (2 * 64 + 32 * 3));
  }
}

}  // namespace
}  // namespace tandem
