// The gRPC adapters, over a real socket.
#include <algorithm>
#include <future>
#include <memory>
#include <string>
#include <thread>

#include <catch2/catch.hpp>
#include <grpcpp/channel.h>

#include "common/net/channel.h"
#include "common/net/grpc_status.h"
#include "common/net/membership/membership_agent.h"
#include "common/net/server.h"
#include "common/net/worker_codec.h"
#include "controller/api/cluster_service.h"
#include "controller/api/tandem_service.h"
#include "controller/workers/rollout_client.h"
#include "controller/workers/trainer_client.h"
#include "tandem/v1/rollout.grpc.pb.h"
#include "tandem/v1/trainer.grpc.pb.h"
#include "tests/fakes/answer_of.h"
#include "tests/fakes/fake_run.h"
#include "tests/support/patience.h"

namespace tandem {
namespace {

template <typename Stub, typename Request, typename Response>
grpc::Status Call(Stub& stub,
                  grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&, Response*),
                  const Request& request,
                  Response* response) {
  grpc::ClientContext context;
  SetDeadline(context, testing::kPatience);
  return (stub.*method)(&context, request, response);
}

Sample LongSample(uint64_t id, size_t tokens) {
  Sample sample;
  sample.sample_id = id;
  sample.tokens.assign(tokens + 1, 40000);
  sample.prompt_tokens = 1;
  sample.log_probs.assign(tokens, -0.5f);
  sample.versions.assign(tokens, 1);
  return sample;
}

class FakeRolloutService : public v1::RolloutService::Service {
 public:
  grpc::Status Generate(grpc::ServerContext* context,
                        const v1::GenerateRequest* request,
                        grpc::ServerWriter<v1::GenerateEvent>* writer) override {
    if (request->version() == 99) {
      while (!context->IsCancelled()) absl::SleepFor(absl::Milliseconds(5));
      return grpc::Status::CANCELLED;
    }
    for (const uint64_t id : request->sample_ids()) {
      v1::GenerateEvent event;
      event.mutable_finished()->set_sample_id(id);
      writer->Write(event);
    }
    return grpc::Status::OK;
  }
  grpc::Status Sleep(grpc::ServerContext*,
                     const v1::SleepRequest* request,
                     v1::SleepResponse*) override {
    if (request->incarnation() != 5) return {grpc::StatusCode::ABORTED, "another incarnation"};
    last_level = request->drain_only() ? 0 : request->level();
    return grpc::Status::OK;
  }
  grpc::Status Wake(grpc::ServerContext*,
                    const v1::WakeRequest* request,
                    v1::WakeResponse*) override {
    groups.push_back(request->group_generation());
    return grpc::Status::OK;
  }
  grpc::Status AbortUpdate(grpc::ServerContext*,
                           const v1::AbortUpdateRequest* request,
                           v1::AbortUpdateResponse*) override {
    groups.push_back(request->group_generation());
    return grpc::Status::OK;
  }
  int last_level = -1;
  std::vector<int64_t> groups;  // that it was told of
};

class FakeTrainerService : public v1::TrainerService::Service {
 public:
  grpc::Status Reset(grpc::ServerContext*,
                     const v1::TrainerResetRequest*,
                     v1::TrainerResetResponse*) override {
    return grpc::Status::OK;
  }
  grpc::Status ForwardBackward(grpc::ServerContext*,
                               const v1::ForwardBackwardRequest* request,
                               v1::ForwardBackwardResponse* response) override {
    if (request->version() == 7) {
      absl::Status failed = absl::DataLossError("digest");
      v1::ErrorInfo info;
      info.set_phase("train");
      SetErrorInfo(failed, info);
      return ToGrpcStatus(failed);
    }
    (*response->mutable_metrics())["actor/pg_loss"] = 0.5;
    Compare(static_cast<int64_t>(request->global_tokens()), response->mutable_comparison());
    return grpc::Status::OK;
  }
  grpc::Status ComputeLogProbs(grpc::ServerContext*,
                               const v1::ComputeLogProbsRequest* request,
                               v1::ComputeLogProbsResponse* response) override {
    if (request->policy() == v1::ComputeLogProbsRequest::COMPARED) {
      Compare(10 + request->step(), response->mutable_comparison());
    }
    return grpc::Status::OK;
  }

