#include "controller/reward/reward_client.h"

#include <algorithm>
#include <utility>

#include <grpcpp/grpcpp.h>

#include "common/base/local_address.h"
#include "common/base/status_macros.h"
#include "common/rpc/channel.h"
#include "common/rpc/status_convert.h"
#include "tandem/v1/reward.grpc.pb.h"

namespace tandem {
namespace {

constexpr size_t kItemsPerCall = 256;

v1::ScoreRequest EncodeItems(const std::vector<RewardItem>& items, size_t begin, size_t end) {
  v1::ScoreRequest request;
  for (size_t i = begin; i < end; ++i) {
    v1::ScoreItem* item = request.add_items();
    item->set_sample_id(items[i].sample_id);
    item->set_data_source(items[i].data_source);
    item->set_prompt(items[i].prompt);
    item->set_response(items[i].response);
    item->set_ground_truth(items[i].ground_truth);
    item->set_extra_info_json(items[i].extra_info_json);
  }
  return request;
}

class RemoteReward final : public RewardFunction {
 public:
  RemoteReward(std::shared_ptr<grpc::Channel> channel, RewardClientOptions options)
      : stub_(v1::RewardService::NewStub(channel)), options_(std::move(options)) {}

  absl::StatusOr<std::vector<RewardScore>> Score(const std::vector<RewardItem>& items) override {
    std::vector<RewardScore> scores;
    for (size_t begin = 0; begin < items.size(); begin += kItemsPerCall) {
      const size_t end = std::min(items.size(), begin + kItemsPerCall);
      TANDEM_ASSIGN_OR_RETURN(const v1::ScoreResponse reply,
                              CallWithRetry(EncodeItems(items, begin, end)));
      for (const v1::ItemScore& item : reply.scores()) {
        scores.push_back({item.score(), {item.extras().begin(), item.extras().end()}});
      }
    }
    return scores;
  }

 private:
  absl::StatusOr<v1::ScoreResponse> CallWithRetry(const v1::ScoreRequest& request) {
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
      options_.clock->Sleep(backoff);
      backoff *= 2;
    }
  }

  absl::StatusOr<v1::ScoreResponse> CallOnce(const v1::ScoreRequest& request) {
    grpc::ClientContext context;
    SetDeadline(context, options_.timeout);
    v1::ScoreResponse reply;
    TANDEM_RETURN_IF_ERROR(FromGrpcStatus(stub_->Score(&context, request, &reply)));
    if (reply.scores_size() != request.items_size()) {
      return Internal("{} scores for {} items: the service must answer every item, in order",
                      reply.scores_size(), request.items_size());
    }
    return reply;
  }

  std::unique_ptr<v1::RewardService::Stub> stub_;
  RewardClientOptions options_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<RewardFunction>> MakeRemoteReward(
    const RewardClientOptions& options) {
  const bool local = IsLocalAddress(options.address);
  TANDEM_ASSIGN_OR_RETURN(auto channel,
                          MakeChannel(options.address, local ? RpcSecurity() : options.security));
  return std::make_unique<RemoteReward>(std::move(channel), options);
}

}  // namespace tandem
