// Which samples trainers pull, and where their log-probs go, while the next step's wait.
#include <cstdint>
#include <string>
#include <vector>

#include <catch2/catch.hpp>
#include <grpcpp/grpcpp.h>

#include "common/net/channel.h"
#include "common/net/server.h"
#include "controller/api/cluster_service.h"
#include "controller/store/sample_store.h"
#include "controller/workers/rank_holders.h"
#include "tests/fakes/fake_run.h"
#include "tests/support/patience.h"

namespace tandem {
namespace {

// Of two response tokens.
Sample SampleOf(uint64_t id) {
  return {.sample_id = id,
          .tokens = {1, 2, 3},
          .prompt_tokens = 1,
          .log_probs = {-0.5f, -0.5f},
          .versions = {1, 1}};
}

}  // namespace

TEST_CASE("The step's number says in which store samples are read and log-probs are put",
          "[services]") {
  testing::FakeRun run(1);
  const auto samples = *SampleStore::Open(run.dir.path() / "samples", 0);
  const auto upcoming = *SampleStore::Open(run.dir.path() / "upcoming_samples", 1);
  REQUIRE(samples->BeginStep(3).ok());
  REQUIRE(samples->Put(SampleOf(1), 1).ok());
  REQUIRE(upcoming->BeginStep(4).ok());
  REQUIRE(upcoming->Put(SampleOf(2), 1).ok());
  RankHolders holders(run.dir.path());
  ClusterService service(run.registry, holders, *samples, upcoming.get(), run.probe, {}, {}, "");
  const std::string address = "unix:" + (run.dir.path() / "c.sock").string();
  const auto server = *RpcServer::Start(address, {&service}, {});
  const auto stub = v1::ClusterService::NewStub(*MakeChannel(address));
  const auto ids = [&](int64_t step) {
    v1::StreamSamplesRequest request;
    request.mutable_worker()->set_role(v1::ROLE_TRAINER);
    request.mutable_worker()->set_incarnation(1);
    request.set_step(step);
    request.set_mini_batch(-1);
    grpc::ClientContext context;
    SetDeadline(context, testing::kPatience);
    const auto reader = stub->StreamSamples(&context, request);
    std::vector<uint64_t> found;
    for (v1::StreamSamplesResponse message; reader->Read(&message);) {
      for (const auto& sample : message.samples()) found.push_back(sample.sample_id());
    }
    const grpc::Status ended = reader->Finish();
    if (!ended.ok()) REQUIRE(ended.error_code() == grpc::StatusCode::NOT_FOUND);
    return found;
  };
  const auto put = [&](int64_t step, uint64_t id) {
    v1::PutLogProbsRequest request;
    request.mutable_worker()->set_role(v1::ROLE_TRAINER);
    request.mutable_worker()->set_incarnation(1);
    request.set_step(step);
    request.set_policy("training");
    v1::PutLogProbsRequest::Item* const item = request.add_items();
    item->set_sample_id(id);
    for (const float value : {-1.5f, -2.5f}) item->add_log_probs(value);
    grpc::ClientContext context;
    SetDeadline(context, testing::kPatience);
    v1::PutLogProbsResponse response;
    const auto writer = stub->PutLogProbs(&context, &response);
    (void)writer->Write(request);
    (void)writer->WritesDone();
    return writer->Finish().error_code();
  };
  REQUIRE(ids(3) == std::vector<uint64_t>{1});
  REQUIRE(ids(4) == std::vector<uint64_t>{2});
  REQUIRE(ids(5).empty());
  REQUIRE(put(3, 1) == grpc::StatusCode::OK);
  REQUIRE(put(4, 2) == grpc::StatusCode::OK);
  REQUIRE(put(4, 1) == grpc::StatusCode::NOT_FOUND);
  REQUIRE(put(5, 2) == grpc::StatusCode::NOT_FOUND);
  REQUIRE(samples->ReadArray(TokenArray::kTraining, 1).value() == std::vector<float>{-1.5f, -2.5f});
  REQUIRE(upcoming->ReadArray(TokenArray::kTraining, 2).value() ==
          std::vector<float>{-1.5f, -2.5f});
  // Once step 4 has begun its samples are where those of a step are.
  REQUIRE(samples->BeginStep(4).ok());
  REQUIRE(samples->Put(SampleOf(7), 1).ok());
  REQUIRE(ids(4) == std::vector<uint64_t>{7});
  REQUIRE(put(4, 2) == grpc::StatusCode::NOT_FOUND);
}

}  // namespace tandem
