// Trainer and rollout as two processes: whole updates with small and large slots (W10), and the
// death or hang of either side (W11).
#include <signal.h>

#include "common/net/update_codec.h"
#include "tests/common/weights/memory_rollout.h"
#include "tests/common/weights/pair_processes.h"
#include "tests/fakes/fake_update_client.h"
#include "tests/support/units.h"

namespace tandem {
namespace {

using testing::FakeUpdateClient;
using testing::kMiB;
using testing::kPatience;
using testing::MemoryRollout;
using testing::MemoryWeights;
using testing::Pair;
using testing::PairWays;
using testing::SharedMemoryHeld;
using testing::WaitUntil;

// By every way that weights may go here.
std::string Way() { return GENERATE(from_range(PairWays())); }

}  // namespace

TEST_CASE("W10: updates with small and large slots give equal digests in two processes") {
  Pair pair("full", Way());
  const auto rollout = pair.StartRollout();
  const bool full = pair.size == "full";
  int64_t version = 0;
  std::string digest;
  const auto weights = pair.Weights(11);
  for (const int64_t slot_bytes : {4 * kMiB, 64 * kMiB, 512 * kMiB}) {
    // Differs from the last version, so that nothing of it may be left.
    for (const TensorPlace& place : pair.layout.places()) {
      weights->tensor(place.name)[0] ^= std::byte{0x5a};
    }
    const auto report = pair.Publish(++version, *weights, full ? slot_bytes : slot_bytes / 64);
    INFO(report.status().ToString());
    REQUIRE(report.ok());
    REQUIRE(report->tensors == (full ? 272 : 20));
    if (full) {
      REQUIRE(report->buckets >= (slot_bytes == 4 * kMiB ? 64 : slot_bytes == 64 * kMiB ? 5 : 1));
    }
    const WeightCheckReport check = pair.Check(*weights);
    REQUIRE(check.ok());
    REQUIRE(check.checked == report->tensors);
    REQUIRE(check.version == version);
    REQUIRE(report->digest != digest);
    digest = report->digest;
    // The path within one process, with slots of another size, computes the same.
    MemoryRollout here(pair.layout);
    FakeUpdateClient client(&here.receiver);
    WeightPublisher publisher(&pair.layout, {3 * kMiB, 1, nullptr});
    MemoryWeights same(pair.layout, 11);
    for (const TensorPlace& place : pair.layout.places()) {
      memcpy(same.tensor(place.name), weights->tensor(place.name),
             static_cast<size_t>(MemoryWeights::Bytes(pair.layout, place)));
    }
    REQUIRE(publisher.Publish(version, same, &client)->digest == digest);
    REQUIRE(publisher.digests() == GrpcUpdateClient(pair.channel, {}).Digests()->digests);
  }
  REQUIRE(BytesOf(pair.ledger.Snapshot(), "bucket") == 0);
  REQUIRE(SharedMemoryHeld() == 0);
}

TEST_CASE("W11: a rollout killed in an update is reported and its successor is filled") {
  Pair pair("small", Way());
  const auto weights = pair.Weights(3);
  for (const int at : {0, 1, 7}) {
    const auto victim = pair.StartRollout("die", at);
    const absl::Status status = pair.Publish(1, *weights, 65536).status();
    INFO(status.ToString());
    REQUIRE(status.code() == absl::StatusCode::kUnavailable);
    // By a call, or by its device.
    REQUIRE(std::string(status.message()).find("rollout") != std::string::npos);
    REQUIRE(victim->Wait() == -SIGKILL);
    REQUIRE(SharedMemoryHeld() == 0);
    REQUIRE(BytesOf(pair.ledger.Snapshot(), "bucket") == 0);

    const auto successor = pair.StartRollout();
    REQUIRE(pair.Publish(1, *weights, 65536).ok());
    REQUIRE(pair.Check(*weights).ok());
  }
}

TEST_CASE("W11: a trainer killed in an update empties the rollout and its successor fills it") {
  Pair pair("small", Way());
  const auto rollout = pair.StartRollout();
  const auto weights = pair.Weights(3);
  REQUIRE(pair.Publish(1, *weights, 65536).ok());
  // Before the first bucket the descriptor lies in the socket and nothing has been applied.
  for (const int at : {0, 1, 9}) {
    REQUIRE(pair.StartTrainer(4, 2, "die", at)->Wait() == -SIGKILL);
    const v1::RolloutStatusResponse status = pair.Status();
    // The first bucket may or may not have been sent before the death that followed it.
    if (at == 0) REQUIRE(status.version() == 1);
    if (at == 9) REQUIRE(status.version() == -1);
    REQUIRE(status.state() == (status.version() < 0 ? v1::EMPTY : v1::SERVING));
    REQUIRE(status.last_action().find("the trainer died during the update to version 2") == 0);
    REQUIRE(pair.Publish(3 + at, *weights, 65536).ok());
    REQUIRE(pair.Status().version() == 3 + at);
    REQUIRE(pair.Check(*weights).ok());
  }
}

TEST_CASE("W11: a rollout that stalls is a deadline for the trainer") {
  Pair pair("small", Way());
  const auto rollout = pair.StartRollout("stall", 2);
  const auto weights = pair.Weights(3);
  // The rollout stands still until it is killed: without the deadline the update would not end.
  const absl::Status status = pair.Publish(1, *weights, 65536, absl::Milliseconds(500)).status();
  INFO(status.ToString());
  REQUIRE(status.code() == absl::StatusCode::kDeadlineExceeded);
  REQUIRE(SharedMemoryHeld() == 0);
}

TEST_CASE("W11: a trainer that stalls holds no one up: the next one takes over") {
  Pair pair("small", Way());
  const auto rollout = pair.StartRollout();
  const auto weights = pair.Weights(3);
  // The trainer takes part in the same generation, as its first update.
  REQUIRE(pair.Publish(1, *weights, 65536).ok());
  const auto stalled = pair.StartTrainer(4, 2, "stall", 5);
  WaitUntil("the trainer's update", [&] { return pair.Status().state() == v1::UPDATING; });
  REQUIRE(pair.Publish(3, *weights, 65536).ok());
  REQUIRE(pair.Status().version() == 3);
  REQUIRE(pair.Check(*weights).ok());
}

TEST_CASE("a call of another update or version is aborted and leaves the open update alone") {
  Pair pair("small", Way());
  const auto rollout = pair.StartRollout();
  const auto stub = v1::RolloutService::NewStub(pair.channel);
  const auto begin = [&](int64_t version, int64_t number) {
    grpc::ClientContext context;
    SetDeadline(context, kPatience);
    v1::BeginUpdateRequest request;
    request.set_version(version);
    request.set_generation(number);
    request.set_slot_bytes(65536);
    request.set_slots(1);
    ToProto(ManifestOf(pair.layout), request.mutable_manifest());
    v1::BeginUpdateResponse response;
    return stub->BeginUpdate(&context, request, &response).error_code();
  };
  const auto apply = [&](int64_t version, int64_t number) {
    grpc::ClientContext context;
    SetDeadline(context, kPatience);
    v1::ApplyBucketRequest request;
    request.set_version(version);
    request.set_generation(number);
    v1::ApplyBucketResponse response;
    return stub->ApplyBucket(&context, request, &response).error_code();
  };
  REQUIRE(begin(1, 100) == grpc::StatusCode::OK);
  REQUIRE(begin(1, 100) == grpc::StatusCode::ABORTED);
  REQUIRE(begin(2, 99) == grpc::StatusCode::ABORTED);
  REQUIRE(apply(1, 99) == grpc::StatusCode::ABORTED);
  REQUIRE(apply(2, 100) == grpc::StatusCode::ABORTED);
  REQUIRE(pair.Status().state() == v1::UPDATING);
  REQUIRE(begin(2, 101) == grpc::StatusCode::OK);
  REQUIRE(apply(1, 100) == grpc::StatusCode::ABORTED);
}

TEST_CASE("one wrong element is found by the check across processes") {
  Pair pair("small", Way());
  const auto rollout = pair.StartRollout();
  const auto weights = pair.Weights(3);
  REQUIRE(pair.Publish(1, *weights, 1 << 16).ok());
  const TensorPlace& embedding = *pair.layout.Find("model.embed_tokens.weight").value();
  const int64_t row = embedding.rows() - 2, column = embedding.cols() - 1;
  weights->tensor(embedding.name)[(row * embedding.cols() + column) * 2 + 1] ^= std::byte{0x40};
  const WeightCheckReport report = pair.Check(*weights);
  REQUIRE(report.mismatched == 1);
  REQUIRE(report.first_difference.find(fmt::format("{}[{}, {}]", embedding.name, row, column)) ==
          0);
}

}  // namespace tandem
