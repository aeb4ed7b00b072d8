// Trainers under LoRA that have trained and saved.
#pragma once

#include <string>
#include <vector>

#include "tests/trainer_worker/trainer_rig.h"

namespace tandem::testing {

inline TrainerOptions WithRank(int64_t rank, double alpha = 8) {
  TrainerOptions options;
  if (rank == 0) return options;
  options.session.lora = {.rank = rank, .alpha = alpha, .target_modules = {"all-linear"}};
  return options;
}

// Two steps, the second of them not saved: what the rollouts hold after it is what a resumed run
// must come to.
struct Saved {
  explicit Saved(TrainerRig& rig, bool lora_only = false) : folder(rig.Folder("step_1")) {
    rig.GiveSamples(RandomSamples(5, 3));
    rig.Reset(1);
    rig.TrainStep(0);
    rig.Sync(1);
    served = rig[0].rollout->storage;
    rig.RunOk([&](TrainerRig::Rank& rank, int) {
      return rank.trainer->SaveState({.directory = folder, .version = 1}).status();
    });
    if (lora_only) return;
    rig.TrainStep(1);
    rig.Sync(2);
    after = rig[0].rollout->receiver.Digests().value();
  }
  const std::string folder;
  std::vector<std::byte> served;
  std::vector<Digest> after;
};

inline std::string MessageOf(const absl::Status& status) { return std::string(status.message()); }

}  // namespace tandem::testing
