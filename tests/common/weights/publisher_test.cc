#include <algorithm>
#include <functional>
#include <vector>

#include <catch2/catch.hpp>

#include "tests/common/weights/memory_rollout.h"
#include "tests/fakes/fake_update_client.h"
#include "tests/fakes/memory_weights.h"
#include "tests/support/own_progress.h"
#include "trainer_worker/weight_sync/weight_check.h"
#include "trainer_worker/weight_sync/weight_publisher.h"

namespace tandem {
namespace {

using testing::FakeUpdateClient;
using testing::MemoryReader;
using testing::MemoryRollout;
using testing::MemoryWeights;

struct PublisherFixture {
  WeightLayout layout = WeightLayout::Build(testing::OddSpec(true), DType::kBFloat16);
  MemoryWeights weights{layout, 5};
  MemoryRollout rollout{layout};
  UpdateTransaction& receiver = rollout.receiver;
  FakeUpdateClient client{&receiver};
  WeightPublisher publisher{&layout, {8192, 2, nullptr}};
};

// Notes how often the calling thread had moved when a range was asked for.
class MovesAtRanges : public ExpectedWeights {
 public:
  explicit MovesAtRanges(ExpectedWeights& weights) : weights_(weights) {}
  absl::StatusOr<const void*> Rows(const TensorRows& rows) override {
    moves.push_back(testing::OwnProgress().moves);
    return weights_.Rows(rows);
  }
  absl::StatusOr<std::vector<int64_t>> ExchangeCounts(int64_t mine) override {
    return weights_.ExchangeCounts(mine);
  }

  std::vector<int64_t> moves;

