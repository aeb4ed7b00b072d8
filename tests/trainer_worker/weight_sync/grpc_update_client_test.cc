// What a rollout is told, and the slots of buckets that are still being applied.
#include "trainer_worker/weight_sync/grpc_update_client.h"

#include <absl/time/clock.h>
#include <catch2/catch.hpp>
#include <grpcpp/grpcpp.h>

#include "common/base/log.h"
#include "common/base/status.h"
#include "common/net/channel.h"
#include "common/net/update_codec.h"
#include "common/weights/peer_connection.h"
#include "tandem/v1/rollout.grpc.pb.h"
#include "tests/support/listen_for_slots.h"
#include "tests/support/patience.h"
#include "tests/support/temp_dir.h"
#include "tests/support/text.h"

namespace tandem {
namespace {

using testing::kPatience;
using testing::Says;
using testing::TempDir;

// Keeps the requests of an update and accepts them all.
class RecordingRollout : public v1::RolloutService::Service {
 public:
  explicit RecordingRollout(std::string pair_socket) : pair_socket_(std::move(pair_socket)) {}
  grpc::Status BeginUpdate(grpc::ServerContext*,
                           const v1::BeginUpdateRequest* request,
                           v1::BeginUpdateResponse* response) override {
    begun = *request;
    response->set_pair_socket(pair_socket_);
    response->set_data_address(offer.address);
    response->set_ticket(offer.ticket);
    return grpc::Status::OK;
  }
  grpc::Status ApplyBucket(grpc::ServerContext*,
                           const v1::ApplyBucketRequest* request,
                           v1::ApplyBucketResponse*) override {
    applied = *request;
    return grpc::Status::OK;
  }
  grpc::Status CommitUpdate(grpc::ServerContext*,
                            const v1::CommitUpdateRequest* request,
                            v1::CommitUpdateResponse*) override {
    committed = *request;
    return grpc::Status::OK;
  }
  grpc::Status AbortUpdate(grpc::ServerContext*,
                           const v1::AbortUpdateRequest* request,
                           v1::AbortUpdateResponse*) override {
    aborted = *request;
    return grpc::Status::OK;
  }

  StreamOffer offer;
  v1::BeginUpdateRequest begun;
  v1::ApplyBucketRequest applied;
  v1::CommitUpdateRequest committed;
  v1::AbortUpdateRequest aborted;

