// The rollout's end of a pair in one process: sockets, numbers of updates, the trainer's death.
#include <cstring>
#include <filesystem>

#include <absl/time/clock.h>
#include <catch2/catch.hpp>
#include <unistd.h>

#include "common/process/threads.h"
#include "common/weights/manifest.h"
#include "rollout_worker/weights/weight_updates.h"
#include "tests/fakes/memory_weights.h"

namespace tandem {
namespace {

struct PairFixture {
  PairFixture() {
    WeightUpdatesOptions options;
    options.pair_socket = "/tmp/tandem-pair-" + std::to_string(getpid()) + ".sock";
    options.slots_timeout = absl::Milliseconds(200);
    states.set_mapped(true, true);
    auto created = WeightUpdates::Create(
        CreateCpuStorageOps(&layout, storage.data(), std::make_shared<ThreadPool>(1)), &states,
        options);
    REQUIRE(created.ok());
    updates = std::move(created).value();
    auto made = HostTransport()->Create({1 << 20, 1}, SlotLife::kOneUpdate, nullptr);
    REQUIRE(made.ok());
    slots = std::move(made).value();
  }
  absl::Status Begin(int64_t version, int64_t number) {
    states.CloseAdmission();
    return updates->Begin({{version, number}, {1 << 20, 1}, manifest});
  }
  UniqueFd Pass(int64_t number) {
    auto connection = PassSlots(updates->pair_socket(), number, *slots);
    REQUIRE(connection.ok());
    return std::move(connection).value();
  }
  // A whole update's single bucket and digests.
  std::vector<Digest> Fill() {
    std::vector<Digest> digests;
    for (const BucketEntry& entry : plan[0].entries) {
      const ManifestTensor& tensor = manifest[entry.tensor];
      memcpy(slots->slot(0) + entry.offset, weights.tensor(tensor.name), tensor.bytes());
      digests.push_back(DigestOf(weights.tensor(tensor.name), tensor.bytes()));
    }
    return digests;
  }

