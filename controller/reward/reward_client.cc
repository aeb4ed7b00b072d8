#include "controller/reward/reward_client.h"

#include <algorithm>
#include <functional>
#include <utility>

#include <grpcpp/grpcpp.h>

#include "common/base/local_address.h"
#include "common/base/progress.h"
#include "common/base/status.h"
#include "common/net/call_deadline.h"
#include "common/net/channel.h"
#include "common/net/grpc_status.h"
#include "tandem/v1/reward.grpc.pb.h"

namespace tandem {
namespace {

// How often a pause between two attempts asks whether the run was interrupted.
constexpr absl::Duration kInterruptLook = absl::Milliseconds(50);

constexpr size_t kItemsPerCall = 256;
constexpr size_t kBytesPerCall = 3 << 20;  // a gRPC server's default limit is 4 MiB

v1::ScoreItem Encode(const RewardItem& item) {
  v1::ScoreItem proto;
  proto.set_sample_id(item.sample_id);
  proto.set_data_source(item.data_source);
  proto.set_prompt(item.prompt);
  proto.set_response(item.response);
  proto.set_ground_truth(item.ground_truth);
  proto.set_extra_info_json(item.extra_info_json);
  return proto;
}

// The items from `begin` on that fit into one call, at least one.
v1::ScoreRequest EncodeFrom(const std::vector<RewardItem>& items, size_t begin) {
  v1::ScoreRequest request;
  size_t bytes = 0;
  for (size_t i = begin; i < std::min(items.size(), begin + kItemsPerCall); ++i) {
    v1::ScoreItem item = Encode(items[i]);
    bytes += item.ByteSizeLong() + 8;  // with the tag and length of the field
    if (i > begin && bytes > kBytesPerCall) break;
    *request.add_items() = std::move(item);
  }
  return request;
}

class RemoteReward final : public RewardFunction {
 public:
  RemoteReward(std::shared_ptr<grpc::Channel> channel, RewardClientOptions options)
      : stub_(v1::RewardService::NewStub(channel)), options_(std::move(options)) {}

  absl::StatusOr<std::vector<RewardScore>> Score(const std::vector<RewardItem>& items) override {
    std::vector<RewardScore> scores;
    while (scores.size() < items.size()) {
      TANDEM_ASSIGN_OR_RETURN(const v1::ScoreResponse reply,
                              CallWithRetry(EncodeFrom(items, scores.size())));
      for (const v1::ItemScore& item : reply.scores()) {
        scores.push_back({item.score(), {item.extras().begin(), item.extras().end()}});
        if (item.has_prediction()) scores.back().prediction = item.prediction();
      }
    }
    return scores;
  }

  void EndWhen(std::function<bool()> interrupted) override {
    interrupted_ = std::move(interrupted);
  }

 private:
  absl::StatusOr<v1::ScoreResponse> CallWithRetry(const v1::ScoreRequest& request) {
    const OutsideWait wait;
    absl::Duration backoff = options_.backoff;
    for (int64_t attempt = 0;; ++attempt) {
      absl::StatusOr<v1::ScoreResponse> reply = CallOnce(request);
      if (reply.ok()) return reply;
      const bool transient =
          absl::IsUnavailable(reply.status()) || absl::IsDeadlineExceeded(reply.status());
      if (!transient || attempt >= options_.retries) {
        return MakeStatus(absl::StatusCode::kUnknown,
                          "reward service {} failed after {} attempt(s); check that it runs, or "
                          "raise reward.timeout_seconds / reward.retries: {}: {}",
                          options_.address, attempt + 1,
                          absl::StatusCodeToString(reply.status().code()),
                          std::string(reply.status().message()));
      }
      TANDEM_RETURN_IF_ERROR(Pause(backoff));
      backoff = std::min(2 * backoff, options_.longest_backoff);
    }
  }

  // Cancelled: the run was interrupted.
  absl::Status Pause(absl::Duration time) {
    Clock& clock = *options_.clock;
    const Instant end = clock.Now() + time;
    while (!interrupted_ || !interrupted_()) {
      const absl::Duration left = end - clock.Now();
      if (left <= absl::ZeroDuration()) return absl::OkStatus();
      clock.Sleep(std::min(left, kInterruptLook));
    }
    return absl::CancelledError("interrupted while the reward service was away");
  }

  absl::StatusOr<v1::ScoreResponse> CallOnce(const v1::ScoreRequest& request) {
    grpc::ClientContext context;
    const CallDeadline deadline(context, options_.timeout);
    v1::ScoreResponse reply;
    TANDEM_RETURN_IF_ERROR(
        FromGrpcStatus(deadline.Explain(stub_->Score(&context, request, &reply))));
    if (reply.scores_size() != request.items_size()) {
      return Internal("{} scores for {} items: the service must answer every item, in order",
                      reply.scores_size(), request.items_size());
    }
    return reply;
  }

  std::unique_ptr<v1::RewardService::Stub> stub_;
  const RewardClientOptions options_;
  std::function<bool()> interrupted_;
};

// A service of a user's may be any gRPC server, and by default those end the connection of who asks
// more often than every five minutes whether they are there.
constexpr PeerWatch kServiceWatch{.silence = absl::Minutes(6)};

}  // namespace

absl::StatusOr<std::unique_ptr<RewardFunction>> MakeRemoteReward(
    const RewardClientOptions& options) {
  const bool local = IsLocalAddress(options.address);
  TANDEM_ASSIGN_OR_RETURN(auto channel,
                          MakeChannel(options.address, local ? RpcSecurity() : options.security,
                                      /*observer=*/nullptr, kServiceWatch));
  return std::make_unique<RemoteReward>(std::move(channel), options);
}

}  // namespace tandem
