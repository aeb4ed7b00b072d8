#include "controller/plan/disk_plan.h"

#include <map>

#include <catch2/catch.hpp>

#include "common/config/loaded_config.h"
#include "tests/support/temp_dir.h"
#include "tests/support/text.h"

namespace tandem {
namespace {

using testing::Has;

constexpr int64_t kMib = int64_t{1} << 20;

ModelSpec SpecForDisks() {
  const auto spec = ParseModelSpec(
      R"({"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 64,
          "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4,
          "num_key_value_heads": 2, "vocab_size": 100, "rms_norm_eps": 1e-5,
          "rope_theta": 10000.0, "max_position_embeddings": 512, "tie_word_embeddings": true})",
      "", "config.json");
  REQUIRE(spec.ok());
  return *spec;
}

DiskPlan PlanOf(std::vector<std::string> overrides, int64_t steps, int64_t existing = 0) {
  overrides.insert(overrides.begin(),
                   {"cluster.run_dir=/run", "trainer.default_local_dir=/checkpoints"});
  const auto loaded = LoadConfig("", overrides);
  INFO(loaded.status());
  REQUIRE(loaded.ok());
  const auto plan = PlanDisk(SpecForDisks(), loaded->config, steps, existing);
  INFO(plan.status());
  REQUIRE(plan.ok());
  return *plan;
}

const DiskItem& ItemOf(const DiskPlan& plan, const std::string& what) {
  for (const DiskItem& item : plan.items) {
    if (item.what == what) return item;
  }
  FAIL("no item " << what);
  return plan.items.front();
}

// Each folder on a disk of its own, or both on one.
FindDiskSpace Disks(int64_t checkpoints, int64_t run, bool one = false) {
  return [=](const std::string& folder) {
    const bool is_run = folder == "/run";
    return DiskSpace{.device = is_run && !one ? uint64_t{2} : uint64_t{1},
                     .free_bytes = is_run && !one ? run : checkpoints};
  };
}

}  // namespace

TEST_CASE("a checkpoint has masters, and on request moments and the model", "[disk_plan]") {
  const int64_t parameters = SpecForDisks().parameters();
  REQUIRE(PlanOf({}, 10).checkpoint_bytes == 14 * parameters);
  REQUIRE(PlanOf({"actor.checkpoint.save_contents=[optimizer]"}, 10).checkpoint_bytes ==
          12 * parameters);
  REQUIRE(PlanOf({"actor.checkpoint.save_contents=[]"}, 10).checkpoint_bytes == 4 * parameters);
  const std::vector<std::string> lora = {"model.lora.rank=4",
                                         "actor.checkpoint.save_lora_only=true"};
  REQUIRE(PlanOf(lora, 10).checkpoint_bytes < parameters);
}

TEST_CASE("as many checkpoints are planned as are there at once", "[disk_plan]") {
  const auto count = [](const std::string& every, const std::string& keep, int64_t existing = 0) {
    const DiskPlan plan = PlanOf(
        {"trainer.save_freq=" + every, "trainer.max_actor_ckpt_to_keep=" + keep}, 10, existing);
    return ItemOf(plan, "checkpoints").bytes / plan.checkpoint_bytes;
  };
  REQUIRE(count("1", "2") == 3);  // a third is written before the first is deleted
  REQUIRE(count("5", "2") == 2);  // no more are made
  REQUIRE(count("-1", "2") == 1);
  REQUIRE(count("0", "2") == 3);
  REQUIRE(count("1", "0") == 10);
  REQUIRE(count("1", "2", 2) == 1);  // two are there
  REQUIRE(count("1", "2", 7) == 1);
  REQUIRE(PlanOf({"trainer.max_actor_ckpt_to_keep=0"}, 10).grows);
}

