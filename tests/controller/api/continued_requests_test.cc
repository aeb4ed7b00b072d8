// The tokens from which samples continue, over a real socket: complete, in order, and below the
// message size limit.
#include <algorithm>

#include <catch2/catch.hpp>

#include "common/base/mutex.h"
#include "common/net/server.h"
#include "common/net/worker_codec.h"
#include "controller/rollouts/rollout_dispatcher.h"
#include "controller/workers/rollout_client.h"
#include "tandem/v1/rollout.grpc.pb.h"
#include "tests/fakes/answer_of.h"
#include "tests/support/patience.h"
#include "tests/support/temp_dir.h"

namespace tandem {
namespace {

// Finishes every sample with one token more. Keeps what it was asked for.
class RecordingService : public v1::RolloutService::Service {
 public:
  grpc::Status Generate(grpc::ServerContext*,
                        const v1::GenerateRequest* request,
                        grpc::ServerWriter<v1::GenerateEvent>* writer) override {
    {
      const MutexLock lock(requests_mutex_);
      requests_.push_back(*request);
    }
    for (int i = 0; i < request->sample_ids_size(); ++i) {
      v1::GenerateEvent event;
      v1::Sample& sample = *event.mutable_finished();
      sample.set_sample_id(request->sample_ids(i));
      sample.set_group(request->group());
      *sample.mutable_tokens() = request->prompt();
      sample.set_prompt_tokens(request->prompt_size());
      sample.set_finish_reason(v1::FINISH_REASON_CUT);
      writer->Write(event);
    }
    return grpc::Status::OK;
  }
  grpc::Status Abort(grpc::ServerContext*,
                     const v1::AbortRequest* request,
                     v1::AbortResponse*) override {
    const MutexLock lock(requests_mutex_);
    aborted_.assign(request->request_ids().begin(), request->request_ids().end());
    return grpc::Status::OK;
  }

  std::vector<v1::GenerateRequest> requests() {
    const MutexLock lock(requests_mutex_);
    return requests_;
  }
  std::vector<std::string> aborted() {
    const MutexLock lock(requests_mutex_);
    return aborted_;
  }

 private:
  Mutex requests_mutex_;
  std::vector<v1::GenerateRequest> requests_ ABSL_GUARDED_BY(requests_mutex_);
  std::vector<std::string> aborted_ ABSL_GUARDED_BY(requests_mutex_);
};

Continuation Long(uint64_t id, int64_t tokens) {
  Continuation continuation{.max_new_tokens = static_cast<int64_t>(id) + 1};
  for (int64_t t = 0; t < tokens; ++t) {
    // Ids of a large vocabulary, and versions that need two bytes.
    continuation.tokens.push_back(
        static_cast<int32_t>(140000 + t % 1000 + static_cast<int64_t>(id)));
    continuation.log_probs.push_back(-0.5f * static_cast<float>(t));
    continuation.versions.push_back(200 + t / 1000);
  }
  return continuation;
}

}  // namespace

TEST_CASE("A group that goes on from long responses goes in messages below 4 MiB", "[services]") {
  testing::TempDir dir;
  RecordingService service;
  const std::string address = "unix:" + (dir.path() / "r.sock").string();
  const auto server = *RpcServer::Start(address, {&service}, {});
  const auto client = *MakeGrpcRolloutClient(address, 5, testing::kPatience, {});
  GroupRequest group{.request_id = "9-0-0",
                     .version = 300,
                     .prompt = std::vector<int32_t>(3000, 150000),
                     .params = {.max_tokens = 60000},
                     .interruptible = true};
  for (uint64_t id = 0; id < 16; ++id) group.sample_ids.push_back(id);
  group.load_continued = [](const std::vector<uint64_t>& ids) {
    std::vector<Continuation> continued;
    for (const uint64_t id : ids) continued.push_back(Long(id, 50000));
    return continued;
  };
  size_t cut = 0;
  const auto result =
      RolloutDispatcher({}).Dispatch({group}, {{0, client}}, [&](const Sample& sample) {
        cut += sample.finish_reason == FinishReason::kCut ? 1 : 0;
        return absl::OkStatus();
      });
  INFO(result.status().ToString());
  REQUIRE(result.ok());
  REQUIRE(cut == 16);
  // 16 x 50,000 tokens of 3 + 4 + 2 bytes.
  std::vector<v1::GenerateRequest> requests = service.requests();
  REQUIRE(requests.size() == 2);
  // Both were under way at once and may have come in either order.
  std::sort(requests.begin(), requests.end(),
            [](const auto& a, const auto& b) { return a.sample_ids(0) < b.sample_ids(0); });
  uint64_t id = 0;
  for (const v1::GenerateRequest& request : requests) {
    REQUIRE(request.ByteSizeLong() < kMaxRequestBytes);
    REQUIRE(request.ByteSizeLong() > kMaxRequestBytes / 4);
    REQUIRE(request.request_id() == "9-0-0");
    REQUIRE(request.prompt_size() == 3000);
    REQUIRE(request.continued_size() == request.sample_ids_size());
    for (int i = 0; i < request.continued_size(); ++i, ++id) {
      REQUIRE(request.sample_ids(i) == id);
      const Continuation came = FromProto(request.continued(i)), sent = Long(id, 50000);
      REQUIRE(came.tokens == sent.tokens);
      REQUIRE(came.log_probs == sent.log_probs);
      REQUIRE(came.versions == sent.versions);
      REQUIRE(came.max_new_tokens == sent.max_new_tokens);
    }
  }
  REQUIRE(testing::StatusOf([&](auto done) { client->Abort({"a", "b"}, done); }).ok());
  REQUIRE(service.aborted() == std::vector<std::string>{"a", "b"});
}

TEST_CASE("A request's size is never thought smaller than its message is", "[services]") {
  for (const int64_t tokens : {0, 1, 100, 127, 128, 5000}) {
    GroupRequest group{.request_id = "r", .prompt = {1, 2}, .sample_ids = {7}};
    group.params.stop = {"a stop text", "another"};
    group.params.stop_token_ids = {-1, 5, 150000};
    group.continued = {Long(7, tokens)};
    v1::GenerateRequest proto;
    proto.set_incarnation(INT64_MAX);
    proto.set_request_id(group.request_id);
    proto.set_version(INT64_MAX);
    proto.mutable_prompt()->Add(group.prompt.begin(), group.prompt.end());
    proto.add_sample_ids(UINT64_MAX);
    *proto.mutable_params() = ToProto(group.params);
    proto.set_group(INT64_MAX);
    proto.set_step(INT64_MAX);
    *proto.add_continued() = ToProto(group.continued[0]);
    // What does not fit into the message's own size less one is refused, whatever the estimate.
    REQUIRE(!SplitRequest(group, static_cast<int64_t>(proto.ByteSizeLong()) - 1).ok());
    REQUIRE(SplitRequest(group, static_cast<int64_t>(proto.ByteSizeLong()) + 1024).ok());
  }
}

}  // namespace tandem
