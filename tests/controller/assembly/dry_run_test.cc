// A dry run prints the memory plan and leaves no files.
#include "controller/assembly/dry_run.h"

#include <filesystem>
#include <fstream>

#include <catch2/catch.hpp>

#include "common/base/status.h"
#include "common/config/loaded_config.h"
#include "tests/fakes/fake_run.h"
#include "tests/support/small_disk.h"
#include "tests/support/temp_dir.h"
#include "tests/support/tiny_model.h"

namespace tandem {
namespace {

struct Said {
  bool fits = false;
  std::string last, all;
};

// A dry run in a folder of its own, which must leave no run directory there.
absl::StatusOr<Said> TryDryRun(const std::vector<std::string>& more) {
  const testing::TempDir dir;
  const std::string base = dir.path().string();
  REQUIRE(testing::WriteTinyModel(dir.path() / "model").ok());
  std::ofstream(dir.path() / "train.jsonl")
      << R"({"prompt": "What is 3 + 4?", "data_source": "tandem/addition",)"
      << R"( "reward_model": {"ground_truth": "7"}})" << std::endl;
  std::vector<std::string> overrides = {
      "model.path=" + base + "/model",   "data.train_files=" + base + "/train.jsonl",
      "data.train_batch_size=1",         "data.max_prompt_length=64",
      "data.max_response_length=64",     "rollout.gpu_memory_utilization=0.01",
      "trainer.total_training_steps=1",  "trainer.default_local_dir=" + base + "/checkpoints",
      "cluster.run_dir=" + base + "/run"};
  overrides.insert(overrides.end(), more.begin(), more.end());
  const auto loaded = LoadConfig("", overrides);
  INFO(loaded.status().ToString());
  REQUIRE(loaded.ok());
  testing::RecordingProgress progress;
  TANDEM_ASSIGN_OR_RETURN(const bool fits, DryRun(loaded->config, progress));
  REQUIRE_FALSE(std::filesystem::exists(base + "/run"));
  Said said{.fits = fits, .last = progress.messages.back()};
  for (const std::string& message : progress.messages) said.all += message + "\n";
  return said;
}

Said DryRunOf(const std::vector<std::string>& more) {
  const absl::StatusOr<Said> said = TryDryRun(more);
  INFO(said.status().ToString());
  REQUIRE(said.ok());
  return *said;
}

TEST_CASE("A dry run ends with whether the plan fits", "[dry_run]") {
  const Said fine = DryRunOf({});
  INFO(fine.all);
  REQUIRE(fine.all.find("trainer 0 to rollout 0") != std::string::npos);
  REQUIRE(fine.all.find("just measured") != std::string::npos);
  REQUIRE(fine.fits);
  REQUIRE(fine.last ==
          "dry run: config, model, data, plan and run directory are fine; nothing was started");
  // Activations of a prefill of 2^30 tokens.
  const Said large = DryRunOf({"rollout.max_num_batched_tokens=1073741824"});
  INFO(large.all);
  REQUIRE_FALSE(large.fits);
  REQUIRE(large.all.find("memory may run out; what to change:") != std::string::npos);
  REQUIRE(large.last ==
          "dry run: the plan does not fit; config, model, data and run directory are fine; nothing "
          "was started");
}

TEST_CASE("A dry run of a weight check needs no folder for checkpoints, one of training does",
          "[dry_run]") {
  const std::string unwritable = "trainer.default_local_dir=/proc/checkpoints";
  const Said check = DryRunOf({unwritable, "weight_sync.check_only=true"});
  INFO(check.all);
  REQUIRE(check.fits);
  REQUIRE(check.all.find("a start now: from the model; no checkpoint is in /proc/checkpoints") !=
          std::string::npos);
  const absl::Status training = TryDryRun({unwritable}).status();
  REQUIRE(absl::IsPermissionDenied(training));
  REQUIRE(training.message().find("trainer.default_local_dir: cannot make the folder") !=
          std::string::npos);
}

TEST_CASE("A dry run tells what will be written, and refuses checkpoints that no disk holds",
          "[dry_run]") {
  const Said said = DryRunOf({});
  INFO(said.all);
  REQUIRE(said.all.find("disk of ") != std::string::npos);
  REQUIRE(said.all.find(": checkpoints ") != std::string::npos);
  const testing::TempDir dir;
  const testing::SmallDisk small(dir.path() / "disk", 64);
  if (!small.mounted()) return;  // only root can; disk_plan_test.cc has the refusal itself
  const absl::Status refused =
      TryDryRun({"trainer.default_local_dir=" + (small.path() / "checkpoints").string()}).status();
  INFO(refused);
  REQUIRE(absl::IsResourceExhausted(refused));
  REQUIRE(refused.message().find("trainer.max_actor_ckpt_to_keep") != std::string::npos);
}

TEST_CASE("A dry run for GPUs does not speak of a plan that it did not make", "[dry_run]") {
  const Said said = DryRunOf({"trainer.device=cuda"});
  INFO(said.all);
  REQUIRE(said.fits);
  REQUIRE(said.all.find("memory: planned at the launch") != std::string::npos);
  REQUIRE(said.last ==
          "dry run: config, model, data and run directory are fine; nothing was started");
}

}  // namespace
}  // namespace tandem
