// Masters and moments in files have the same bits as in memory.
#include "common/base/status.h"
#include "tests/trainer_worker/checkpoint_rig.h"

namespace tandem {
namespace {

using namespace tandem::testing;

int64_t Held(const Rank& rank, const std::string& tag, Location location) {
  for (const LedgerEntry& entry : rank.ledger->Snapshot().entries) {
    if (entry.tag == tag && entry.location == location) return entry.current_bytes;
  }
  return 0;
}

int64_t Peak(const Rank& rank, const std::string& tag) {
  for (const LedgerEntry& entry : rank.ledger->Snapshot().entries) {
    if (entry.tag == tag && entry.location == Location::kDevice) return entry.peak_bytes;
  }
  return 0;
}

}  // namespace

TEST_CASE("Offloading changes no bit of training, on any number of ranks", "[trainer][offload]") {
  CheckpointFixture f;
  for (const int world : {1, 2, 3}) {
    TrainerRanks resident(world, f.options);
    TrainerRanks master(world, f.Offloaded(true, false)), both(world, f.Offloaded(true, true));
    for (int step = 0; step < 3; ++step) {
      for (TrainerRanks* group : {&resident, &master, &both}) {
        TrainOn(*group, f.samples);
        StepOn(*group);
      }
      RequireSameState(resident, master);
      RequireSameState(resident, both);
    }
  }
}

TEST_CASE("Offloaded arrays are counted as files and leave the device between steps",
          "[trainer][offload]") {
  CheckpointFixture f;
  TrainerRanks group(2, f.Offloaded(true, true));
  const int64_t bytes = group[0].session->shard().elements() * 4;
  REQUIRE(Held(group[0], "master", Location::kFile) == bytes);
  REQUIRE(Held(group[0], "master", Location::kDevice) == 0);
  REQUIRE(Held(group[0], "optimizer", Location::kFile) == 0);
  TrainOn(group, f.samples);
  REQUIRE(Held(group[0], "optimizer", Location::kFile) == 0);
  group[0].ledger->ResetPeaks();
  StepOn(group);
  REQUIRE(Held(group[0], "optimizer", Location::kFile) == 2 * bytes);
  REQUIRE(Held(group[0], "optimizer", Location::kDevice) == 0);
  REQUIRE(Held(group[0], "master", Location::kDevice) == 0);
  // While it stepped: two buffers for each of the three arrays, of one huge page here.
  REQUIRE(Peak(group[0], "master") == 2 << 21);
  REQUIRE(Peak(group[0], "optimizer") == 4 << 21);
}

TEST_CASE("A checkpoint goes between resident and offloaded trainers", "[trainer][offload]") {
  CheckpointFixture f;
  TrainerRanks resident(2, f.options), offloaded(3, f.Offloaded(true, true));
  TrainOn(resident, f.samples);
  StepOn(resident);
  f.Load(offloaded, f.Save(resident, "a", 1), 1);
  TrainerRanks again(2, f.options);
  f.Load(again, f.Save(offloaded, "b", 1), 1);
  for (TrainerRanks* group : {&resident, &again}) {
    TrainOn(*group, f.samples);
    StepOn(*group);
  }
  RequireSameState(resident, again);
}

TEST_CASE("A rank that has no room for moments leaves no rank a version ahead",
          "[trainer][offload]") {
  CheckpointFixture f;
  for (const int failing : {0, 1}) {
    TrainerRanks group(2, f.Offloaded(false, true));
    TrainOn(group, f.samples);
    const std::vector<std::string> names = group.TensorNames();
    const std::vector<float> before = group.Master(names[0]);
    std::filesystem::remove(group.offload_dir(failing));
    group.Run([](Rank& rank, int) { return rank.session->Step().status(); });
    const absl::Status& own = group[failing].status;
    const absl::Status& other = group[1 - failing].status;
    INFO(own.ToString() << "; " << other.ToString());
    REQUIRE(absl::IsFailedPrecondition(own));
    REQUIRE(absl::IsAborted(other));
    REQUIRE(OriginOf(other) == FailureOrigin::kAnotherRank);
    REQUIRE(std::string(other.message()).find("memory for the optimizer step") !=
            std::string::npos);
    REQUIRE((group.Master(names[0]) == before));
    for (int rank = 0; rank < 2; ++rank) {
      REQUIRE(group[rank].session->optimizer().updates() == 0);
      REQUIRE(group[rank].session->optimizer().schedule_step() == 0);
    }
    // The gradients are still there: with room the step is made.
    std::filesystem::create_directory(group.offload_dir(failing));
    StepOn(group);
    REQUIRE_FALSE((group.Master(names[0]) == before));
  }
}

}  // namespace tandem
