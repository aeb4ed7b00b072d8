// The transaction from publisher to receiver, in one process (W1 to W6 and W12 of the test plan:
// scramble, layouts, alias, late reader, bit patterns, abort anywhere, no-op sync).
#include <cstring>
#include <memory>

#include <catch2/catch.hpp>

#include "common/device/ledger.h"
#include "common/weights/update_receiver.h"
#include "common/weights/weight_publisher.h"
#include "tests/fakes/fake_update_client.h"
#include "tests/fakes/memory_weights.h"

namespace tandem {
namespace {

using testing::FakeUpdateClient;
using testing::MemoryWeights;

// A rollout's storage, filled with a pattern that no weights have.
struct Rollout {
  explicit Rollout(const WeightLayout& l)
      : layout(&l),
        storage(l.total_bytes(), std::byte{0xa5}),
        receiver(&l, storage.data(), std::make_shared<ThreadPool>(2)) {}

  bool Holds(MemoryWeights& weights) const {
    const std::vector<Digest> held = receiver.Digests();
    for (size_t t = 0; t < held.size(); ++t) {
      const TensorPlace& place = layout->places()[t];
      const int64_t bytes = MemoryWeights::Bytes(*layout, place);
      std::vector<std::byte> rows(bytes);
      layout->ReadRows(storage.data() + layout->group_offset(place.layer), place, 0, place.rows(),
                       rows.data());
      if (memcmp(rows.data(), weights.tensor(place.name), bytes) != 0) return false;
      if (!(held[t] == DigestOf(rows.data(), bytes))) return false;
    }
    return true;
  }

