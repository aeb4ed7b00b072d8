// Partial rollouts over the real wire: dispatcher, gRPC client, service and engine.
#include <catch2/catch.hpp>

#include "common/net/grpc_status.h"
#include "controller/rollouts/rollout_dispatcher.h"
#include "controller/workers/rollout_client.h"
#include "tests/rollout_worker/continuation_rig.h"
#include "tests/rollout_worker/served_engine.h"
#include "tests/support/patience.h"

namespace tandem {
namespace {

using namespace tandem::testing;

Replica ReplicaOf(Served& served, int rank) {
  served.SetReady();
  return {rank, MakeGrpcRolloutClient(served.server->address(), 7, testing::kPatience, {}).value()};
}

// What is left of the requests, as groups that may be cut; the first sample of each for 20 tokens.
std::vector<GroupRequest> NextRound(const std::vector<GenerationRequest>& requests,
                                    const SamplesById& samples,
                                    int round) {
  std::vector<GroupRequest> groups;
  for (const GenerationRequest& request : requests) {
    GroupRequest group{.request_id = fmt::format("1-{}-{}", round, request.group),
                       .version = 0,
                       .prompt = request.prompt,
                       .params = request.params,
                       .group = request.group,
                       .interruptible = true};
    for (const uint64_t id : request.sample_ids) {
      const auto found = samples.find(id);
      Continuation from;
      if (found != samples.end()) {
        const FinishReason reason = found->second.finish_reason;
        if (reason != FinishReason::kAborted && reason != FinishReason::kCut) continue;
        from = HeadOf(found->second, found->second.response_tokens());
      }
      if (group.sample_ids.empty()) from.max_new_tokens = 20;
      group.sample_ids.push_back(id);
      group.continued.push_back(std::move(from));
    }
    if (!group.sample_ids.empty()) groups.push_back(std::move(group));
  }
  return groups;
}

// Reads a Generate to its end.
struct Stream {
  Stream(Served& served, const GenerationRequest& request)
      : context(Served::Context()),
        reader(served.stub->Generate(context.get(), ProtoOf(request))) {}
  // Until tokens come.
  void WaitForTokens() {
    v1::GenerateEvent event;
    while (reader->Read(&event) && !event.has_tokens()) {
    }
    REQUIRE(event.has_tokens());
  }
  grpc::Status Finish() {
    v1::GenerateEvent event;
    while (reader->Read(&event)) {
      if (!event.has_finished()) continue;
      const Sample sample = FromProto(event.finished());
      REQUIRE(samples.emplace(sample.sample_id, sample).second);
    }
    return reader->Finish();
  }

