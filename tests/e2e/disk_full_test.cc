// The disk fills up while a checkpoint is written: the older one stays, the run ends non-zero.
#include <filesystem>
#include <fstream>
#include <iostream>

#include <catch2/catch.hpp>
#include <fmt/format.h>
#include <sys/mount.h>

#include "tests/e2e/recovery.h"
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

class SmallDisk {
 public:
  SmallDisk(fs::path path, int64_t kibibytes) : path_(std::move(path)) {
    fs::create_directories(path_);
    const std::string options = fmt::format("size={}k", kibibytes);
    mounted_ = mount("tmpfs", path_.c_str(), "tmpfs", 0, options.c_str()) == 0;
  }
  ~SmallDisk() {
    if (mounted_) umount2(path_.c_str(), MNT_DETACH);
  }
  bool mounted() const { return mounted_; }

 private:
  fs::path path_;
  bool mounted_ = false;
};

int64_t BytesIn(const fs::path& folder) {
  int64_t bytes = 0;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (entry.is_regular_file()) bytes += static_cast<int64_t>(entry.file_size());
  }
  return bytes;
}

bool CanMount() {
  const TempDir dir;
  return SmallDisk(dir.path() / "disk", 64).mounted();
}

TEST_CASE("a disk that is full at a checkpoint leaves the older one and ends the run") {
  if (!CanMount()) {
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
  const int code = rig.Launch({"--grace", "5"}).Wait();
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
  if (!CanMount()) return;  // the test above says so
  const RigOptions options{.config = {{"actor.fsdp_config.param_offload", "true"},
                                      {"actor.fsdp_config.optimizer_offload", "true"}}};
  ClusterRig rig(options);
  rig.SetPairs(2);
  rig.UseRunDir("full");
  rig.Set("trainer.save_freq", "1");
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

  // In the middle of a run it goes on, and what the disk lacks is room for a checkpoint alone.
  REQUIRE(rig.Ctl({"step"}).code == 0);
  std::string said = rig.Log("launcher");
  INFO(said << rig.Log("controller"));
  REQUIRE(Has(said, "no checkpoint of step 2: "));
  REQUIRE(Has(said, "No space left on device"));
  REQUIRE_FALSE(Has(said, "recovering"));
  REQUIRE(fs::exists(checkpoints / "step_1" / "model.safetensors"));
  REQUIRE_FALSE(fs::exists(checkpoints / "step_2"));
  REQUIRE_FALSE(fs::exists(checkpoints / "step_2.tmp"));

  fs::remove(filler);
  REQUIRE(rig.Ctl({"step"}).code == 0);
  REQUIRE(rig.Ctl({"stop"}).code == 0);
  REQUIRE(launcher.Wait() == 0);
  REQUIRE(rig.LeftBehind() == "");
  const Outcome outcome = OutcomeOf(rig, 3);
  REQUIRE(outcome.metrics == Undisturbed().metrics);
  REQUIRE(outcome.weights == Undisturbed().weights);
}

}  // namespace
}  // namespace tandem::testing
