// W1: the rollout's weights are NaN before the first byte of an update arrives, so that missing
// bytes are found: by the digests, or by the check if bytes and digests are wrong alike.
#include <cstring>
#include <memory>

#include <catch2/catch.hpp>

#include "common/process/threads.h"
#include "tests/common/weights/layout_zoo.h"
#include "tests/common/weights/memory_rollout.h"
#include "tests/fakes/fake_update_client.h"
#include "tests/fakes/memory_weights.h"
#include "tests/support/text.h"
#include "trainer_worker/weight_sync/weight_check.h"

namespace tandem {
namespace {

using testing::FakeUpdateClient;
using testing::MemoryReader;
using testing::MemoryRollout;
using testing::MemoryWeights;
using testing::Says;

constexpr char kVictim[] = "model.layers.1.self_attn.k_proj.weight";

// What digests are announced of a tensor that is sent as it was at the start.
enum class Announced { kWhatWasMeant, kWhatIsSent };

// Hands out a tensor as it was at the start: a trainer whose export of it does nothing.
class FrozenTensor : public testing::WholeTensors {
 public:
  FrozenTensor(const WeightLayout& layout, MemoryWeights& now, MemoryWeights& then, Announced what)
      : layout_(layout), now_(now), then_(then), what_(what) {}
  absl::StatusOr<const void*> Gather(const TensorPlace& place) override {
    return place.name == kVictim ? then_.Gather(place) : now_.Gather(place);
  }
  absl::StatusOr<std::vector<Digest>> Digests() override {
    if (what_ == Announced::kWhatWasMeant) return now_.Digests();
    std::vector<Digest> digests;
    for (const TensorPlace& place : layout_.places()) {
      TANDEM_ASSIGN_OR_RETURN(const void* rows, Gather(place));
      digests.push_back(DigestOf(rows, MemoryWeights::Bytes(layout_, place)));
    }
    return digests;
  }

