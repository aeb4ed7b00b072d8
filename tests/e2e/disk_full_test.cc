// The disk fills up while a checkpoint is written: the older one stays, the run ends non-zero.
#include <filesystem>
#include <fstream>

#include <catch2/catch.hpp>
#include <fmt/format.h>
#include <sys/mount.h>

#include "tests/e2e/recovery.h"

namespace tandem::testing {
namespace {

namespace fs = std::filesystem;

bool Has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// The checkpoint of step 1 is whole and the next start goes on from it to the same end.
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

TEST_CASE("a disk that is full at a checkpoint leaves the older one and ends the run") {
  ClusterRig rig;
  rig.Set("trainer.total_training_steps", "1");
  REQUIRE(rig.Launch().Wait() == 0);
  int64_t checkpoint_bytes = 0;
  for (const auto& entry : fs::recursive_directory_iterator(rig.run_dir() + "/checkpoints")) {
    if (entry.is_regular_file()) checkpoint_bytes += static_cast<int64_t>(entry.file_size());
  }
  // Room for one and a half.
  const fs::path disk = rig.dir() / "disk";
  SmallDisk small(disk, checkpoint_bytes * 3 / 2 / 1024);
  if (!small.mounted()) {
    WARN("no tmpfs can be mounted here: skipped, the next case limits file sizes instead");
    return;
  }
  rig.UseRunDir("full");
  rig.Set("trainer.total_training_steps", "2");
  rig.Set("trainer.default_local_dir", disk);
  const int code = rig.Launch({"--grace", "5"}).Wait();
  const std::string said = rig.Log("launcher") + rig.Log("controller");
  INFO(said);
  REQUIRE(code > 0);
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

TEST_CASE("a file that may not grow at a checkpoint ends the run with its path") {
  ClusterRig rig;
  rig.Set("trainer.total_training_steps", "1");
  REQUIRE(rig.Launch().Wait() == 0);
  const auto weights = static_cast<int64_t>(rig.Weights(1).size());
  rig.Set("trainer.total_training_steps", "2");
  rig.LimitFileSize(3 * weights);  // the training state is six times as large
  const int code = rig.Launch({"--grace", "5"}).Wait();
  const std::string said = rig.Log("launcher") + rig.Log("controller");
  INFO(said);
  REQUIRE(code > 0);
  REQUIRE(rig.LeftBehind() == "");
  REQUIRE(Has(said, "checkpoints/step_2"));
  REQUIRE(Has(said, "File too large"));
  REQUIRE_FALSE(rig.Weights(1).empty());
  REQUIRE_FALSE(rig.HasRunFile("checkpoints/step_2"));
}

}  // namespace
}  // namespace tandem::testing