 private:
  static void Compare(int64_t tokens, v1::LogProbComparison* comparison) {
    comparison->set_compared_tokens(tokens);
    comparison->add_mismatches()->set_position(4);
  }
};

// The API of a paused run, at a socket in the run's folder.
struct ServedRun {
  explicit ServedRun(testing::FakeRun& run)
      : parts(Prepared(run)),
        service({.control = *run.control,
                 .position = run.loop->position(),
                 .run = parts,
                 .options = run.options,
                 .registry = run.registry,
                 .progress = relay,
                 .run_id = "p/e/1",
                 .routes = RouteInput{.topology = run.pool.topology(),
                                      .sync_bytes = 1'000'000,
                                      .network_gbit_per_second = 8},
                 .syncs = &syncs}),
        address("unix:" + (run.dir.path() / "c.sock").string()),
        server(*RpcServer::Start(address, {&service}, {})) {
    run.parts->note_syncs = [this](const std::vector<SyncRecord>& made) { syncs.Note(made); };
  }

  static StepContext Prepared(testing::FakeRun& run) {
    run.Prepare(StartMode::kPaused);
    return run.Parts();
  }

  const StepContext parts;
  LastSyncs syncs;
  ProgressRelay relay = ProgressRelay({});
  TandemService service;
  const std::string address;
  const std::unique_ptr<RpcServer> server;
};

}  // namespace