 private:
  const WeightLayout& layout_;
  MemoryWeights& now_;
  MemoryWeights& then_;
  const Announced what_;
};

}  // namespace

TEST_CASE("W1: a scramble fills every tensor with NaN and leaves the padding zero") {
  for (const testing::ZooModel& model : testing::LayoutZoo()) {
    INFO(model.name);
    const WeightLayout layout = WeightLayout::Build(model.spec, model.dtype);
    MemoryWeights weights(layout, 1);
    MemoryRollout rollout(layout);
    FakeUpdateClient client(&rollout.receiver);
    WeightPublisher publisher(&layout, {1 << 16, 2, nullptr});
    REQUIRE(publisher.Publish(1, weights, &client).ok());
    const std::vector<std::byte> before = rollout.storage;

    REQUIRE(rollout.receiver.Scramble().code() == absl::StatusCode::kFailedPrecondition);
    REQUIRE(rollout.receiver.Begin({2, int64_t{1} << 62}, ManifestOf(layout)).ok());
    REQUIRE(rollout.receiver.version() == 1);
    REQUIRE(rollout.receiver.Scramble().ok());
    REQUIRE(rollout.receiver.applied());
    REQUIRE(rollout.receiver.version() == kNoVersion);
    for (const TensorPlace& place : layout.places()) {
      std::vector<std::byte> rows(MemoryWeights::Bytes(layout, place));
      layout.ReadRows(rollout.storage.data() + layout.group_offset(place.layer), place, 0,
                      place.rows(), rows.data());
      REQUIRE(std::all_of(rows.begin(), rows.end(), [](auto b) { return b == std::byte{0xff}; }));
    }
    REQUIRE(std::count(rollout.storage.begin(), rollout.storage.end(), std::byte{0xff}) ==
            ManifestBytes(ManifestOf(layout)));
    rollout.receiver.Abort();
    REQUIRE(rollout.receiver.version() == kNoVersion);
    // A whole update puts back every byte of the storage, padding included.
    client.scramble = true;
    REQUIRE(publisher.Publish(3, weights, &client).ok());
    REQUIRE(rollout.storage == before);
  }
}

TEST_CASE("W1: a receiver that does nothing for one tensor is caught by the digest") {
  const WeightLayout layout = WeightLayout::Build(testing::OddSpec(true), DType::kBFloat16);
  MemoryWeights weights(layout, 1);
  const TensorPlace& victim = **layout.Find(kVictim);
  for (const bool scramble : {false, true}) {
    MemoryRollout rollout(layout);
    FakeUpdateClient client(&rollout.receiver);
    WeightPublisher publisher(&layout, {4096, 2, nullptr});
    REQUIRE(publisher.Publish(1, weights, &client).ok());
    // Undoes every write to the tensor.
    std::byte* const group = rollout.storage.data() + layout.group_offset(victim.layer);
    std::vector<std::byte> kept(MemoryWeights::Bytes(layout, victim));
    const auto keep = [&] { layout.ReadRows(group, victim, 0, victim.rows(), kept.data()); };
    client.before_apply = [&](int, std::byte*, const auto&) { keep(); };
    client.after_apply = [&](const auto&) {
      layout.WriteRows(group, victim, 0, victim.rows(), kept.data());
    };
    client.scramble = scramble;
    // Without NaN an update that changes nothing cannot tell: the old bytes are the right ones.
    const absl::Status same = publisher.Publish(2, weights, &client).status();
    REQUIRE(same.code() == (scramble ? absl::StatusCode::kDataLoss : absl::StatusCode::kOk));
    weights.tensor(kVictim)[5] ^= std::byte{1};
    const absl::Status changed = publisher.Publish(3, weights, &client).status();
    REQUIRE(changed.code() == absl::StatusCode::kDataLoss);
    REQUIRE(Says(changed, std::string(kVictim) + " of version 3 arrived damaged"));
    REQUIRE(rollout.receiver.version() == kNoVersion);
  }
}

TEST_CASE("W1: a bucket that does not get the bytes of one tensor is caught by the digest") {
  const WeightLayout layout = WeightLayout::Build(testing::OddSpec(true), DType::kBFloat16);
  MemoryWeights weights(layout, 1);
  const auto victim = static_cast<int32_t>(*layout.Find(kVictim) - layout.places().data());
  const Manifest manifest = ManifestOf(layout);
  MemoryRollout rollout(layout);
  FakeUpdateClient client(&rollout.receiver);
  client.before_apply = [&](int, std::byte* slot, const std::vector<BucketEntry>& entries) {
    for (const BucketEntry& entry : entries) {
      if (entry.tensor != victim) continue;
      memset(slot + entry.offset, 0, entry.rows * manifest[victim].row_bytes());
    }
  };
  WeightPublisher publisher(&layout, {4096, 2, nullptr});
  const absl::Status status = publisher.Publish(1, weights, &client).status();
  REQUIRE(status.code() == absl::StatusCode::kDataLoss);
  REQUIRE(Says(status, kVictim));
}

TEST_CASE("W1: a publisher that goes on sending one tensor's old bytes is caught") {
  const WeightLayout layout = WeightLayout::Build(testing::OddSpec(true), DType::kBFloat16);
  MemoryWeights start(layout, 1), now(layout, 2);
  MemoryRollout rollout(layout);
  FakeUpdateClient client(&rollout.receiver);
  client.scramble = true;
  WeightPublisher publisher(&layout, {4096, 2, nullptr});
  FrozenTensor frozen(layout, now, start, Announced::kWhatWasMeant);
  // By the digests of what was meant to arrive.
  const absl::Status refused = publisher.Publish(1, frozen, &client).status();
  REQUIRE(refused.code() == absl::StatusCode::kDataLoss);
  REQUIRE(Says(refused, std::string(kVictim) + " of version 1 arrived damaged"));
  // By the check alone, where the digests are as wrong as the bytes: they prove the transport then.
  FrozenTensor convinced(layout, now, start, Announced::kWhatIsSent);
  REQUIRE(publisher.Publish(1, convinced, &client).ok());
  MemoryReader reader(rollout);
  const auto report = CheckWeights(layout, now, &reader);
  REQUIRE(report.ok());
  REQUIRE(!report->ok());
  REQUIRE(report->expected == static_cast<int64_t>(layout.places().size()));
  REQUIRE(report->checked == report->expected);
  REQUIRE(report->mismatched == 1);
  REQUIRE(report->differing == std::vector<std::string>{kVictim});
  REQUIRE(report->first_difference.find(std::string(kVictim) + "[0, 0]: the rollout holds ") == 0);
}

}  // namespace tandem
