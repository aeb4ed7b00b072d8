// The trainer's client for a rollout that it publishes to, over gRPC and the connection that slots
// are passed or sent over.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <absl/status/statusor.h>
#include <absl/time/time.h>
#include <grpcpp/channel.h>

#include "common/weights/slot_stream.h"
#include "common/weights/update_request.h"
#include "trainer_worker/weight_sync/weight_check.h"
#include "trainer_worker/weight_sync/weight_publisher.h"

namespace tandem {

struct GrpcUpdateClientOptions {
  int64_t rollout_incarnation = 0;
  std::string trainer_boot_id;
  absl::Duration deadline = absl::Seconds(60);        // of every call, and for the rollout's device
  absl::Duration abort_deadline = absl::Seconds(10);  // of the call that aborts, if shorter
  bool scramble = false;  // the rollout fills its weights with NaN before the first bucket
  bool over_tcp = false;  // see UpdateClient::over_tcp
  TcpSecurity data;       // of the connection that slots are sent over
};

// Not thread-safe. Errors carry the rollout's own message, prefixed with the call.
class GrpcUpdateClient : public UpdateClient, public WeightReader {
 public:
  GrpcUpdateClient(std::shared_ptr<grpc::Channel> channel, GrpcUpdateClientOptions options);
  ~GrpcUpdateClient() override;  // waits for pending applies, at most until their deadline

  absl::StatusOr<int64_t> HeldVersion() override;
  bool over_tcp() const override { return options_.over_tcp; }
  absl::StatusOr<PeerConnection> Begin(const UpdateRequest& update,
                                       const ProducerSlots& slots) override;
  absl::StatusOr<StreamOffer> Open(const UpdateRequest& update) override;
  absl::StatusOr<PeerConnection> Connect(const StreamOffer& offer,
                                         const ProducerSlots& slots) override;
  StreamTraffic traffic() const override { return traffic_; }
  absl::Status StartApply(int slot, const std::vector<BucketEntry>& entries) override;
  absl::Status WaitApply(int slot) override;
  absl::Status Commit(const std::vector<Digest>& digests) override;
  absl::Status Abort(const std::string& reason) override;

  absl::StatusOr<HeldWeights> Digests() override;
  absl::StatusOr<std::string> Read(const std::string& name, int64_t row, int64_t rows) override;

 protected:
  // Applies to all later calls.
  void ShortenDeadline(absl::Duration deadline) { options_.deadline = deadline; }

 private:
  struct Calls;  // the stub and the pending applies
  // Waits for the answer to the next of the pending applies. Unavailable: the data connection has
  // ended, and no answer came soon after.
  absl::Status AwaitAnswer() const;
  // Where the slots, or their contents, are to go.
  struct Opened {
    std::string pair_socket;
    StreamOffer offer;
  };
  absl::StatusOr<Opened> BeginUpdate(const UpdateRequest& update);
  GrpcUpdateClientOptions options_;
  std::unique_ptr<Calls> calls_;
  UpdateId id_ = {-1, -1};  // of the open update, or of the last one
  StreamTraffic traffic_;
  std::weak_ptr<SlotSender> sender_;  // of that update, over TCP
};

}  // namespace tandem