TEST_CASE("ClusterService streams a rank's samples in messages below 4 MiB", "[services]") {
  testing::FakeRun run(1);
  const auto samples = *SampleStore::Open(run.dir.path() / "samples", 0);
  REQUIRE(samples->BeginStep(3).ok());
  for (uint64_t id = 20; id > 0; --id) REQUIRE(samples->Put(LongSample(id, 50'000), 1).ok());
  RankHolders holders(run.dir.path());
  ClusterService service(run.registry, holders, *samples, run.upcoming.get(), run.probe, {}, {},
                         "");
  const std::string address = "unix:" + (run.dir.path() / "c.sock").string();
  const auto server = *RpcServer::Start(address, {&service}, {});
  const auto stub = v1::ClusterService::NewStub(*MakeChannel(address));

  v1::StreamSamplesRequest request;
  request.mutable_worker()->set_role(v1::ROLE_TRAINER);
  request.mutable_worker()->set_incarnation(1);
  request.set_step(3);
  request.set_mini_batch(-1);
  grpc::ClientContext context;
  SetDeadline(context, testing::kPatience);
  const auto reader = stub->StreamSamples(&context, request);
  std::vector<uint64_t> ids;
  v1::StreamSamplesResponse message;
  int messages = 0;
  while (reader->Read(&message)) {
    ++messages;
    REQUIRE(message.ByteSizeLong() < (4u << 20));
    for (const auto& sample : message.samples()) {
      ids.push_back(sample.sample_id());
      REQUIRE(sample.log_probs_size() == 50'000);
    }
  }
  REQUIRE(reader->Finish().ok());
  REQUIRE(messages > 1);
  REQUIRE(ids.size() == 20);
  REQUIRE(std::is_sorted(ids.begin(), ids.end()));

  request.set_step(2);
  grpc::ClientContext other_step;
  SetDeadline(other_step, testing::kPatience);
  REQUIRE(stub->StreamSamples(&other_step, request)->Finish().error_code() ==
          grpc::StatusCode::NOT_FOUND);
  request.mutable_worker()->set_incarnation(9);
  grpc::ClientContext other_worker;
  SetDeadline(other_worker, testing::kPatience);
  REQUIRE(stub->StreamSamples(&other_worker, request)->Finish().error_code() ==
          grpc::StatusCode::ABORTED);
}

TEST_CASE("Workers join through ClusterService and are told to stop", "[services]") {
  testing::FakeRun run(1);
  const auto samples = *SampleStore::Open(run.dir.path() / "samples", 0);
  v1::RegisterResponse welcome;
  welcome.set_vocab_limit(260);
  welcome.mutable_config()->mutable_cluster()->set_heartbeat_seconds(0.01);
  RankHolders holders(run.dir.path());
  ClusterService service(run.registry, holders, *samples, run.upcoming.get(), run.probe, welcome,
                         {}, "");
  const std::string address = "unix:" + (run.dir.path() / "c.sock").string();
  const auto server = *RpcServer::Start(address, {&service}, {});
  const WorkerKey rollout{WorkerRole::kRollout, 0};
  run.registry.MarkLost(rollout, run.registry.Find(rollout)->incarnation);
  run.clock.Advance(absl::Seconds(10));  // its place is free
  const auto agent = MembershipAgent::Join({.controller_address = address,
                                            .role = v1::ROLE_ROLLOUT,
                                            .rank = 0,
                                            .device = "cpu:0",
                                            .host = {.boot_id = "host"}},
                                           testing::kPatience);
  REQUIRE(agent.ok());
  REQUIRE((*agent)->registration().vocab_limit() == 260);
  REQUIRE((*agent)->incarnation() == 2);  // the fake run has a rollout 0 already
  REQUIRE(
      absl::IsFailedPrecondition((*agent)->SetTokenizerAndNumerics("other", {"avx2", "avx2", {}})));
  REQUIRE((*agent)->SetTokenizerAndNumerics("", {"avx2", "avx2", {{"head", "own"}}}).ok());
  REQUIRE(run.registry.Find({WorkerRole::kRollout, 0})->announcement.numerics_choices ==
          KernelChoices{{"head", "own"}});
  const auto kept = holders.Read();  // what the next controller would know
  REQUIRE(kept.size() == 2);
  REQUIRE(kept.back().announcement.boot_nonce ==
          run.registry.Find(rollout)->announcement.boot_nonce);
  service.StopWorkers();
  std::promise<absl::Status> end;
  (*agent)->StartHeartbeats([] { return WorkerHealth{.phase = "serving"}; },
                            [&](absl::Status status) { end.set_value(std::move(status)); });
  REQUIRE(end.get_future().get().ok());
  REQUIRE(run.registry.Find({WorkerRole::kRollout, 0})->news.phase == "serving");
}

TEST_CASE("What a worker's engine is at comes with its heartbeats, and users see it",
          "[services]") {
  testing::FakeRun run(1);
  const auto samples = *SampleStore::Open(run.dir.path() / "samples", 0);
  RankHolders holders(run.dir.path());
  ClusterService service(run.registry, holders, *samples, run.upcoming.get(), run.probe, {}, {},
                         "");
  v1::HeartbeatRequest beat;
  beat.mutable_worker()->set_role(v1::ROLE_ROLLOUT);
  beat.mutable_worker()->set_incarnation(run.registry.Find({WorkerRole::kRollout, 0})->incarnation);
  beat.set_numerics_class("avx2");
  beat.mutable_progress()->set_moves(12);
  beat.mutable_progress()->set_activity("attention, layer 7");
  beat.mutable_progress()->set_still_seconds(42);
  const std::string workers = "unix:" + (run.dir.path() / "w.sock").string();
  const auto server = *RpcServer::Start(workers, {&service}, {});
  v1::HeartbeatResponse answer;
  grpc::ClientContext beating;
  SetDeadline(beating, testing::kPatience);
  const auto cluster = v1::ClusterService::NewStub(*MakeChannel(workers));
  REQUIRE(cluster->Heartbeat(&beating, beat, &answer).ok());
  const ServedRun served(run);
  const auto stub = v1::TandemService::NewStub(*MakeChannel(served.address));
  grpc::ClientContext context;
  SetDeadline(context, testing::kPatience);
  v1::GetStatusResponse status;
  REQUIRE(stub->GetStatus(&context, {}, &status).ok());
  int rollouts = 0;
  for (const v1::WorkerStatus& worker : status.workers()) {
    if (worker.worker().role() != v1::ROLE_ROLLOUT) continue;
    ++rollouts;
    REQUIRE(worker.progress().moves() == 12);
    REQUIRE(worker.progress().activity() == "attention, layer 7");
    REQUIRE(worker.progress().still_seconds() == 42);
  }
  REQUIRE(rollouts == 1);
}

TEST_CASE("The rollout client streams samples, changes states and can be cancelled", "[services]") {
  testing::TempDir dir;
  FakeRolloutService service;
  const std::string address = "unix:" + (dir.path() / "r.sock").string();
  const auto server = *RpcServer::Start(address, {&service}, {});
  const auto client = *MakeGrpcRolloutClient(address, 5, testing::kPatience, {});
  std::vector<uint64_t> ids;
  std::promise<absl::Status> done;
  client->Generate(
      {.prompt = {1}, .sample_ids = {4, 5}},
      [&](Sample sample) { ids.push_back(sample.sample_id); },
      [&](absl::Status status) { done.set_value(std::move(status)); });
  REQUIRE(done.get_future().get().ok());
  REQUIRE(ids == std::vector<uint64_t>{4, 5});
  const auto sleep = [](RolloutClient& rollout, SleepMode mode) {
    return testing::AnswerOf<SleepReports>([&](auto end) { rollout.Sleep(mode, end); }).status();
  };
  REQUIRE(sleep(*client, SleepMode::kLevel2).ok());
  REQUIRE(service.last_level == 2);
  REQUIRE(sleep(*client, SleepMode::kDrainOnly).ok());
  REQUIRE(service.last_level == 0);
  const auto stranger = *MakeGrpcRolloutClient(address, 6, testing::kPatience, {});
  REQUIRE(absl::IsAborted(sleep(*stranger, SleepMode::kLevel1)));

  std::promise<absl::Status> cancelled;
  client->Generate(
      {.version = 99, .prompt = {1}, .sample_ids = {1}}, [](Sample) {},
      [&](absl::Status status) { cancelled.set_value(std::move(status)); });
  client->CancelAll();
  REQUIRE(absl::IsCancelled(cancelled.get_future().get()));
}

TEST_CASE("Rollouts are told of the newest group of trainers", "[services]") {
  testing::TempDir dir;
  FakeRolloutService rollout;
  FakeTrainerService trainer;
  const std::string address = "unix:" + (dir.path() / "w.sock").string();
  const auto server = *RpcServer::Start(address, {&rollout, &trainer}, {});
  const auto group = std::make_shared<TrainerGroup>();
  const auto rollouts = *MakeGrpcRolloutClient(address, 5, testing::kPatience, {}, nullptr, group);
  const auto trainers = *MakeGrpcTrainerClient(address, 1, testing::kPatience, {}, nullptr, group);
  const auto wait = [](const auto& call) {
    std::promise<absl::Status> done;
    call([&](absl::Status status) { done.set_value(std::move(status)); });
    return done.get_future().get();
  };
  for (const int64_t generation : {4, 5}) {
    REQUIRE(wait([&](StatusDone done) {
              trainers->Reset({.generation = generation}, std::move(done));
            }).ok());
    REQUIRE(wait([&](StatusDone done) { rollouts->AbortUpdate("anew", std::move(done)); }).ok());
    REQUIRE(testing::AnswerOf<PhaseReport>([&](auto done) { rollouts->Wake({}, done); }).ok());
  }
  REQUIRE(rollout.groups == std::vector<int64_t>{4, 4, 5, 5});
}

TEST_CASE("The trainer client carries results, codes and who failed", "[services]") {
  testing::TempDir dir;
  FakeTrainerService service;
  const std::string address = "unix:" + (dir.path() / "t.sock").string();
  const auto server = *RpcServer::Start(address, {&service}, {});
  const auto client = *MakeGrpcTrainerClient(address, 1, testing::kPatience, {});
  const auto forward_backward = [&](const ForwardBackwardCall& call) {
    return testing::AnswerOf<ForwardBackwardReply>(
        [&](auto done) { client->ForwardBackward(call, done); });
  };
  const auto score = [&](ScoredPolicy policy) {
    return testing::AnswerOf<LogProbsReply>(
        [&](auto done) { client->ComputeLogProbs(3, policy, done); });
  };
  const auto result = forward_backward({.version = 1, .global_tokens = 12});
  REQUIRE(result.ok());
  REQUIRE(result->metrics.at("actor/pg_loss") == 0.5);
  REQUIRE(result->comparison.compared_tokens == 12);
  REQUIRE(result->comparison.mismatches.at(0).position == 4);
  const auto scored = score(ScoredPolicy::kCompared);
  REQUIRE(scored.ok());
  REQUIRE(scored->comparison.compared_tokens == 13);
  REQUIRE(scored->comparison.mismatches.at(0).position == 4);
  REQUIRE(score(ScoredPolicy::kReference)->comparison.compared_tokens == 0);
  const auto failed = forward_backward({.version = 7});
  REQUIRE(absl::IsDataLoss(failed.status()));
  REQUIRE(GetErrorInfo(failed.status())->phase() == "train");
  server->Shutdown(absl::ZeroDuration());
  const auto late =
      testing::AnswerOf<OptimizerStepReply>([&](auto done) { client->OptimizerStep(1, done); });
  REQUIRE(absl::IsUnavailable(late.status()));
}

TEST_CASE("TandemService drives a run over the API", "[services]") {
  testing::FakeRun run(1);
  run.validation = {{.data_row = 0, .tokens = {5}, .data_source = "fake"}};
  run.store.undone = {{.step = 1, .undone_by = 1}, {.step = 2, .undone_by = 1}};
  const ServedRun served(run);
  using Stub = v1::TandemService::Stub;
  const auto stub = v1::TandemService::NewStub(*MakeChannel(served.address));
  std::thread loop([&] { run.control->OnEnded(run.loop->Run("")); });

  v1::StepRequest step;
  step.set_request_id("once");
  v1::Operation operation, same;
  v1::WaitOperationRequest wait;
  REQUIRE(Call(*stub, &Stub::Step, step, &operation).ok());
  REQUIRE(Call(*stub, &Stub::Step, step, &same).ok());
  REQUIRE(same.id() == operation.id());
  wait.set_id(operation.id());
  wait.set_timeout_seconds(60);
  REQUIRE(Call(*stub, &Stub::WaitOperation, wait, &operation).ok());
  REQUIRE(operation.done());
  REQUIRE(operation.last_step() == 1);

  v1::GetStatusResponse status;
  const int queries = run.store.step_queries;
  REQUIRE(Call(*stub, &Stub::GetStatus, v1::GetStatusRequest(), &status).ok());
  REQUIRE(run.store.step_queries ==
          queries);  // a slow disk holds up nobody who asks for the status
  REQUIRE(status.state() == "paused");
  REQUIRE(status.step() == 1);
  REQUIRE(status.version() == 1);
  REQUIRE(status.made_step() == 1);
  REQUIRE(status.last_lost_step() == 2);  // step 1 is made again
  REQUIRE(status.workers_size() == 2);
  REQUIRE(status.workers(0).state() == "registered");
  // Both workers are on one host: the network's rate says nothing.
  REQUIRE(status.routes_size() == 1);
  REQUIRE(status.routes(0).over() == "shm");
  REQUIRE(status.routes(0).bytes() == 1'000'000);
  REQUIRE(status.routes(0).expected_seconds() == 0);
  REQUIRE(status.routes(0).last().version() == 1);
  REQUIRE(status.routes(0).last().digest() == "d");

  v1::UserGenerateRequest generate;
  generate.set_prompt("hi");
  generate.set_n(3);
  v1::UserGenerateResponse texts;
  REQUIRE(Call(*stub, &Stub::Generate, generate, &texts).ok());
  REQUIRE(texts.texts_size() == 3);
  REQUIRE(texts.version() == 1);
  generate.mutable_params()->set_max_tokens(INT64_MAX);
  REQUIRE(Call(*stub, &Stub::Generate, generate, &texts).error_code() ==
          grpc::StatusCode::RESOURCE_EXHAUSTED);
  generate.clear_params();
  generate.clear_n();
  REQUIRE(Call(*stub, &Stub::Generate, generate, &texts).ok());
  REQUIRE(texts.texts_size() == 1);
  generate.clear_prompt();
  REQUIRE(Call(*stub, &Stub::Generate, generate, &texts).error_code() ==
          grpc::StatusCode::INVALID_ARGUMENT);
  generate.set_prompt("hi");
  generate.set_n(-1);
  REQUIRE(Call(*stub, &Stub::Generate, generate, &texts).error_code() ==
          grpc::StatusCode::INVALID_ARGUMENT);

  v1::EvaluateRequest evaluate;
  evaluate.set_n(2);
  v1::EvaluateResponse evaluation;
  REQUIRE(Call(*stub, &Stub::Evaluate, evaluate, &evaluation).ok());
  REQUIRE(evaluation.metrics().at("val/reward/mean") == 0.5);
  for (const int64_t n : {-1, 4097}) {
    evaluate.set_n(n);
    REQUIRE(Call(*stub, &Stub::Evaluate, evaluate, &evaluation).error_code() ==
            grpc::StatusCode::INVALID_ARGUMENT);
  }
  evaluate.set_n(0);
  evaluate.set_temperature(0.5);
  REQUIRE(Call(*stub, &Stub::Evaluate, evaluate, &evaluation).error_code() ==
          grpc::StatusCode::INVALID_ARGUMENT);
  v1::CheckResponse check;
  REQUIRE(Call(*stub, &Stub::CheckWeights, v1::CheckRequest(), &check).ok());
  REQUIRE(check.ok());
  REQUIRE(check.workers_size() == 1);
  REQUIRE(check.workers(0).ok());
  REQUIRE(check.workers(0).checked() == check.workers(0).expected());

  v1::ListStepsResponse steps;
  REQUIRE(Call(*stub, &Stub::ListSteps, v1::ListStepsRequest(), &steps).ok());
  REQUIRE(steps.steps_size() == 1);
  REQUIRE(steps.steps(0).metrics().at("critic/rewards/mean") == 0.5);
  REQUIRE(steps.steps(0).undone_by() == 0);
  run.store.undone = {{.step = 2, .undone_by = 7}};
  v1::ListStepsRequest of_undone;
  of_undone.set_undone(true);
  REQUIRE(Call(*stub, &Stub::ListSteps, of_undone, &steps).ok());
  REQUIRE(steps.steps_size() == 1);
  REQUIRE(steps.steps(0).undone_by() == 7);
  v1::ListSamplesRequest list;  // of the newest step
  v1::ListSamplesResponse page;
  REQUIRE(Call(*stub, &Stub::ListSamples, list, &page).ok());
  REQUIRE(page.total() == 8);
  REQUIRE(page.samples(1).response() == "2 tokens");
  REQUIRE(page.samples(1).segments_size() == 1);
  REQUIRE(page.samples(1).segments(0).begin() == 0);
  REQUIRE(page.samples(1).segments(0).length() == 2);
  REQUIRE(page.samples(1).segments(0).trained());
  REQUIRE(page.samples(1).segments(0).weight_version() == page.samples(1).weight_version());
  for (SampleRecord& sample : run.store.samples.at(1)) sample.prompt.assign(1 << 20, 'p');
  REQUIRE(Call(*stub, &Stub::ListSamples, list, &page).ok());
  REQUIRE(page.total() == 8);
  REQUIRE(page.samples_size() == 2);
  // A message has at most 4 MiB, also with a sample that alone has more.
  run.store.samples.at(1)[0].prompt.assign(5 << 20, 'p');
  run.store.samples.at(1)[0].response = std::string((3 << 18) - 1, 'r') + "é";
  REQUIRE(Call(*stub, &Stub::ListSamples, list, &page).ok());
  REQUIRE(page.ByteSizeLong() <= 4 << 20);
  REQUIRE(page.samples(0).texts_cut());
  REQUIRE(page.samples(0).prompt().size() == 3 << 18);
  // Cut before the character that would be split.
  REQUIRE(page.samples(0).response() == std::string((3 << 18) - 1, 'r'));

  v1::StopResponse stopped;
  REQUIRE(Call(*stub, &Stub::Stop, v1::StopRequest(), &stopped).ok());
  REQUIRE(stopped.step() == 1);
  loop.join();
  REQUIRE(run.checkpoints->List().size() == 1);
}

TEST_CASE("A user's prompt has the run's max_tokens unless it says otherwise, and fits the model",
          "[services]") {
  testing::FakeRun run(1);
  run.options.sampling.max_tokens = 8;
  run.options.max_model_len = 10;
  const ServedRun served(run);
  using Stub = v1::TandemService::Stub;
  const auto stub = v1::TandemService::NewStub(*MakeChannel(served.address));
  std::thread loop([&] { run.control->OnEnded(run.loop->Run("")); });
  const auto generate = [&](const std::string& prompt, int64_t max_tokens) {
    v1::UserGenerateRequest request;
    request.set_prompt(prompt);  // a token for each byte
    if (max_tokens > 0) request.mutable_params()->set_max_tokens(max_tokens);
    v1::UserGenerateResponse response;
    return Call(*stub, &Stub::Generate, request, &response).error_code();
  };
  REQUIRE(generate("hi", 0) == grpc::StatusCode::OK);
  REQUIRE(generate("hi!", 0) == grpc::StatusCode::RESOURCE_EXHAUSTED);
  REQUIRE(generate("hi!", 7) == grpc::StatusCode::OK);
  REQUIRE(generate("hi!", 8) == grpc::StatusCode::RESOURCE_EXHAUSTED);
  REQUIRE(generate("12345678901", 1) == grpc::StatusCode::RESOURCE_EXHAUSTED);
  v1::StopResponse stopped;
  REQUIRE(Call(*stub, &Stub::Stop, v1::StopRequest(), &stopped).ok());
  loop.join();
}

TEST_CASE("A difference that a user's check finds is in the reply and ends the run", "[services]") {
  testing::FakeRun run(2, 3, {.when = CheckPolicy::When::kOff});
  run.check = {.version = 0,
               .expected = 3,
               .checked = 3,
               .mismatched = 1,
               .first_difference = "a.weight[0, 1]: the rollout holds 1, expected 2",
               .differing = {"a.weight"}};
  const ServedRun served(run);
  const auto stub = v1::TandemService::NewStub(*MakeChannel(served.address));
  absl::Status ended;
  std::thread loop([&] {
    ended = run.loop->Run("");
    run.control->OnEnded(ended);
  });
  v1::CheckResponse check;
  REQUIRE(Call(*stub, &v1::TandemService::Stub::CheckWeights, v1::CheckRequest(), &check).ok());
  loop.join();
  REQUIRE_FALSE(check.ok());
  REQUIRE(check.mismatched() == 2);
  REQUIRE(check.workers_size() == 2);
  REQUIRE(check.workers(1).rank() == 1);
  REQUIRE(check.workers(1).differing(0) == "a.weight");
  REQUIRE(absl::IsDataLoss(ended));
  const std::string message(ended.message());
  REQUIRE(message.find("rollout 0 does not hold the weights it should") != std::string::npos);
  REQUIRE(message.find("a.weight[0, 1]: the rollout holds 1, expected 2") != std::string::npos);
  v1::GetStatusResponse status;
  REQUIRE(Call(*stub, &v1::TandemService::Stub::GetStatus, v1::GetStatusRequest(), &status).ok());
  REQUIRE(status.state() == "failed");
  REQUIRE(status.error() == message);
}

}  // namespace tandem
