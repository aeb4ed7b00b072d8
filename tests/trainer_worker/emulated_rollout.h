// The rollout beside a rank on an emulated GPU, with its own view of the GPU.
#pragma once

#include <atomic>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include <unistd.h>

#include "tests/common/weights/cuda/pair_rig.h"
#include "tests/trainer_worker/trainer_ranks.h"

namespace tandem::testing {

class EmulatedRollout {
 public:
  explicit EmulatedRollout(const WeightLayout& layout)
      : layout_(layout), side_(Way::kIpc, "auto", OfRollout({}), 0) {
    std::byte* const storage = side_.cuda.Malloc(layout_.total_bytes()).value();
    std::memset(storage, 0, static_cast<size_t>(layout_.total_bytes()));
    static std::atomic<int> rollouts = 0;
    WeightUpdatesOptions options;
    options.pair_socket = "/tmp/tandem-rollout-" + std::to_string(getpid()) + "-" +
                          std::to_string(rollouts++) + ".sock";
    options.transport = side_.transport;
    states_.set_mapped(true, true);
    auto ops = CreateCudaStorageOps(&layout_, storage, side_.context.get()).value();
    updates_ = WeightUpdates::Create(std::move(ops), &states_, options).value();
  }
  emulator::EmulatedCuda& cuda() { return side_.cuda; }
  // Collective: what the rank's session sends, or `source`, over NaN.
  absl::StatusOr<PublishReport> Sync(Rank& rank, int64_t version) {
    return Sync(rank, version, *rank.session->weights().MakeWeightSource());
  }
  absl::StatusOr<PublishReport> Sync(Rank& rank, int64_t version, WeightSource& source) {
    PairClient client(&states_, updates_.get());
    client.scramble = true;
    return rank.session->publisher().Publish(version, source, &client);
  }
  int64_t version() const { return updates_->transaction().version(); }
  std::vector<Digest> Held() const { return updates_->transaction().Digests().value(); }

 private:
  const WeightLayout layout_;
  Side side_;
  RolloutStates states_;
  std::unique_ptr<WeightUpdates> updates_;
};

}  // namespace tandem::testing
