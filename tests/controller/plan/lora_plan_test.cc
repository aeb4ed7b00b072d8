// What a plan counts of adapters and of the base under them.
#include <set>
#include <tuple>

#include <catch2/catch.hpp>

#include "common/config/loaded_config.h"
#include "common/lora/lora_spec.h"
#include "common/memory/memory_formulas.h"
#include "controller/plan/plan_input.h"
#include "tests/support/temp_dir.h"
#include "tests/support/tiny_model.h"

namespace tandem {
namespace {

using testing::TempDir;
using testing::TinyModelOptions;
using testing::WriteTinyModel;

MemoryPlanInput PlanInput(const std::string& model_dir, const std::vector<std::string>& overrides) {
  std::vector<std::string> all = {"model.path=" + model_dir, "data.train_files=[/t.jsonl]",
                                  "cluster.run_dir=/r"};
  all.insert(all.end(), overrides.begin(), overrides.end());
  const auto loaded = LoadConfig("", all);
  REQUIRE(loaded.ok());
  const auto spec = LoadModelSpec(model_dir);
  REQUIRE(spec.ok());
  return MakeMemoryPlanInput(*spec, loaded->config, int64_t{1} << 30);
}

TrainerMemoryOptions PlannedOptions(const std::string& model_dir,
                                    const std::vector<std::string>& overrides) {
  return PlanInput(model_dir, overrides).trainer;
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

MemoryPlan PlanWith(const std::string& model_dir, std::vector<std::string> overrides) {
  overrides.push_back("model.lora.rank=64");
  return PlanMemory(LoadModelSpec(model_dir).value(), PlanInput(model_dir, overrides));
}

// Weights that show in pages of 2 MiB.
void WriteWideModel(const std::string& model_dir) {
  TinyModelOptions model;
  model.hidden_size = 1024;
  model.intermediate_size = 4096;
  model.num_heads = 64;
  REQUIRE(WriteTinyModel(model_dir, model).ok());
}

int64_t Bytes(const MemoryPlan& plan, const std::string& phase, bool trainer, const char* tag) {
  int64_t bytes = 0;
  for (const PlannedPhase& planned : plan.phases) {
    if (planned.phase != phase) continue;
    for (const MemoryLine& line : planned.lines) {
      if (line.trainer == trainer && line.tag == tag) bytes += line.bytes;
    }
  }
  return bytes;
}

TEST_CASE("a plan counts adapters beside the base in both workers") {
  const TempDir dir;
  WriteWideModel(dir.path());
  const MemoryPlan merged = PlanWith(dir.path(), {}),
                   beside = PlanWith(dir.path(), {"model.lora.merge=false"});
  ModelSpec spec = LoadModelSpec(dir.path()).value();
  REQUIRE(Bytes(merged, "generate", false, "weights") == RegionBytes(WeightBytes(spec)));
  LoraOptions lora = {.rank = 64, .alpha = 16, .target_modules = {"all-linear"}, .merge = false};
  spec = WithAdapters(spec, lora).value();
  REQUIRE(Bytes(beside, "generate", false, "weights") == RegionBytes(WeightBytes(spec)));
  REQUIRE(Bytes(beside, "generate", false, "weights") >
          Bytes(merged, "generate", false, "weights"));
  REQUIRE(Bytes(beside, "train", true, "gather") > Bytes(merged, "train", true, "gather"));
  // No full gradients of a layer's weights.
  REQUIRE(Bytes(beside, "train", true, "gradients") < Bytes(merged, "train", true, "gradients"));
  REQUIRE(Bytes(beside, "train", true, "master") == Bytes(merged, "train", true, "master"));
}

TEST_CASE("a plan counts what dropout takes, in the trainer alone") {
  const TempDir dir;
  WriteWideModel(dir.path());
  const MemoryPlan none = PlanWith(dir.path(), {"model.lora.merge=false"}),
                   drops =
                       PlanWith(dir.path(), {"model.lora.merge=false", "model.lora.dropout=0.1"});
  // 256 rows of 4096: copies of bf16 in forward and backward, two of fp32 sums; each half as large
  // again as was asked for, in pages of 2 MiB.
  REQUIRE(Bytes(drops, "train", true, "workspace") - Bytes(none, "train", true, "workspace") ==
          (4 + 4 + 12) << 20);
  REQUIRE(Bytes(drops, "generate", false, "workspace") ==
          Bytes(none, "generate", false, "workspace"));
}

TEST_CASE("every line of a plan's phase has a name of its own") {
  const TempDir dir;
  REQUIRE(WriteTinyModel(dir.path()).ok());
  for (const char* merge : {"model.lora.merge=true", "model.lora.merge=false"}) {
    for (const PlannedPhase& phase : PlanWith(dir.path(), {merge}).phases) {
      std::set<std::tuple<bool, std::string, Location, std::string>> names;
      for (const MemoryLine& line : phase.lines) {
        INFO(phase.phase << " " << line.tag << " " << line.part);
        REQUIRE(names.insert({line.trainer, line.tag, line.location, line.part}).second);
      }
    }
  }
}

}  // namespace
}  // namespace tandem
