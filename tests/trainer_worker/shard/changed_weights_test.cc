#include "trainer_worker/shard/changed_weights.h"

#include <cstring>

#include "tests/trainer_worker/trainer_rig.h"

namespace tandem {
namespace {

using namespace tandem::testing;

// What each rank says of a sync of `version`.
std::vector<double> SharesOf(TrainerRig& rig, int64_t version) {
  std::vector<double> shares(static_cast<size_t>(rig.size()));
  rig.RunOk([&](TrainerRig::Rank& rank, int index) -> absl::Status {
    TANDEM_ASSIGN_OR_RETURN(const SyncResult result,
                            rank.trainer->SyncWeights(rig.SyncFor(version, index)));
    shares[static_cast<size_t>(index)] = result.changed_share;
    return absl::OkStatus();
  });
  return shares;
}

}  // namespace

TEST_CASE("The changed share is 1 at the first sync, less after a step, the same when sent again",
          "[trainer]") {
  TrainerRig rig(2);
  rig.GiveSamples(RandomSamples(4, 2));
  rig.Reset(1);
  std::vector<double> shares;
  for (int64_t version = 0; version < 2; ++version) {
    for (int repeat = 0; repeat < 2; ++repeat) shares.push_back(SharesOf(rig, version)[0]);
    if (version == 0) rig.TrainStep(0);
  }
  REQUIRE(shares[0] == 1.0);
  REQUIRE(shares[1] == 1.0);
  REQUIRE(shares[2] > 0.1);
  REQUIRE(shares[2] <= 1.0);
  REQUIRE(shares[3] == shares[2]);
}

TEST_CASE("The changed share of several steps counts an element once, however often it changed",
          "[trainer]") {
  for (const DType dtype : {DType::kBFloat16, DType::kFloat32}) {
    TrainerRig rig(2, {.dtype = dtype});
    rig.GiveSamples(RandomSamples(4, 2));
    rig.Reset(1);
    rig.Sync(0);
    const std::vector<std::byte> before = rig[0].rollout->storage;
    rig.RunOk([&](TrainerRig::Rank& rank, int) -> absl::Status {
      for (int64_t step = 0; step < 3; ++step) {
        ForwardBackwardCommand command = rig.TrainCommand(step);
        command.mini_batch = step;
        command.mini_batches = 3;
        TANDEM_RETURN_IF_ERROR(rank.trainer->ForwardBackward(command).status());
        TANDEM_RETURN_IF_ERROR(rank.trainer->OptimizerStep(step + 1).status());
      }
      return absl::OkStatus();
    });
    const std::vector<double> shares = SharesOf(rig, 3);
    const std::vector<std::byte>& after = rig[0].rollout->storage;
    const size_t bytes = DTypeBytes(dtype);
    int64_t changed = 0;
    for (size_t at = 0; at < after.size(); at += bytes) {
      changed += std::memcmp(&before[at], &after[at], bytes) != 0 ? 1 : 0;
    }
    int64_t elements = 0;
    for (const TensorPlace& place : rig.layout().places()) elements += place.rows() * place.cols();
    INFO(changed << " of " << elements);
    REQUIRE(changed > 0);
    if (dtype == DType::kBFloat16) REQUIRE(changed < elements);
    for (const double share : shares) {
      REQUIRE(share == Approx(static_cast<double>(changed) / static_cast<double>(elements)));
    }
  }
}

TEST_CASE("The changed share of a sync that was made again is that of the first attempt",
          "[trainer]") {
  TrainerRig rig(2);
  rig.GiveSamples(RandomSamples(4, 2));
  rig.Reset(1);
  rig.Sync(0);
  rig.TrainStep(0);
  // One rank's rollout commits, the other's does not.
  rig[1].rollout->client.fail_at_bucket = rig[1].rollout->client.buckets + 1;
  rig.Run([&](TrainerRig::Rank& rank, int index) {
    return rank.trainer->SyncWeights(rig.SyncFor(1, index)).status();
  });
  REQUIRE(rig[0].status.ok());
  REQUIRE_FALSE(rig[1].status.ok());
  rig[1].rollout->client.fail_at_bucket = -1;
  const std::vector<double> again = SharesOf(rig, 1);
  TrainerRig undisturbed(2);
  undisturbed.GiveSamples(RandomSamples(4, 2));
  undisturbed.Reset(1);
  undisturbed.Sync(0);
  undisturbed.TrainStep(0);
  REQUIRE(again == SharesOf(undisturbed, 1));
  REQUIRE(again[0] > 0.1);
  REQUIRE(again[1] == again[0]);
}

}  // namespace tandem