  std::unique_ptr<grpc::ClientContext> context;
  std::unique_ptr<grpc::ClientReader<v1::GenerateEvent>> reader;
  SamplesById samples;
};

int64_t Abort(Served& served, const std::string& request_id) {
  v1::AbortRequest request;
  request.set_incarnation(7);
  request.add_request_ids(request_id);
  v1::AbortResponse response;
  REQUIRE(served.stub->Abort(Served::Context().get(), request, &response).ok());
  return response.aborted();
}

void RequirePrefix(const Sample& sample, const Sample& whole) {
  REQUIRE(sample.tokens.size() <= whole.tokens.size());
  REQUIRE(std::equal(sample.tokens.begin(), sample.tokens.end(), whole.tokens.begin()));
  REQUIRE(std::equal(sample.log_probs.begin(), sample.log_probs.end(), whole.log_probs.begin()));
}

}  // namespace

TEST_CASE("R1: rounds over gRPC, cut at whatever moment, end in the samples of a single one") {
  // One sample at a time: where the first of a group has the tokens of its round, others wait.
  Served first({.max_num_seqs = 1}), second({.max_num_seqs = 1});
  const std::vector<Replica> replicas = {ReplicaOf(first, 0), ReplicaOf(second, 1)};
  std::vector<GenerationRequest> requests = MixedRequests({5, 64, 70}, 3, 120);
  for (GenerationRequest& request : requests) request.params.ignore_eos = true;
  const SamplesById whole = Expected(first.weights, requests);
  SamplesById samples;
  int rounds = 0;
  for (auto groups = NextRound(requests, samples, 0); !groups.empty();
       groups = NextRound(requests, samples, ++rounds)) {
    REQUIRE(rounds < 60);
    size_t asked = 0, came = 0;
    for (const GroupRequest& group : groups) asked += group.sample_ids.size();
    // As soon as somebody has the tokens of the round, the others end where they are.
    RolloutDispatcher dispatcher(
        {.max_in_flight_samples = 6, .end_round = [&] { return came > 0; }});
    const auto take = [&](const Sample& sample) {
      ++came;
      RequirePrefix(sample, whole.at(sample.sample_id));
      samples[sample.sample_id] = sample;
      return absl::OkStatus();
    };
    const auto result = dispatcher.Dispatch(groups, replicas, take);
    INFO(result.status().ToString());
    REQUIRE(result.ok());
    REQUIRE(result->lost_ranks.empty());
    REQUIRE(came <= asked);
  }
  REQUIRE(rounds > 1);
  RequireSame(samples, whole);
}

TEST_CASE("Abort over gRPC ends waiting and running requests alone, and the rollout serves on") {
  // Two samples at a time, 24 tokens a step: what comes later waits, a long prompt takes long.
  const RigOptions limits = {
      .max_num_seqs = 2, .max_num_batched_tokens = 24, .max_model_len = 1000};
  Served served(limits);
  served.SetReady();
  GenerationRequest runs = MixedRequests({20}, 1, 900)[0];
  runs.params.ignore_eos = true;
  runs.stream_tokens = true;
  runs.request_id = "runs";
  std::vector<GenerationRequest> others = MixedRequests({30, 450, 70}, 12, 400);
  for (GenerationRequest& other : others) other.params.ignore_eos = true;
  for (uint64_t& id : others[0].sample_ids) id += 1000;
  Rig alone(served.weights, limits);
  alone.version = 0;
  const SamplesById whole = GenerateAll(alone, others);
  others[2] = Resume(others[2], whole, 25);
  others[2].continued[1] = {};  // it was aborted before its first token

  Stream running(served, runs);
  running.WaitForTokens();
  for (const GenerationRequest& other : others) {
    INFO(other.request_id);
    Stream stream(served, other);
    // The call may overtake the request: then nothing was there to abort.
    for (int calls = 0; Abort(served, other.request_id) == 0; ++calls) REQUIRE(calls < 100000);
    REQUIRE(stream.Finish().ok());
    REQUIRE(stream.samples.size() == 12);
    int aborted = 0;
    for (size_t i = 0; i < 12; ++i) {
      const Sample& sample = stream.samples.at(other.sample_ids[i]);
      const int64_t came_with = other.continued.empty() ? 0 : std::ssize(other.continued[i].tokens);
      aborted += sample.finish_reason == FinishReason::kAborted ? 1 : 0;
      REQUIRE(sample.response_tokens() >= came_with);
      REQUIRE(sample.versions.size() == static_cast<size_t>(sample.response_tokens()));
      RequirePrefix(sample, whole.at(sample.sample_id));
    }
    REQUIRE(aborted > 0);
    REQUIRE(Abort(served, other.request_id) == 0);
  }
  // At once: nothing slept, nothing was woken.
  GenerationRequest next = others[0];
  next.request_id = "next";
  next.sample_ids.resize(1);
  Stream again(served, next);
  REQUIRE(again.Finish().ok());
  RequireSame(again.samples, {{next.sample_ids[0], whole.at(next.sample_ids[0])}});
  REQUIRE(running.Finish().ok());
  REQUIRE(running.samples.begin()->second.response_tokens() == 900);
}

TEST_CASE("A request that goes on from what cannot be is INVALID_ARGUMENT, whatever version") {
  Served served;
  served.SetReady();
  GenerationRequest request = MixedRequests({12}, 1, 30)[0];
  request.version = -1;  // whatever is served, which is 0
  request.continued = {{.tokens = {1, 2}, .log_probs = {-1, -1}, .versions = {0, 1}}};
  Stream newer(served, request);
  const grpc::Status refused = newer.Finish();
  REQUIRE(refused.error_code() == grpc::StatusCode::INVALID_ARGUMENT);
  REQUIRE(refused.error_message().find("serves version 0") != std::string::npos);
  REQUIRE(newer.samples.empty());
  request.continued[0].versions = {0, 0};
  request.continued[0].max_new_tokens = 4;
  Stream fits(served, request);
  REQUIRE(fits.Finish().ok());
  REQUIRE(fits.samples.begin()->second.finish_reason == FinishReason::kCut);
  REQUIRE(fits.samples.begin()->second.response_tokens() == 6);
}

}  // namespace tandem