  const WeightLayout* layout;
  std::vector<std::byte> storage;
  UpdateReceiver receiver;
};

bool Says(const absl::Status& status, const std::string& text) {
  return std::string(status.message()).find(text) != std::string::npos;
}

WeightLayout OddLayout(bool tied = true, DType dtype = DType::kBFloat16) {
  return WeightLayout::Build(testing::OddSpec(tied), dtype);
}

}  // namespace

TEST_CASE("a scrambled rollout holds the trainer's bytes after a sync, whatever the layout") {
  for (const bool tied : {true, false}) {
    for (const DType dtype : {DType::kBFloat16, DType::kFloat32}) {
      const WeightLayout layout = OddLayout(tied, dtype);
      MemoryWeights weights(layout, 1);
      for (const int64_t slot_bytes : {512, 1024, 24080, 1 << 20}) {
        for (const int slots : {1, 2}) {
          Rollout rollout(layout);
          FakeUpdateClient client(&rollout.receiver);
          Ledger ledger;
          WeightPublisher publisher(&layout, {slot_bytes, slots, &ledger});
          const auto report = publisher.Publish(7, weights, &client);
          INFO(report.status().ToString());
          REQUIRE(report.ok());
          REQUIRE(rollout.receiver.version() == 7);
          REQUIRE(rollout.Holds(weights));
          REQUIRE(rollout.receiver.Digests() == publisher.digests());
          REQUIRE(client.buckets == report->buckets);
          REQUIRE(BytesOf(ledger.Snapshot(), "bucket") == 0);
        }
      }
    }
  }
}

TEST_CASE("transfer memory has no hold on the rollout's weights after the commit") {
  const WeightLayout layout = OddLayout();
  MemoryWeights weights(layout, 1);
  Rollout rollout(layout);
  const auto slots = SlotMemory::Create(1 << 20, 1, nullptr);
  REQUIRE(slots.ok());
  const Manifest manifest = ManifestOf(layout);
  const auto buckets = PlanBuckets(manifest, 1 << 20);
  REQUIRE(buckets->size() == 1);
  std::vector<Digest> digests;
  for (const BucketEntry& entry : (*buckets)[0].entries) {
    const ManifestTensor& tensor = manifest[entry.tensor];
    memcpy((*slots)->slot(0) + entry.offset, weights.tensor(tensor.name), tensor.bytes());
    digests.push_back(DigestOf(weights.tensor(tensor.name), tensor.bytes()));
  }
  REQUIRE(rollout.receiver.Begin(1, 1, manifest).ok());
  REQUIRE(rollout.receiver.Apply(1, 1, (*slots)->slot(0), 1 << 20, (*buckets)[0].entries).ok());
  REQUIRE(rollout.receiver.Commit(1, 1, digests).ok());
  memset((*slots)->slot(0), 0xff, 1 << 20);
  REQUIRE(rollout.Holds(weights));
}

TEST_CASE("an update that is lost at any bucket leaves no version and the next one works") {
  const WeightLayout layout = OddLayout();
  MemoryWeights old_weights(layout, 1), weights(layout, 2);
  WeightPublisher publisher(&layout, {4096, 2, nullptr});
  Rollout rollout(layout);
  const auto publish = [&](int64_t version, MemoryWeights& source, int fail_at) {
    FakeUpdateClient client(&rollout.receiver);
    client.fail_at_bucket = fail_at;
    return publisher.Publish(version, source, &client);
  };
  const auto first = publish(1, old_weights, -1);
  REQUIRE(first.ok());
  REQUIRE(first->buckets > 10);
  for (int bucket = 0; bucket < first->buckets; ++bucket) {
    const auto lost = publish(2, weights, bucket);
    REQUIRE(lost.status().code() == absl::StatusCode::kUnavailable);
    REQUIRE(!rollout.receiver.updating());
    // Nothing had been written before bucket 0: version 1 stays.
    REQUIRE(rollout.receiver.version() == (bucket == 0 ? 1 : kNoVersion));
    if (bucket == 0) REQUIRE(rollout.Holds(old_weights));
    REQUIRE(publish(1, old_weights, -1).ok());
    REQUIRE(rollout.receiver.version() == 1);
    REQUIRE(rollout.Holds(old_weights));
  }
}

TEST_CASE("a flipped bit is data loss, names the tensor and empties the rollout") {
  const WeightLayout layout = OddLayout();
  MemoryWeights weights(layout, 1);
  const Manifest manifest = ManifestOf(layout);
  const auto buckets = PlanBuckets(manifest, 4096);
  for (size_t damaged = 0; damaged < buckets->size(); ++damaged) {
    Rollout rollout(layout);
    FakeUpdateClient client(&rollout.receiver);
    std::string tensor;
    client.before_apply = [&](int bucket, std::byte* slot,
                              const std::vector<BucketEntry>& entries) {
      if (bucket != static_cast<int>(damaged)) return;
      tensor = manifest[entries.back().tensor].name;
      slot[entries.back().offset] ^= std::byte{0x10};
    };
    WeightPublisher publisher(&layout, {4096, 2, nullptr});
    const auto status = publisher.Publish(3, weights, &client).status();
    REQUIRE(status.code() == absl::StatusCode::kDataLoss);
    REQUIRE(Says(status, tensor));
    REQUIRE(rollout.receiver.version() == kNoVersion);
    REQUIRE(!rollout.receiver.updating());
  }
}

TEST_CASE("an update without a change still advances the version") {
  const WeightLayout layout = OddLayout();
  MemoryWeights weights(layout, 1);
  Rollout rollout(layout);
  WeightPublisher publisher(&layout, {1 << 16, 2, nullptr});
  FakeUpdateClient client(&rollout.receiver);
  const auto first = publisher.Publish(1, weights, &client);
  REQUIRE(first->changed_tensors == first->tensors);
  REQUIRE(first->changed_bytes_share == 1.0);
  const auto second = publisher.Publish(2, weights, &client);
  REQUIRE(second->changed_tensors == 0);
  REQUIRE(second->digest == first->digest);
  REQUIRE(rollout.receiver.version() == 2);
  weights.tensor("model.norm.weight")[3] ^= std::byte{1};
  const auto third = publisher.Publish(3, weights, &client);
  REQUIRE(third->changed_tensors == 1);
  REQUIRE(third->digest != first->digest);
  REQUIRE(third->changed_bytes_share < 0.01);
}

}  // namespace tandem
