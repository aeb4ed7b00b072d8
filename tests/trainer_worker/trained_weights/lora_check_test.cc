// A weight check under LoRA compares with the files of the given directory.
#include <filesystem>
#include <fstream>

#include "tests/trainer_worker/trained_weights/saved_adapters.h"
#include "trainer_worker/trained_weights/adapter_files.h"

namespace tandem {
namespace {

using namespace tandem::testing;
namespace fs = std::filesystem;

// Flips a bit of an exponent in the middle of a file of tensors, whose size stays.
void FlipBit(const std::string& path) {
  std::fstream stream(path, std::ios::in | std::ios::out | std::ios::binary);
  const auto size = static_cast<std::streamoff>(fs::file_size(path));
  const std::streamoff middle = size - 1 - size / 2 / 4 * 4;  // the last byte of an element
  stream.seekg(middle);
  const int byte = stream.get();
  stream.seekp(middle);
  stream.put(static_cast<char>(byte ^ 0x40));
  REQUIRE(stream.good());
}

TrainerOptions Merging(bool merge) {
  TrainerOptions options = WithRank(4);
  options.session.lora.merge = merge;
  return options;
}

absl::StatusOr<CheckResult> CheckAgainst(TrainerRig& rig, const std::string& directory) {
  return rig[0].trainer->CheckWeights({.rollout_address = "0", .hf_checkpoint = directory});
}

}  // namespace

TEST_CASE("a check against a directory reads its files, and finds one bit on the disk",
          "[trainer][lora]") {
  // With merged weights the model's; without, or where adapters alone were saved, the adapter's.
  for (const auto& [merge, lora_only] :
       {std::pair{true, false}, {true, true}, {false, false}, {false, true}}) {
    TrainerOptions options = Merging(merge);
    options.save_hf_model = !lora_only;
    TrainerRig rig(1, options);
    const Saved saved(rig, /*lora_only=*/true);
    const std::string adapter = saved.folder + "/" + kAdapterFolder;
    CAPTURE(merge, lora_only);
    for (const std::string& directory : {saved.folder, adapter}) {
      const auto good = CheckAgainst(rig, directory);
      INFO(good.status().ToString());
      REQUIRE(good->weights.ok());
      REQUIRE(good->weights.checked > 0);
    }
    const bool model = merge && !lora_only;
    FlipBit(model ? saved.folder + "/model.safetensors" : adapter + "/adapter_model.safetensors");
    const auto bad = CheckAgainst(rig, saved.folder);
    INFO(bad.status().ToString());
    REQUIRE(bad->weights.mismatched == 1);
    REQUIRE(bad->weights.first_difference.find("]: the rollout holds ") != std::string::npos);
    // The trainers' adapters are as they were.
    REQUIRE(CheckAgainst(rig, "")->weights.ok());
  }
}

TEST_CASE("the adapters of an older checkpoint differ from those that are served",
          "[trainer][lora]") {
  for (const bool merge : {true, false}) {
    TrainerRig rig(2, Merging(merge));
    const Saved saved(rig);
    const auto check = CheckAgainst(rig, saved.folder + "/" + kAdapterFolder);
    INFO(check.status().ToString());
    REQUIRE(check->weights.mismatched > 10);
  }
}

TEST_CASE("what cannot be compared with is an error by name", "[trainer][lora]") {
  for (const bool merge : {true, false}) {
    TrainerRig rig(1, Merging(merge));
    const Saved saved(rig, /*lora_only=*/true);
    const auto said = [&](const std::string& directory) {
      const auto check = CheckAgainst(rig, directory);
      REQUIRE_FALSE(check.ok());
      return MessageOf(check.status());
    };
    REQUIRE(said("/nope/does/not/exist") ==
            "weights cannot be compared with /nope/does/not/exist: there is no such directory");
    const std::string empty = rig.Folder("empty");
    REQUIRE(said(empty) == "weights cannot be compared with " + empty +
                               ": it has neither model.safetensors nor lora_adapter");
    if (!merge) {
      REQUIRE(said(rig.model_dir()).find("it has a model and no lora_adapter") !=
              std::string::npos);
    }
    const std::string file =
        merge ? saved.folder + "/model.safetensors"
              : saved.folder + "/" + kAdapterFolder + "/adapter_model.safetensors";
    fs::resize_file(file, fs::file_size(file) / 2);
    REQUIRE(said(saved.folder).find(file) != std::string::npos);
    fs::remove(file);
    REQUIRE(said(saved.folder).find(fs::path(file).parent_path().string()) != std::string::npos);
    TrainerRig other(1, WithRank(8));
    const Saved eight(other, /*lora_only=*/true);
    REQUIRE(said(eight.folder + "/" + kAdapterFolder).find("rank") != std::string::npos);
  }
}

}  // namespace tandem