 private:
  ExpectedWeights& weights_;
};

}  // namespace

TEST_CASE("every tensor is gathered once whether or not the rollout holds out") {
  PublisherFixture f;
  const size_t tensors = f.layout.places().size();
  REQUIRE(f.publisher.Publish(1, f.weights, nullptr).ok());
  REQUIRE(f.weights.gathered().size() == tensors);
  f.client.fail_begin = absl::UnavailableError("gone");
  REQUIRE(absl::IsUnavailable(f.publisher.Publish(2, f.weights, &f.client).status()));
  REQUIRE(f.weights.gathered().size() == 2 * tensors);
  f.client.fail_begin = absl::OkStatus();
  f.client.fail_at_bucket = 3;
  REQUIRE(absl::IsUnavailable(f.publisher.Publish(2, f.weights, &f.client).status()));
  REQUIRE(f.weights.gathered().size() == 3 * tensors);
  REQUIRE(f.client.calls.back() == "abort: lost at bucket 3");
}

TEST_CASE("a source that fails aborts the update on the rollout") {
  PublisherFixture f;
  f.weights.fail_at = f.layout.places()[7].name;
  const auto status = f.publisher.Publish(1, f.weights, &f.client).status();
  REQUIRE(status.code() == absl::StatusCode::kInternal);
  REQUIRE(std::string(status.message()).find(f.weights.fail_at) != std::string::npos);
  REQUIRE(f.client.calls.size() == 2);
  REQUIRE(f.client.calls[1].rfind("abort", 0) == 0);
  REQUIRE(!f.receiver.updating());
  REQUIRE(f.receiver.version() == kNoVersion);
  f.weights.fail_at.clear();
  REQUIRE(f.publisher.Publish(1, f.weights, &f.client).ok());
}

TEST_CASE("numbers of updates grow from update to update and over groups of trainers") {
  PublisherFixture f;
  int64_t last = 0;
  for (int i = 0; i < 5; ++i) {
    REQUIRE(f.publisher.Publish(i, f.weights, &f.client).ok());
    REQUIRE(f.client.request().id.update_number > last);
    last = f.client.request().id.update_number;
  }
  PublishOptions of_next_group{8192, 2, nullptr};
  of_next_group.group_generation = 1;
  WeightPublisher restarted(&f.layout, of_next_group);
  REQUIRE(restarted.Publish(9, f.weights, &f.client).ok());
  REQUIRE(f.client.request().id.update_number > last);
}

TEST_CASE("slots are no larger and no more than the update needs") {
  PublisherFixture f;
  WeightPublisher publisher(&f.layout, {int64_t{512} << 20, 2, nullptr});
  int64_t mapped = 0;
  f.client.before_apply = [&](int, std::byte*, const std::vector<BucketEntry>&) {
    mapped = f.client.slots()->shape().slot_bytes * f.client.slots()->slots();
  };
  const auto report = publisher.Publish(1, f.weights, &f.client);
  REQUIRE(report->buckets == 1);
  REQUIRE(mapped < report->bytes + 64 * 1024);
}

TEST_CASE("slots stay between updates only where they may, and are given back when asked") {
  PublisherFixture f;
  for (const int64_t keep : {int64_t{0}, int64_t{1} << 20}) {
    Ledger ledger;
    WeightPublisher publisher(
        &f.layout, {.slot_bytes = 8192, .slots = 2, .ledger = &ledger, .keep_bytes = keep});
    for (int update = 0; update < 3; ++update) {
      REQUIRE(publisher.Publish(update, f.weights, &f.client).ok());
      REQUIRE(BytesOf(ledger.Snapshot(), "bucket") == (keep > 0 ? 2 * 8192 : 0));
    }
    // A rollout that fails does not cost the slots.
    f.client.fail_at_bucket = f.client.buckets + 2;
    REQUIRE(!publisher.Publish(3, f.weights, &f.client).ok());
    f.client.fail_at_bucket = -1;
    REQUIRE(publisher.Publish(4, f.weights, &f.client).ok());
    publisher.ReleaseSlots();
    REQUIRE(BytesOf(ledger.Snapshot(), "bucket") == 0);
  }
}

TEST_CASE("a check passes after a sync and finds one wrong element") {
  PublisherFixture f;
  REQUIRE(f.publisher.Publish(4, f.weights, &f.client).ok());
  MemoryReader reader(f.rollout);
  auto report = CheckWeights(f.layout, f.weights, &reader);
  REQUIRE(report->ok());
  REQUIRE(report->version == 4);
  REQUIRE(report->checked == static_cast<int64_t>(f.layout.places().size()));

  const std::string name = "model.layers.1.mlp.up_proj.weight";
  f.weights.tensor(name)[(5 * 40 + 9) * 2] ^= std::byte{1};
  report = CheckWeights(f.layout, f.weights, &reader);
  REQUIRE(report->mismatched == 1);
  REQUIRE(report->differing == std::vector<std::string>{name});
  REQUIRE(report->first_difference.rfind(name + "[5, 9]: the rollout holds ", 0) == 0);
  // All of them are counted and, up to a limit, named; one is shown.
  for (const TensorPlace& place : f.layout.places()) {
    if (place.name != name) f.weights.tensor(place.name)[0] ^= std::byte{1};
  }
  report = CheckWeights(f.layout, f.weights, &reader);
  REQUIRE(report->mismatched == report->expected);
  REQUIRE(report->differing.size() == f.layout.places().size());
  REQUIRE(report->first_difference.rfind("model.embed_tokens.weight[0, 0]", 0) == 0);
}

TEST_CASE("a digest that is not that of equal elements is a difference, in whichever tensor") {
  PublisherFixture f;
  REQUIRE(f.publisher.Publish(4, f.weights, &f.client).ok());
  MemoryReader reader(f.rollout);
  for (const int64_t tensor : {int64_t{0}, std::ssize(f.layout.places()) - 1}) {
    reader.damage = tensor;
    const auto report = CheckWeights(f.layout, f.weights, &reader);
    REQUIRE(report.ok());
    REQUIRE(!report->ok());
    REQUIRE(report->mismatched == 1);
    const std::string& name = f.layout.places()[static_cast<size_t>(tensor)].name;
    REQUIRE(report->first_difference == name + ": digests differ, elements do not");
  }
}

TEST_CASE("every range of a check is progress") {
  PublisherFixture f;
  MovesAtRanges weights(f.weights);
  REQUIRE(CheckWeights(f.layout, weights, nullptr).ok());
  REQUIRE(weights.moves.size() >= f.layout.places().size());
  REQUIRE(std::adjacent_find(weights.moves.begin(), weights.moves.end(), std::greater_equal<>()) ==
          weights.moves.end());
}

TEST_CASE("a check counts missing and unexpected tensors") {
  PublisherFixture f;
  REQUIRE(f.publisher.Publish(4, f.weights, &f.client).ok());
  MemoryReader reader(f.rollout);
  reader.drop_first = true;
  reader.add = "model.extra";
  const auto report = CheckWeights(f.layout, f.weights, &reader);
  REQUIRE(report->missing == 1);
  REQUIRE(report->unexpected == 1);
  REQUIRE(!report->ok());
  REQUIRE(report->first_difference.find("model.extra") != std::string::npos);
  REQUIRE(report->differing == std::vector<std::string>{"model.extra", f.layout.places()[0].name});
  // Without a rollout nothing is proven.
  const auto unread = CheckWeights(f.layout, f.weights, nullptr);
  REQUIRE(unread->checked == 0);
  REQUIRE(!unread->ok());
}

}  // namespace tandem