TEST_CASE("samples, rows and logs have upper bounds", "[disk_plan]") {
  const std::vector<std::string> sizes = {
      "data.train_batch_size=4",        "rollout.n=2",
      "data.max_prompt_length=10",      "data.max_response_length=20",
      "trainer.sample_files_to_keep=3", "cluster.log_max_mb=2",
      "cluster.log_files_to_keep=1"};
  const DiskPlan plan = PlanOf(sizes, 100);
  REQUIRE(ItemOf(plan, "samples").bytes == 3 * 8 * (4 * 30 + 24 * 20));
  REQUIRE(ItemOf(plan, "run.db and metrics").bytes ==
          100 * (8 * (512 + 5 * 30) + int64_t{64 << 10}));
  REQUIRE(ItemOf(plan, "logs").bytes == 3 * 2 * 2 * kMib);
}

TEST_CASE("texts are counted for as many steps as keep them", "[disk_plan]") {
  const auto rows = [](const std::string& kept) {
    const std::vector<std::string> sizes = {
        "data.train_batch_size=4", "rollout.n=2", "data.max_prompt_length=10",
        "data.max_response_length=20", "trainer.steps_with_texts=" + kept};
    return ItemOf(PlanOf(sizes, 100), "run.db and metrics").bytes;
  };
  REQUIRE(rows("0") - rows("9") == 90 * 8 * 5 * 30);
  REQUIRE(rows("100") == rows("0"));
}

TEST_CASE("sums are made for each file system, and compared with what is free", "[disk_plan]") {
  const DiskPlan plan = PlanOf({"trainer.save_freq=1"}, 10);
  const int64_t checkpoints = ItemOf(plan, "checkpoints").bytes;
  const std::vector<DiskLine> two = DiskPlanText(plan, Disks(checkpoints, int64_t{1} << 40));
  REQUIRE(two.size() == 2);
  REQUIRE(two[0].text.starts_with("disk of /checkpoints: at most "));
  REQUIRE(two[0].fits);
  REQUIRE(two[1].text.starts_with("disk of /run: at most "));
  REQUIRE(two[1].fits);
  const std::vector<DiskLine> one = DiskPlanText(plan, Disks(checkpoints, 0, /*one=*/true));
  REQUIRE(one.size() == 1);
  REQUIRE_FALSE(one[0].fits);
  REQUIRE(Has(one[0].text, "samples"));
}

TEST_CASE("checkpoints that cannot fit are refused with sum, space and remedy", "[disk_plan]") {
  const DiskPlan plan = PlanOf({"trainer.save_freq=1"}, 10);
  const int64_t needed = 3 * plan.checkpoint_bytes;
  REQUIRE(CheckDiskPlan(plan, Disks(needed, 0)).ok());
  const absl::Status refused = CheckDiskPlan(plan, Disks(needed - 1, int64_t{1} << 40));
  REQUIRE(absl::IsResourceExhausted(refused));
  REQUIRE(Has(std::string(refused.message()), "checkpoints need "));
  REQUIRE(Has(std::string(refused.message()), "in /checkpoints"));
  REQUIRE(Has(std::string(refused.message()), "MiB are free"));
  REQUIRE(Has(std::string(refused.message()), "trainer.default_local_dir"));
  // Those that are never deleted grow until the run waits for space; one must fit.
  const DiskPlan all = PlanOf({"trainer.save_freq=1", "trainer.max_actor_ckpt_to_keep=0"}, 10);
  REQUIRE(CheckDiskPlan(all, Disks(all.checkpoint_bytes, 0)).ok());
  REQUIRE_FALSE(CheckDiskPlan(all, Disks(all.checkpoint_bytes - 1, 0)).ok());
}

TEST_CASE("counts beyond all disks do not overflow", "[disk_plan]") {
  const DiskPlan plan =
      PlanOf({"trainer.save_freq=1", "trainer.max_actor_ckpt_to_keep=0",
              "trainer.sample_files_to_keep=0", "data.max_response_length=1000000"},
             1000000000);
  for (const DiskItem& item : plan.items) REQUIRE(item.bytes > 0);
  REQUIRE(DiskPlanText(plan, Disks(1, 1)).size() == 2);
}

TEST_CASE("a folder that is not there yet is on its parent's disk", "[disk_plan]") {
  const testing::TempDir dir;
  const DiskSpace here = DiskSpaceOf(dir.path());
  REQUIRE(here.free_bytes > 0);
  REQUIRE(DiskSpaceOf(dir.path() / "not" / "there").device == here.device);
}

}  // namespace tandem