 private:
  const std::string pair_socket_;
};

// Begins updates and answers nothing else, as a machine that has vanished.
class VanishedRollout final : public RecordingRollout {
 public:
  VanishedRollout() : RecordingRollout("") {}
  grpc::Status ApplyBucket(grpc::ServerContext* context,
                           const v1::ApplyBucketRequest*,
                           v1::ApplyBucketResponse*) override {
    while (!context->IsCancelled()) absl::SleepFor(absl::Milliseconds(5));
    return grpc::Status::CANCELLED;
  }
};

template <typename Request>
void RequireNames(const Request& request, UpdateId id) {
  REQUIRE(request.incarnation() == 7);
  REQUIRE(request.version() == id.version);
  REQUIRE(request.generation() == id.update_number);
}

}  // namespace

TEST_CASE("every request of an update names it and the incarnation, the first one all of it") {
  const TempDir dir;
  const auto listener = PeerListener::Listen((dir.path() / "pair.sock").string());
  REQUIRE(listener.ok());
  RecordingRollout rollout((*listener)->path());
  const std::string address = "unix:" + (dir.path() / "rollout.sock").string();
  grpc::ServerBuilder builder;
  builder.AddListeningPort(address, grpc::InsecureServerCredentials());
  builder.RegisterService(&rollout);
  const auto server = builder.BuildAndStart();
  REQUIRE(server != nullptr);
  const auto slots = HostTransport()->Create({8192, 3}, SlotLife::kOneUpdate, nullptr);
  REQUIRE(slots.ok());

  const bool other = GENERATE(false, true);
  GrpcUpdateClient client(*MakeChannel(address), {.rollout_incarnation = 7,
                                                  .trainer_boot_id = "boot",
                                                  .deadline = kPatience,
                                                  .scramble = other});
  SetLogStep(12);
  const UpdateId id = {4, 100};
  UpdateRequest update = {id, {8192, 3, other}, {{"norm", DType::kBFloat16, {40}}}};
  update.scope = other ? UpdateScope::kAdapters : UpdateScope::kWhole;
  update.group_generation = 31;
  REQUIRE(client.Begin(update, **slots).ok());
  RequireNames(rollout.begun, id);
  REQUIRE(rollout.begun.slot_bytes() == 8192);
  REQUIRE(rollout.begun.slots() == 3);
  REQUIRE(rollout.begun.direct() == other);
  REQUIRE(rollout.begun.trainer_boot_id() == "boot");
  REQUIRE(rollout.begun.step() == 12);
  REQUIRE(rollout.begun.scramble() == other);
  REQUIRE(rollout.begun.adapters() == other);
  REQUIRE(rollout.begun.group_generation() == 31);
  REQUIRE_FALSE(rollout.begun.over_tcp());
  const auto manifest = FromProto(rollout.begun.manifest());
  REQUIRE(manifest.ok());
  REQUIRE(manifest->size() == 1);
  REQUIRE(manifest->front().name == "norm");
  REQUIRE(manifest->front().shape == std::vector<int64_t>{40});

  REQUIRE(client.StartApply(2, {{0, 5, 6, 256}}).ok());
  REQUIRE(client.WaitApply(2).ok());
  RequireNames(rollout.applied, id);
  REQUIRE(rollout.applied.slot() == 2);
  const std::vector<BucketEntry> entries = FromProto(rollout.applied.entries());
  REQUIRE(entries.size() == 1);
  REQUIRE(entries[0].row == 5);
  REQUIRE(entries[0].rows == 6);
  REQUIRE(entries[0].offset == 256);

  const std::vector<Digest> digests = {DigestOf("bytes", 5)};
  REQUIRE(client.Commit(digests).ok());
  RequireNames(rollout.committed, id);
  REQUIRE(*FromProto(rollout.committed.digests()) == digests);
  REQUIRE(client.Abort("given up").ok());
  RequireNames(rollout.aborted, id);
  REQUIRE(rollout.aborted.reason() == "given up");
}

TEST_CASE("an update over TCP connects where the rollout says, with its ticket") {
  const TempDir dir;
  const auto listener = testing::ListenOnLoopback();
  REQUIRE(listener.ok());
  RecordingRollout rollout("");
  const SlotShape shape = {8192, 2};
  rollout.offer = *(*listener)->Expect(100, shape);
  const std::string address = "unix:" + (dir.path() / "rollout.sock").string();
  grpc::ServerBuilder builder;
  builder.AddListeningPort(address, grpc::InsecureServerCredentials());
  builder.RegisterService(&rollout);
  const auto server = builder.BuildAndStart();
  REQUIRE(server != nullptr);
  const auto slots = HostTransport()->Create(shape, SlotLife::kOneUpdate, nullptr);
  REQUIRE(slots.ok());
  const UpdateRequest update = {.id = {4, 100}, .slots = shape, .over_tcp = true};

  GrpcUpdateClient client(*MakeChannel(address), {.deadline = kPatience, .over_tcp = true});
  const auto link = client.Begin(update, **slots);
  INFO(link.status().ToString());
  REQUIRE(link.ok());
  REQUIRE(rollout.begun.over_tcp());
  REQUIRE(link->sender != nullptr);
  REQUIRE_FALSE(link->socket.valid());
  REQUIRE((*listener)->Take(kPatience).ok());
  // The ticket was for one connection; the failure is the rollout's.
  const absl::Status again = client.Begin(update, **slots).status();
  REQUIRE(absl::IsUnavailable(again));
  REQUIRE(OriginOf(again) == FailureOrigin::kPartner);
  REQUIRE(Says(again, "did not accept the data connection of update 100"));
}

TEST_CASE("a bucket is not waited for once the connection of its bytes has ended") {
  const TempDir dir;
  const auto listener = testing::ListenOnLoopback();
  REQUIRE(listener.ok());
  VanishedRollout rollout;
  const SlotShape shape = {8192, 2};
  rollout.offer = *(*listener)->Expect(100, shape);
  const std::string address = "unix:" + (dir.path() / "rollout.sock").string();
  grpc::ServerBuilder builder;
  builder.AddListeningPort(address, grpc::InsecureServerCredentials());
  builder.RegisterService(&rollout);
  const auto server = builder.BuildAndStart();
  REQUIRE(server != nullptr);
  const auto slots = HostTransport()->Create(shape, SlotLife::kOneUpdate, nullptr);
  REQUIRE(slots.ok());
  GrpcUpdateClient client(*MakeChannel(address), {.deadline = absl::Hours(1), .over_tcp = true});
  const auto link = client.Begin({.id = {4, 100}, .slots = shape, .over_tcp = true}, **slots);
  REQUIRE(link.ok());
  auto connection = (*listener)->Take(kPatience);
  REQUIRE(connection.ok());
  REQUIRE_FALSE(link->closed());
  REQUIRE(client.StartApply(0, {}).ok());
  connection->reset();
  const absl::Status ended = client.WaitApply(0);
  INFO(ended.ToString());
  REQUIRE(absl::IsUnavailable(ended));
  REQUIRE(OriginOf(ended) == FailureOrigin::kPartner);
  REQUIRE(Says(ended, "the data connection to the rollout has ended"));
  REQUIRE(link->closed());
}

TEST_CASE("a slot takes no other bucket while one is being applied from it") {
  const TempDir dir;
  // Nobody listens: a call is open until somebody waits for its answer, which is an error.
  GrpcUpdateClient client(*MakeChannel("unix:" + (dir.path() / "nobody.sock").string()),
                          {.deadline = kPatience});
  REQUIRE(client.StartApply(0, {}).ok());
  REQUIRE(Says(client.StartApply(0, {}), "slot 0 is still being applied"));
  REQUIRE(client.StartApply(1, {}).ok());
  REQUIRE(absl::IsUnavailable(client.WaitApply(0)));
  REQUIRE(client.StartApply(0, {}).ok());
}

}  // namespace tandem
