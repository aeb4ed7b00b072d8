// The transaction from publisher to receiver, in one process: layouts (W2), alias (W3), late reader
// (W4), bit patterns (W5), abort anywhere (W6), no-op sync (W12).
#include <algorithm>
#include <cstring>
#include <map>
#include <memory>

#include <catch2/catch.hpp>

#include "common/device/ledger.h"
#include "tests/common/weights/layout_zoo.h"
#include "tests/common/weights/memory_rollout.h"
#include "tests/fakes/fake_update_client.h"
#include "tests/fakes/memory_weights.h"
#include "tests/support/text.h"
#include "trainer_worker/weight_sync/weight_publisher.h"

namespace tandem {
namespace {

using testing::FakeUpdateClient;
using testing::MemoryRollout;
using testing::MemoryWeights;
using testing::Says;

WeightLayout OddLayout(bool tied = true, DType dtype = DType::kBFloat16) {
  return WeightLayout::Build(testing::OddSpec(tied), dtype);
}

}  // namespace

TEST_CASE("W2: a rollout holds the trainer's bytes after a sync, whatever layout and slots") {
  for (const testing::ZooModel& model : testing::LayoutZoo()) {
    const WeightLayout layout = WeightLayout::Build(model.spec, model.dtype);
    MemoryWeights gathered(layout, 1), shard(layout, 2);
    shard.Share();
    // A few rows, exactly a tensor (the embedding of "round sizes" in bf16), an odd size,
    // everything.
    for (const int64_t slot_bytes : {1024, 65536, 24080, 1 << 20}) {
      for (const auto& [direct, slots] :
           {std::pair(false, 1), std::pair(false, 2), std::pair(true, 1), std::pair(true, 2)}) {
        MemoryWeights& weights = direct ? shard : gathered;
        INFO(model.name << ", " << slots << (direct ? " pieces" : " slots") << " of "
                        << slot_bytes);
        MemoryRollout rollout(layout);
        FakeUpdateClient client(&rollout.receiver);
        client.scramble = true;
        Ledger ledger;
        WeightPublisher publisher(&layout, {slot_bytes, slots, &ledger, 0, slot_bytes});
        const auto report = publisher.Publish(7, weights, &client);
        INFO(report.status().ToString());
        REQUIRE(report.ok());
        REQUIRE(rollout.receiver.version() == 7);
        REQUIRE(rollout.Holds(weights));
        REQUIRE(rollout.receiver.Digests().value() == publisher.digests());
        REQUIRE(report->direct == direct);
        REQUIRE(client.buckets == report->buckets);
        REQUIRE(BytesOf(ledger.Snapshot(), "bucket") == 0);
      }
    }
  }
}

TEST_CASE("W3: transfer memory has no hold on the rollout's weights after the commit") {
  const WeightLayout layout = OddLayout();
  MemoryWeights weights(layout, 1);
  MemoryRollout rollout(layout);
  const auto slots = HostTransport()->Create({1 << 20, 1}, SlotLife::kOneUpdate, nullptr);
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
  REQUIRE(rollout.receiver.Begin({1, 1}, manifest).ok());
  REQUIRE(rollout.receiver.Apply({1, 1}, {(*slots)->slot(0), 1 << 20}, (*buckets)[0].entries).ok());
  REQUIRE(rollout.receiver.Commit({1, 1}, digests).ok());
  memset((*slots)->slot(0), 0xff, 1 << 20);
  REQUIRE(rollout.Holds(weights));
}

TEST_CASE("W4: a slot is filled again only after the rollout has read it, however late that is") {
  const WeightLayout layout = OddLayout();
  MemoryWeights weights(layout, 1);
  for (const int slots : {1, 2}) {
    MemoryRollout rollout(layout);
    // Reads a slot no sooner than the publisher waits for it.
    class LateReader : public FakeUpdateClient {
     public:
      using FakeUpdateClient::FakeUpdateClient;
      absl::Status StartApply(int slot, const std::vector<BucketEntry>& entries) override {
        const std::byte* bytes = FakeUpdateClient::slots()->slot(slot);
        filled[slot].assign(bytes, bytes + FakeUpdateClient::slots()->shape().slot_bytes);
        return FakeUpdateClient::StartApply(slot, entries);
      }
      std::map<int, std::vector<std::byte>> filled;
    } client(&rollout.receiver);
    int late = 0;
    client.before_apply = [&](int bucket, std::byte* slot, const std::vector<BucketEntry>&) {
      const std::vector<std::byte>& then = client.filled[bucket % slots];
      REQUIRE(std::equal(then.begin(), then.end(), slot));
      ++late;
    };
    WeightPublisher publisher(&layout, {4096, slots, nullptr});
    const auto report = publisher.Publish(1, weights, &client);
    REQUIRE(report.ok());
    REQUIRE(late == report->buckets);
    REQUIRE(rollout.Holds(weights));
  }
}

TEST_CASE("W5: every bit pattern crosses, and slots hold nothing but payload") {
  ModelSpec spec = testing::OddSpec(true);
  spec.vocab_size = 1700;  // 68,000 elements
  const WeightLayout layout = WeightLayout::Build(spec, DType::kBFloat16);
  MemoryWeights weights(layout, 1);
  auto* embedding = reinterpret_cast<uint16_t*>(weights.tensor("model.embed_tokens.weight"));
  for (int i = 0; i < 1700 * 40; ++i) embedding[i] = static_cast<uint16_t>(i);
  MemoryRollout rollout(layout);
  FakeUpdateClient client(&rollout.receiver);
  client.scramble = true;
  const Manifest manifest = ManifestOf(layout);
  client.before_apply = [&](int, std::byte* slot, const std::vector<BucketEntry>& entries) {
    // One bucket in fresh memory: what no entry covers is as the system gave it.
    std::vector<std::byte> rest(slot, slot + client.slots()->shape().slot_bytes);
    for (const BucketEntry& entry : entries) {
      const int64_t bytes = entry.rows * manifest[entry.tensor].row_bytes();
      const auto row = static_cast<const std::byte*>(weights.tensor(manifest[entry.tensor].name)) +
                       entry.row * manifest[entry.tensor].row_bytes();
      REQUIRE(memcmp(slot + entry.offset, row, bytes) == 0);
      memset(rest.data() + entry.offset, 0, bytes);
    }
    REQUIRE(std::all_of(rest.begin(), rest.end(), [](auto b) { return b == std::byte{0}; }));
  };
  WeightPublisher publisher(&layout, {1 << 20, 2, nullptr});
  REQUIRE(publisher.Publish(1, weights, &client)->buckets == 1);
  REQUIRE(rollout.Holds(weights));
}

TEST_CASE("W6: an update that is lost at any bucket leaves no version and the next one works") {
  const WeightLayout layout = OddLayout();
  MemoryWeights old_weights(layout, 1), weights(layout, 2);
  WeightPublisher publisher(&layout, {4096, 2, nullptr});
  MemoryRollout rollout(layout);
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

TEST_CASE("W6: a flipped bit is data loss, names the tensor and empties the rollout") {
  const WeightLayout layout = OddLayout();
  MemoryWeights weights(layout, 1);
  const Manifest manifest = ManifestOf(layout);
  const auto buckets = PlanBuckets(manifest, 4096);
  for (size_t damaged = 0; damaged < buckets->size(); ++damaged) {
    MemoryRollout rollout(layout);
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

TEST_CASE("W12: an update without a change still advances the version") {
  const WeightLayout layout = OddLayout();
  MemoryWeights weights(layout, 1);
  MemoryRollout rollout(layout);
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