  WeightLayout layout = WeightLayout::Build(testing::OddSpec(true), DType::kBFloat16);
  Manifest manifest = ManifestOf(layout);
  std::vector<Bucket> plan = *PlanBuckets(manifest, 1 << 20);
  testing::MemoryWeights weights{layout, 1};
  std::vector<std::byte> storage = std::vector<std::byte>(layout.total_bytes());
  RolloutStates states;
  std::unique_ptr<WeightUpdates> updates;
  std::unique_ptr<ProducerSlots> slots;
};

}  // namespace

TEST_CASE("slots of another update are not taken") {
  PairFixture f;
  REQUIRE(f.Begin(1, 100).ok());
  const UniqueFd stale = f.Pass(99);
  const std::vector<Digest> digests = f.Fill();
  REQUIRE(f.updates->Apply({1, 100}, 0, f.plan[0].entries).code() ==
          absl::StatusCode::kDeadlineExceeded);
  const UniqueFd right = f.Pass(100);
  REQUIRE(f.updates->Apply({1, 100}, 0, f.plan[0].entries).ok());
  REQUIRE(f.updates->Commit({1, 100}, digests).ok());
  REQUIRE(f.updates->transaction().version() == 1);
  REQUIRE(PeerClosed(stale.get()));
  REQUIRE(PeerClosed(right.get()));
}

TEST_CASE("slots of another size than announced are refused") {
  PairFixture f;
  REQUIRE(f.updates->Begin({1, 100, {2 << 20, 1}, f.manifest}).ok());
  const UniqueFd connection = f.Pass(100);
  REQUIRE(f.updates->Apply({1, 100}, 0, f.plan[0].entries).code() ==
          absl::StatusCode::kInvalidArgument);
}

TEST_CASE("an update with a larger number replaces an open one and a smaller one does not") {
  PairFixture f;
  REQUIRE(f.updates->AdoptVersion(5).ok());
  REQUIRE(f.Begin(6, 100).ok());
  REQUIRE(f.Begin(6, 100).code() == absl::StatusCode::kAborted);
  REQUIRE(f.Begin(6, 99).code() == absl::StatusCode::kAborted);
  REQUIRE(f.Begin(6, 101).ok());
  REQUIRE(f.updates->transaction().version() == 5);
  const UniqueFd connection = f.Pass(101);
  REQUIRE(f.updates->Apply({6, 100}, 0, f.plan[0].entries).code() == absl::StatusCode::kAborted);
  for (const int slot : {-1, 1}) {
    REQUIRE(f.updates->Apply({6, 101}, slot, f.plan[0].entries).code() ==
            absl::StatusCode::kInvalidArgument);
  }
  REQUIRE(f.updates->Apply({6, 101}, 0, f.plan[0].entries).ok());
  REQUIRE(f.Begin(7, 102).ok());
  REQUIRE(f.updates->transaction().version() == kNoVersion);
}

TEST_CASE("the end of the connection ends the update, and the next one works") {
  PairFixture f;
  REQUIRE(f.updates->AdoptVersion(5).ok());
  REQUIRE(f.Begin(6, 100).ok());
  REQUIRE(f.updates->Poll().ok());
  UniqueFd connection = f.Pass(100);
  REQUIRE(f.updates->Apply({6, 100}, 0, {f.plan[0].entries[0]}).ok());
  REQUIRE(f.updates->Poll().ok());
  connection.Reset();
  const absl::Status gone = f.updates->Poll();
  REQUIRE(gone.code() == absl::StatusCode::kUnavailable);
  REQUIRE(std::string(gone.message()).find("version 6") != std::string::npos);
  REQUIRE(!f.updates->transaction().updating());
  REQUIRE(f.updates->transaction().version() == kNoVersion);
  REQUIRE(f.updates->Poll().ok());

  REQUIRE(f.Begin(6, 101).ok());
  connection = f.Pass(101);
  const std::vector<Digest> digests = f.Fill();
  REQUIRE(f.updates->Apply({6, 101}, 0, f.plan[0].entries).ok());
  REQUIRE(f.updates->Commit({6, 101}, digests).ok());
}

TEST_CASE("an abort of another version or update is ignored") {
  PairFixture f;
  REQUIRE(f.Begin(6, 100).ok());
  f.updates->Abort({5, 100});
  f.updates->Abort({6, 99});
  REQUIRE(f.updates->transaction().updating());
  REQUIRE(f.updates->Commit({6, 99}, {}).code() == absl::StatusCode::kAborted);
  REQUIRE(f.updates->transaction().updating());
  f.updates->Abort({6, 100});
  REQUIRE(!f.updates->transaction().updating());
  f.updates->Abort({6, 100});
}

TEST_CASE("rows are read back only from complete weights and within bounds") {
  PairFixture f;
  const std::string name = "model.embed_tokens.weight";
  REQUIRE(f.updates->ReadRows(name, 0, 1).status().code() == absl::StatusCode::kFailedPrecondition);
  REQUIRE(f.Begin(1, 1).ok());
  const UniqueFd connection = f.Pass(1);
  const std::vector<Digest> digests = f.Fill();
  REQUIRE(f.updates->Apply({1, 1}, 0, f.plan[0].entries).ok());
  REQUIRE(f.updates->Commit({1, 1}, digests).ok());
  const auto rows = f.updates->ReadRows(name, 300, 1);
  REQUIRE(rows.ok());
  REQUIRE(memcmp(rows->data(), f.weights.tensor(name) + 300 * 80, 80) == 0);
  REQUIRE(f.updates->ReadRows(name, 300, 2).status().code() == absl::StatusCode::kInvalidArgument);
  REQUIRE(f.updates->ReadRows("nothing", 0, 1).status().code() == absl::StatusCode::kNotFound);
}

TEST_CASE("the socket file goes with the updates and a stale one is no obstacle") {
  std::string path;
  {
    PairFixture first;
    path = first.updates->pair_socket();
    REQUIRE(std::filesystem::exists(path));
  }
  REQUIRE(!std::filesystem::exists(path));
  PairFixture second;
  REQUIRE(std::filesystem::exists(path));
}

}  // namespace tandem
