// The probe's way from rollouts through the controller to trainers and back.
#include <catch2/catch.hpp>
#include <grpcpp/channel.h>

#include "common/net/channel.h"
#include "common/net/server.h"
#include "controller/api/cluster_service.h"
#include "tests/fakes/fake_run.h"
#include "tests/support/patience.h"

namespace tandem {

TEST_CASE(
    "P7: ClusterService gives a trainer the probe of its own rollout, and takes its log-probs",
    "[services]") {
  testing::FakeRun run(2);
  const auto samples = *SampleStore::Open(run.dir.path() / "samples", 0);
  REQUIRE(samples->BeginStep(3).ok());
  for (const GroupRequest& request : run.probe.Begin(3, 0)) {
    REQUIRE(run.probe.Put(testing::MakeFakeSample(request, request.sample_ids[0])).ok());
  }
  RankHolders holders(run.dir.path());
  ClusterService service(run.registry, holders, *samples, run.upcoming.get(), run.probe, {}, {},
                         "");
  const std::string address = "unix:" + (run.dir.path() / "c.sock").string();
  const auto server = *RpcServer::Start(address, {&service}, {});
  const auto stub = v1::ClusterService::NewStub(*MakeChannel(address));
  for (int rank = 0; rank < 2; ++rank) {
    v1::StreamSamplesRequest pull;
    pull.mutable_worker()->set_role(v1::ROLE_TRAINER);
    pull.mutable_worker()->set_rank(rank);
    pull.mutable_worker()->set_incarnation(1);
    pull.set_step(3);
    pull.set_probe(true);
    grpc::ClientContext pulling;
    SetDeadline(pulling, testing::kPatience);
    const auto reader = stub->StreamSamples(&pulling, pull);
    v1::StreamSamplesResponse message;
    REQUIRE(reader->Read(&message));
    REQUIRE(message.samples_size() == 3);
    v1::PutLogProbsRequest put;
    *put.mutable_worker() = pull.worker();
    put.set_step(3);
    put.set_policy("probe");
    for (const auto& sample : message.samples()) {
      REQUIRE(sample.group() == -1 - rank);
      auto* item = put.add_items();
      item->set_sample_id(sample.sample_id());
      *item->mutable_log_probs() = sample.log_probs();
    }
    REQUIRE_FALSE(reader->Read(&message));
    REQUIRE(reader->Finish().ok());
    REQUIRE_FALSE(run.probe.Compare().ok());
    grpc::ClientContext putting;
    SetDeadline(putting, testing::kPatience);
    v1::PutLogProbsResponse accepted;
    const auto writer = stub->PutLogProbs(&putting, &accepted);
    REQUIRE(writer->Write(put));
    writer->WritesDone();
    REQUIRE(writer->Finish().ok());
    REQUIRE(accepted.accepted() == 3);
  }
  REQUIRE(*run.probe.Compare() == 12);
  REQUIRE(samples->Metas().empty());
}

}  // namespace tandem
