// The disk fills up: the run waits between two steps, says so, and goes on when there is space. A
// stop ends it meanwhile, and the older checkpoint stays.
#include <filesystem>
#include <fstream>
#include <iostream>

#include <catch2/catch.hpp>
#include <fmt/format.h>

#include "controller/store/sqlite/run_reader.h"
#include "tests/e2e/recovery.h"
#include "tests/support/small_disk.h"
#include "tests/support/text.h"

namespace tandem::testing {
namespace {

namespace fs = std::filesystem;

// The checkpoint of step 1 is whole, and the next start continues from it to the same end.
void RequireResumes(ClusterRig& rig) {
  const int code = rig.Launch().Wait();
  INFO(rig.Log("launcher"));
  REQUIRE(code == 0);
  REQUIRE(Has(rig.Log("launcher"), "resuming after step"));
  REQUIRE(rig.LeftBehind() == "");
}

int64_t BytesIn(const fs::path& folder) {
  int64_t bytes = 0;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (entry.is_regular_file()) bytes += static_cast<int64_t>(entry.file_size());
  }
  return bytes;
}

// Rows of a run's store, as far as they are equal in equal runs.
struct StoredRows {
  std::vector<int64_t> steps;
  std::vector<std::string> samples;  // in their order
  friend bool operator==(const StoredRows&, const StoredRows&) = default;
};

StoredRows RowsOf(const ClusterRig& rig, int64_t steps) {
  const auto store = *SqliteRunReader::Open(rig.run_dir() + "/run.db");
  StoredRows rows;
  const std::vector<StepRecord> stored = *store->ListSteps({});
  for (const StepRecord& step : stored) rows.steps.push_back(step.step);
  for (int64_t step = 1; step <= steps; ++step) {
    const SampleRecordPage page = *store->ListSamples({.step = step});
    for (const SampleRecord& sample : page.samples) {
      rows.samples.push_back(
          fmt::format("{} {} {} {}", step, sample.sample_id, sample.response, sample.reward));
    }
  }
  return rows;
}

TEST_CASE(
    "a disk that is full at a checkpoint leaves the older one and waits until it is stopped") {
  if (!CanMountDisks()) {
    std::cout << "skipped: only root can mount the small disk that this test fills; "
                 "e2e_file_limit_test makes the same writes fail in another way"
              << std::endl;
    std::_Exit(77);
  }
  ClusterRig rig;
  rig.SetPairs(2);
  rig.Set("trainer.total_training_steps", "1");
  REQUIRE(rig.Launch().Wait() == 0);
  const int64_t checkpoint_bytes = BytesIn(rig.run_dir() + "/checkpoints");
  // Room for one and a half.
  const fs::path disk = rig.dir() / "disk";
  SmallDisk small(disk, checkpoint_bytes * 3 / 2 / 1024);
  REQUIRE(small.mounted());
  rig.UseRunDir("full");
  rig.Set("trainer.total_training_steps", "2");
  rig.Set("trainer.default_local_dir", disk);
  rig.Set("trainer.disk_retry_seconds", "0.5");
  TestProcess& launcher = rig.Launch({"--grace", "5"});
  rig.WaitForStatus("the run to wait for space", [&](const auto& status) {
    return Has(status.waits_for(),
               "no space on " + disk.string() + " for the checkpoint of step 2");
  });
  const ClusterRig::CtlResult shown = rig.Ctl({"status"});
  REQUIRE(Has(shown.output, "waits: no space on "));
  REQUIRE(Has(shown.output, " MiB needed, "));
  REQUIRE(rig.Ctl({"stop"}).code == 0);
  const int code = launcher.Wait();
  const std::string said = rig.Log("launcher") + rig.Log("controller");
  INFO(said);
  REQUIRE(code == 74);
  REQUIRE_FALSE(Has(said, "recovering"));
  REQUIRE(rig.LeftBehind() == "");
  REQUIRE(Has(said, "step_2"));
  REQUIRE(Has(said, "No space left on device"));
  REQUIRE(fs::exists(disk / "step_1" / "model.safetensors"));
  REQUIRE_FALSE(fs::exists(disk / "step_2"));
  REQUIRE_FALSE(fs::exists(disk / "step_2.tmp"));

  rig.Set("trainer.default_local_dir", rig.dir() / "larger");
  fs::copy(disk, rig.dir() / "larger", fs::copy_options::recursive);
  RequireResumes(rig);
}

// Masters and moments lie on the disk that fills up, in files that have their room already.
TEST_CASE("a disk that is full at a checkpoint takes nothing from offloaded masters and moments") {
  if (!CanMountDisks()) return;  // the test above says so
  const RigOptions options{.config = {{"actor.fsdp_config.param_offload", "true"},
                                      {"actor.fsdp_config.optimizer_offload", "true"}}};
  ClusterRig rig(options);
  rig.SetPairs(2);
  rig.UseRunDir("full");
  rig.Set("trainer.save_freq", "1");
  rig.Set("trainer.disk_retry_seconds", "0.5");
  rig.Set("trainer.total_training_steps", "3");
  SmallDisk disk(rig.run_dir(), 256 << 10);
  REQUIRE(disk.mounted());
  TestProcess& launcher = rig.Launch({"--start-paused"});
  rig.WaitForStatus("the run to wait", [](const auto& s) { return s.state() == "paused"; });
  REQUIRE(rig.Ctl({"step"}).code == 0);
  const fs::path checkpoints = fs::path(rig.run_dir()) / "checkpoints";
  const int64_t checkpoint_bytes = BytesIn(checkpoints / "step_1");
  const int64_t room = static_cast<int64_t>(fs::space(rig.run_dir()).available);
  // Room for half a checkpoint.
  const fs::path filler = fs::path(rig.run_dir()) / "filler";
  std::ofstream(filler) << std::string(static_cast<size_t>(room - checkpoint_bytes / 2), 'x');
  REQUIRE(static_cast<int64_t>(fs::space(rig.run_dir()).available) < checkpoint_bytes);

  // What the disk lacks is room for a checkpoint alone.
  TestProcess& step = rig.StartCtl({"step"});
  rig.WaitForStatus("the run to wait for space", [](const auto& status) {
    return Has(status.waits_for(), "for the checkpoint of step 2");
  });
  REQUIRE(fs::exists(checkpoints / "step_1" / "model.safetensors"));
  REQUIRE_FALSE(fs::exists(checkpoints / "step_2"));
  fs::remove(filler);
  REQUIRE(step.Wait() == 0);
  const std::string said = rig.Log("launcher");
  INFO(said << rig.Log("controller"));
  REQUIRE(Has(said, "No space left on device"));
  REQUIRE(Has(said, "the run continues"));
  REQUIRE_FALSE(Has(said, "recovering"));
  REQUIRE(fs::exists(checkpoints / "step_2" / "model.safetensors"));
  REQUIRE_FALSE(fs::exists(checkpoints / "step_2.tmp"));

  REQUIRE(rig.Ctl({"step"}).code == 0);
  REQUIRE(rig.Ctl({"stop"}).code == 0);
  REQUIRE(launcher.Wait() == 0);
  REQUIRE(rig.LeftBehind() == "");
  const Outcome outcome = OutcomeOf(rig, 3);
  REQUIRE(outcome.metrics == Undisturbed().metrics);
  REQUIRE(outcome.weights == Undisturbed().weights);
}

TEST_CASE("a run on a disk without any space waits, goes on and has lost no row") {
  if (!CanMountDisks()) return;  // the first test says so
  const RigOptions options{.config = {{"trainer.save_batch_freq", "1"}}};
  ClusterRig undisturbed(options);
  undisturbed.SetPairs(2);
  REQUIRE(undisturbed.Launch().Wait() == 0);

  ClusterRig rig(options);
  rig.SetPairs(2);
  rig.Set("trainer.disk_retry_seconds", "0.5");
  const SmallDisk disk(rig.run_dir(), 256 << 10);
  REQUIRE(disk.mounted());
  TestProcess& launcher = rig.Launch({"--start-paused"});
  rig.WaitForStatus("the run to wait", [](const auto& s) { return s.state() == "paused"; });
  for (int step = 1; step <= 3; ++step) {
    disk.Fill(0);
    TestProcess& done = rig.StartCtl({"step"});
    rig.WaitForStatus("the run to wait for space",
                      [](const auto& status) { return !status.waits_for().empty(); });
    disk.Empty();
    const int code = done.Wait();
    INFO(rig.Log("launcher") << rig.Log("controller"));
    REQUIRE(code == 0);
  }
  REQUIRE(rig.Ctl({"stop"}).code == 0);
  REQUIRE(launcher.Wait() == 0);
  REQUIRE(rig.LeftBehind() == "");
  REQUIRE_FALSE(Has(rig.Log("launcher"), "recovering"));
  const Outcome outcome = OutcomeOf(rig, 3);
  REQUIRE(outcome.metrics == Undisturbed().metrics);
  REQUIRE(outcome.weights == Undisturbed().weights);
  REQUIRE(RowsOf(rig, 3).steps == std::vector<int64_t>{1, 2, 3});
  REQUIRE(RowsOf(rig, 3) == RowsOf(undisturbed, 3));
  for (int step = 1; step <= 3; ++step) {
    REQUIRE(rig.HasRunFile(fmt::format("batches/step_{}.batch", step)));
    REQUIRE(rig.StoredRecords(step) == undisturbed.StoredRecords(step));
  }
}

TEST_CASE("a disk without any space costs partial rollout no token") {
  if (!CanMountDisks()) return;  // the first test says so
  const RigOptions options{.config = {{"rollout.partial.max_tokens_per_round", "6"},
                                      {"rollout.partial.groups_per_round", "6"},
                                      {"data.max_response_length", "16"}}};
  const Outcome undisturbed = RunUndisturbed(options);
  ClusterRig rig(options);
  rig.SetPairs(2);
  rig.Set("trainer.disk_retry_seconds", "0.5");
  const SmallDisk disk(rig.run_dir(), 256 << 10);
  REQUIRE(disk.mounted());
  TestProcess& launcher = rig.Launch({"--start-paused"});
  rig.WaitForStatus("the run to wait", [](const auto& s) { return s.state() == "paused"; });
  for (int step = 1; step <= 3; ++step) {
    disk.Fill(0);
    TestProcess& done = rig.StartCtl({"step"});
    rig.WaitForStatus("the run to wait for space",
                      [](const auto& status) { return !status.waits_for().empty(); });
    disk.Empty();
    const int code = done.Wait();
    INFO(rig.Log("launcher") << rig.Log("controller"));
    REQUIRE(code == 0);
  }
  REQUIRE(rig.Ctl({"stop"}).code == 0);
  REQUIRE(launcher.Wait() == 0);
  const Outcome outcome = OutcomeOf(rig, 3);
  REQUIRE(outcome.weights == undisturbed.weights);
  REQUIRE(outcome.metrics == undisturbed.metrics);
}

TEST_CASE("a run that is stopped while it waits for a disk has all rows after the next start") {
  if (!CanMountDisks()) return;  // the first test says so
  ClusterRig undisturbed;
  undisturbed.SetPairs(2);
  REQUIRE(undisturbed.Launch().Wait() == 0);

  ClusterRig rig;
  rig.SetPairs(2);
  rig.Set("trainer.disk_retry_seconds", "0.5");
  const SmallDisk disk(rig.run_dir(), 256 << 10);
  // Checkpoints have space: the step whose rows are missing must not be saved all the same.
  rig.Set("trainer.default_local_dir", rig.dir() / "elsewhere");
  TestProcess& launcher = rig.Launch({"--start-paused"});
  rig.WaitForStatus("the run to wait", [](const auto& s) { return s.state() == "paused"; });
  REQUIRE(rig.Ctl({"step"}).code == 0);
  disk.Fill(0);
  TestProcess& done = rig.StartCtl({"step"});
  rig.WaitForStatus("the run to wait for space",
                    [](const auto& status) { return !status.waits_for().empty(); });
  REQUIRE(rig.Ctl({"stop"}).code == 0);
  const int code = launcher.Wait();
  disk.Empty();
  done.Wait();
  INFO(rig.Log("launcher") << rig.Log("controller"));
  REQUIRE(code == 74);
  REQUIRE(rig.LeftBehind() == "");
  REQUIRE(fs::exists(rig.dir() / "elsewhere" / "step_1"));
  REQUIRE_FALSE(fs::exists(rig.dir() / "elsewhere" / "step_2"));

  REQUIRE(rig.Launch().Wait() == 0);
  REQUIRE(RowsOf(rig, 3) == RowsOf(undisturbed, 3));
  REQUIRE(OutcomeOf(rig, 3).metrics == Undisturbed().metrics);
}

}  // namespace
}  // namespace tandem::testing
