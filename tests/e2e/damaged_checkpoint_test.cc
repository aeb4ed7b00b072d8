// A checkpoint whose bytes changed on disk is refused as an input, and the run continues from an
// older one.
#include <filesystem>
#include <fstream>

#include <catch2/catch.hpp>

#include "tests/e2e/recovery.h"
#include "tests/support/text.h"

namespace tandem::testing {
namespace {

namespace fs = std::filesystem;

// Changes a byte in the middle of a file, which keeps its size.
void Damage(const fs::path& path) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  const auto middle = static_cast<std::streamoff>(fs::file_size(path) / 2);
  file.seekg(middle);
  const int byte = file.get();
  file.seekp(middle);
  file.put(static_cast<char>(byte ^ 0x10));
  REQUIRE(file.good());
}

// Returns its name.
std::string DamageLargestFile(const fs::path& folder) {
  fs::path largest;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (!entry.is_regular_file()) continue;
    if (largest.empty() || entry.file_size() > fs::file_size(largest)) largest = entry.path();
  }
  Damage(largest);
  return largest.filename().string();
}

TEST_CASE("a damaged checkpoint ends the start with 65, file, tensor and the way on") {
  ClusterRig rig;
  rig.SetPairs(2);
  rig.Set("trainer.total_training_steps", "2");
  REQUIRE(rig.Launch().Wait() == 0);
  const std::string expected = rig.Weights(2);
  fs::remove(rig.run_dir() + "/checkpoints/finished");
  rig.Set("trainer.total_training_steps", "3");
  const std::string damaged = DamageLargestFile(rig.run_dir() + "/checkpoints/step_2");

  int code = rig.Launch({"--grace", "5"}).Wait();
  const std::string said = rig.Log("launcher") + rig.Log("controller");
  INFO(said);
  REQUIRE(code == 65);
  REQUIRE(Has(said, "step_2 cannot be loaded: "));
  REQUIRE(Has(said, damaged));
  REQUIRE(Has(said, "is damaged: the digest of "));
  const std::string older = rig.run_dir() + "/checkpoints/step_1";
  REQUIRE(Has(said, "trainer.resume_from_path=" + older));
  REQUIRE_FALSE(Has(said, "recovering"));
  REQUIRE(rig.HasRunFile("checkpoints/step_2/controller_state.json"));
  REQUIRE(rig.LeftBehind() == "");

  rig.Set("trainer.total_training_steps", "2");
  rig.Set("trainer.resume_mode", "resume_path");
  rig.Set("trainer.resume_from_path", older);
  code = rig.Launch().Wait();
  INFO(rig.Log("launcher"));
  REQUIRE(code == 0);
  REQUIRE(rig.Weights(2) == expected);
}

TEST_CASE("damaged weights in a checkpoint end the start with 65, the file and the way on") {
  ClusterRig rig;
  rig.SetPairs(2);
  rig.Set("trainer.total_training_steps", "2");
  REQUIRE(rig.Launch().Wait() == 0);
  rig.Set("trainer.total_training_steps", "3");
  const std::string file = rig.run_dir() + "/checkpoints/step_2/model.safetensors";
  Damage(file);
  const int code = rig.Launch({"--grace", "5"}).Wait();
  const std::string said = rig.Log("launcher") + rig.Log("controller");
  INFO(said);
  REQUIRE(code == 65);
  REQUIRE(Has(said, file + " is damaged: "));
  REQUIRE(Has(said, "trainer.resume_from_path=" + rig.run_dir() + "/checkpoints/step_1"));
  REQUIRE_FALSE(Has(said, "recovering"));
  REQUIRE(rig.LeftBehind() == "");
}

TEST_CASE("a damaged pool of carried groups: the run goes on from the checkpoint before") {
  const RigOptions options{.config = {{"rollout.partial.max_tokens_per_round", "6"},
                                      {"rollout.partial.groups_per_round", "6"},
                                      {"data.max_response_length", "16"}}};
  const Outcome undisturbed = RunUndisturbed(options);
  ClusterRig rig(options);
  rig.SetPairs(2);
  rig.Set("trainer.total_training_steps", "2");
  REQUIRE(rig.Launch().Wait() == 0);
  fs::remove(rig.run_dir() + "/checkpoints/finished");
  const std::string checkpoint = rig.run_dir() + "/checkpoints/step_2";
  Damage(checkpoint + "/partial_pool/pool.jsonl");
  rig.Set("trainer.total_training_steps", "3");
  const int code = rig.Launch().Wait();
  const std::string said = rig.Log("launcher");
  INFO(said);
  REQUIRE(code == 0);
  REQUIRE(
      Has(said, "newer checkpoints are incomplete and are skipped; their steps will be repeated"));
  REQUIRE(Has(said, checkpoint + "/partial_pool/pool.jsonl: "));
  const Outcome outcome = OutcomeOf(rig, 3);
  REQUIRE(outcome.weights == undisturbed.weights);
  REQUIRE(outcome.metrics == undisturbed.metrics);
}

}  // namespace
}  // namespace tandem::testing
