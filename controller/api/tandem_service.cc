#include "controller/api/tandem_service.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/status.h"
#include "common/net/grpc_status.h"
#include "common/net/membership/agent_codec.h"
#include "common/net/worker_codec.h"
#include "controller/run/evaluation.h"
#include "controller/store/time_stamp.h"
#include "controller/wire/record_codec.h"
#include "controller/wire/run_answers.h"

namespace tandem {
namespace {

constexpr size_t kClientMessageBytes = 4 << 20;  // the default limit of a gRPC client

absl::Status CheckSampleCount(int64_t n) {
  if (n >= 1 && n <= kMaxGroupSamples) return absl::OkStatus();
  return InvalidArgument("n is {}; 1 to {} samples can be asked for", n, kMaxGroupSamples);
}

std::string StateName(WorkerEntry::State state) {
  switch (state) {
    case WorkerEntry::State::kStarting:
      return "starting";
    case WorkerEntry::State::kReady:
      return "registered";
    case WorkerEntry::State::kLost:
      return "lost";
  }
  return "unknown";
}

v1::WorkerStatus ToProto(const WorkerEntry& entry, Instant now) {
  v1::WorkerStatus proto;
  v1::WorkerId* worker = proto.mutable_worker();
  SetWorkerKey(entry.key(), worker);
  worker->set_incarnation(entry.incarnation);
  worker->mutable_coordinates()->set_dp(entry.key().rank);
  proto.set_device(entry.announcement.device);
  proto.set_address(entry.announcement.address);
  proto.set_pid(entry.announcement.pid);
  proto.set_node(entry.announcement.host.node);
  proto.set_seconds_since_heartbeat(absl::ToDoubleSeconds(now - entry.last_heartbeat));
  proto.set_phase(entry.news.phase);
  proto.set_version(entry.news.version);
  proto.set_last_action(entry.news.last_action);
  *proto.mutable_ledger() = ToProto(entry.news.ledger);
  proto.set_state(StateName(entry.state));
  proto.set_numerics_class(entry.news.numerics_class);
  proto.set_kernel_set(entry.announcement.kernel_set);
  proto.mutable_progress()->set_moves(entry.news.progress.moves);
  proto.mutable_progress()->set_activity(entry.news.progress.activity);
  proto.mutable_progress()->set_still_seconds(absl::ToDoubleSeconds(entry.news.progress.still_for));
  if (entry.news.generation) {
    *proto.mutable_generation() = ToProto(*entry.news.generation);
    proto.set_tokens_per_second(entry.generated_tokens.per_second);
  }
  if (entry.news.training) *proto.mutable_training() = ToProto(*entry.news.training);
  return proto;
}

v1::AgentStatus ToProto(const AgentEntry& entry, Instant now) {
  v1::AgentStatus proto;
  proto.set_node(entry.news.host.node);
  proto.set_host_index(entry.news.host_index);
  proto.set_hosts(entry.news.hosts);
  proto.set_pid(entry.news.pid);
  proto.set_seconds_since_heartbeat(absl::ToDoubleSeconds(now - entry.last_heartbeat));
  proto.set_state(entry.lost ? "lost" : "registered");
  for (const AgentProcess& process : entry.news.processes) {
    *proto.add_processes() = ToProto(process);
  }
  return proto;
}

v1::Operation ToProto(const OperationStatus& status) {
  v1::Operation proto;
  proto.set_id(status.id);
  proto.set_done(status.done);
  proto.set_first_step(status.first_step);
  proto.set_last_step(status.last_step);
  proto.set_error(status.error);
  return proto;
}

v1::CheckResponse ToProto(const WeightChecks& results) {
  v1::CheckResponse response;
  response.set_ok(Verdict(results, "").ok());
  for (const auto& [rank, result] : results) {
    response.set_checked(response.checked() + result.checked);
    response.set_missing(response.missing() + result.missing);
    response.set_unexpected(response.unexpected() + result.unexpected);
    response.set_mismatched(response.mismatched() + result.mismatched);
    v1::WorkerCheck* worker = response.add_workers();
    worker->set_rank(rank);
    worker->set_version(result.version);
    worker->set_expected(result.expected);
    worker->set_checked(result.checked);
    worker->set_missing(result.missing);
    worker->set_unexpected(result.unexpected);
    worker->set_mismatched(result.mismatched);
    worker->set_first_difference(result.first_difference);
    worker->mutable_differing()->Assign(result.differing.begin(), result.differing.end());
    worker->set_ok(result.ok());
  }
  return response;
}

// Gives equal hosts equal numbers.
class HostNumbers {
 public:
  int Of(const HostId& host) {
    for (size_t i = 0; i < hosts_.size(); ++i) {
      if (SameHost(hosts_[i], host)) return static_cast<int>(i);
    }
    hosts_.push_back(host);
    return static_cast<int>(hosts_.size()) - 1;
  }

 private:
  std::vector<HostId> hosts_;
};

WorkerHosts HostsOfWorkers(const Topology& topology, const WorkerRegistry& registry) {
  WorkerHosts hosts{.of_trainer = std::vector<int>(static_cast<size_t>(topology.trainers), -1),
                    .of_rollout = std::vector<int>(static_cast<size_t>(topology.rollouts), -1)};
  HostNumbers numbers;
  for (const WorkerEntry& worker : registry.Workers()) {
    const bool trainer = worker.key().role == WorkerRole::kTrainer;
    std::vector<int>& of_role = trainer ? hosts.of_trainer : hosts.of_rollout;
    const auto rank = static_cast<size_t>(worker.key().rank);
    if (rank < of_role.size()) of_role[rank] = numbers.Of(worker.announcement.host);
  }
  return hosts;
}

// With what lies between the registered workers, and `last`: what rollouts were sent last, by rank.
void AddRoutesToStatus(const RouteInput& input,
                       const WorkerRegistry& registry,
                       const std::map<int, SyncRecord>& last,
                       v1::GetStatusResponse& status) {
  for (const PlannedRoute& route : PlanRoutes(input, HostsOfWorkers(input.topology, registry))) {
    v1::WeightRoute* const proto = status.add_routes();
    proto->set_trainer(route.trainer);
    proto->set_rollout(route.rollout);
    proto->set_over(CarrierName(route.over));
    proto->set_bytes(route.bytes);
    proto->set_expected_seconds(route.seconds);
    if (const auto sync = last.find(route.rollout); sync != last.end()) {
      *proto->mutable_last() = ToProto(sync->second);
    }
  }
}

}  // namespace

grpc::Status TandemService::GetStatus(grpc::ServerContext*,
                                      const v1::GetStatusRequest*,
                                      v1::GetStatusResponse* response) {
  const RunControl::Snapshot run = parts_.control.snapshot();
  const Instant now = parts_.run.clock.Now();
  response->set_run_id(parts_.run_id);
  response->set_state(RunStateName(run.state));
  response->set_phase(parts_.progress.phase());
  response->set_step(run.finished_steps);
  response->set_made_step(run.made_steps);
  response->set_total_steps(run.total_steps);
  response->set_version(run.version);
  for (const WorkerEntry& entry : parts_.registry.Workers()) {
    *response->add_workers() = ToProto(entry, now);
  }
  if (parts_.agents != nullptr) {
    for (const AgentEntry& entry : parts_.agents->Agents()) {
      *response->add_agents() = ToProto(entry, now);
    }
  }
  response->set_run_dir(parts_.options.run_dir);
  response->set_error(run.error);
  response->set_uptime_seconds(absl::ToDoubleSeconds(now - started_));
  response->set_restarts(parts_.run.budget.spent());
  response->set_memory_plan(memory_plan());
  response->set_as_of(StampText(absl::ToUnixMicros(parts_.run.clock.WallNow())));
  response->set_waits_for(parts_.run.disk.waits_for());
  response->set_last_lost_step(run.last_lost_step);
  if (parts_.routes) {
    AddRoutesToStatus(
        *parts_.routes, parts_.registry,
        parts_.syncs == nullptr ? std::map<int, SyncRecord>() : parts_.syncs->Newest(), *response);
  }
  if (parts_.events != nullptr) AddEventsToStatus(parts_.events->Newest(), *response);
  return grpc::Status::OK;
}

grpc::Status TandemService::Run(grpc::ServerContext*,
                                const v1::RunRequest* request,
                                v1::Operation* response) {
  const auto operation = parts_.control.Run(request->request_id(), request->steps());
  if (operation.ok()) *response = ToProto(*operation);
  return ToGrpcStatus(operation.status());
}

grpc::Status TandemService::Step(grpc::ServerContext*,
                                 const v1::StepRequest* request,
                                 v1::Operation* response) {
  const auto operation = parts_.control.Run(request->request_id(), 1);
  if (operation.ok()) *response = ToProto(*operation);
  return ToGrpcStatus(operation.status());
}

grpc::Status TandemService::Pause(grpc::ServerContext*,
                                  const v1::PauseRequest* request,
                                  v1::PauseResponse* response) {
  response->set_step(parts_.control.Pause(request->request_id()));
  return grpc::Status::OK;
}

grpc::Status TandemService::Resume(grpc::ServerContext*,
                                   const v1::ResumeRequest* request,
                                   v1::ResumeResponse* response) {
  response->set_step(parts_.control.Resume(request->request_id()));
  return grpc::Status::OK;
}

grpc::Status TandemService::Stop(grpc::ServerContext*,
                                 const v1::StopRequest* request,
                                 v1::StopResponse* response) {
  response->set_step(parts_.control.StopAfterStep(request->request_id()));
  return grpc::Status::OK;
}

grpc::Status TandemService::WaitOperation(grpc::ServerContext*,
                                          const v1::WaitOperationRequest* request,
                                          v1::Operation* response) {
  const auto operation = parts_.control.WaitOperation(
      request->id(), absl::Seconds(std::max(0.0, request->timeout_seconds())));
  if (operation.ok()) *response = ToProto(*operation);
  return ToGrpcStatus(operation.status());
}

grpc::Status TandemService::ListSteps(grpc::ServerContext*,
                                      const v1::ListStepsRequest* request,
                                      v1::ListStepsResponse* response) {
  auto answer = AnswerSteps(parts_.run.store, *request);
  if (!answer.ok()) return ToGrpcStatus(answer.status());
  *response = *std::move(answer);
  return grpc::Status::OK;
}

grpc::Status TandemService::ListSamples(grpc::ServerContext*,
                                        const v1::ListSamplesRequest* request,
                                        v1::ListSamplesResponse* response) {
  auto answer = AnswerSamples(parts_.run.store, *request);
  if (!answer.ok()) return ToGrpcStatus(answer.status());
  *response = *std::move(answer);
  return grpc::Status::OK;
}

absl::StatusOr<GroupRequest> TandemService::MakeGroup(const v1::UserGenerateRequest& request) {
  const int64_t n = request.n() == 0 ? 1 : request.n();
  TANDEM_RETURN_IF_ERROR(CheckSampleCount(n));
  GroupRequest group{.request_id = fmt::format("user-{}", ++generate_calls_)};
  TANDEM_ASSIGN_OR_RETURN(group.prompt, request.raw()
                                            ? parts_.run.text.EncodeRaw(request.prompt())
                                            : parts_.run.text.EncodeChat(request.prompt()));
  if (request.prompt().empty() || group.prompt.empty()) {
    return InvalidArgument("the prompt is empty");
  }
  group.params = parts_.options.sampling;
  if (request.has_params()) {
    const SamplingParams asked = FromProto(request.params());
    group.params.temperature = asked.temperature;
    group.params.seed = asked.seed;
    group.params.ignore_eos = asked.ignore_eos;
    if (asked.top_p > 0) group.params.top_p = asked.top_p;
    if (asked.top_k != 0) group.params.top_k = asked.top_k;
    if (asked.max_tokens > 0) group.params.max_tokens = asked.max_tokens;
    if (!asked.stop.empty()) group.params.stop = asked.stop;
    if (!asked.stop_token_ids.empty()) group.params.stop_token_ids = asked.stop_token_ids;
  }
  const int64_t most = parts_.options.max_model_len;
  const auto prompt = static_cast<int64_t>(group.prompt.size());
  if (prompt > most || group.params.max_tokens > most - prompt) {
    return MakeStatus(absl::StatusCode::kResourceExhausted,
                      "a prompt of {} tokens and max_tokens={} exceed rollout.max_model_len={}",
                      prompt, group.params.max_tokens, most);
  }
  for (int64_t i = 0; i < n; ++i) {
    group.sample_ids.push_back(MakeSampleId(0, kUserEpoch, static_cast<uint64_t>(i)));
  }
  return group;
}

grpc::Status TandemService::Generate(grpc::ServerContext* context,
                                     const v1::UserGenerateRequest* request,
                                     v1::UserGenerateResponse* response) {
  absl::StatusOr<GroupRequest> group = MakeGroup(*request);
  if (!group.ok()) return ToGrpcStatus(group.status());
  std::map<uint64_t, Sample> samples;
  const auto abandoned = [context] { return context->IsCancelled(); };
  const auto generate = [&]() -> absl::Status {
    const int64_t version = parts_.position.version;
    response->set_version(version);
    group->version = version;
    return parts_.run.fleet.Generate(
        {*group}, version,
        [&](Sample sample) {
          samples[sample.sample_id] = std::move(sample);
          return absl::OkStatus();
        },
        {.budget_owner = BudgetOwner::kUserCall, .abandoned = abandoned});
  };
  const absl::Status status = parts_.control.BetweenSteps(generate, abandoned);
  if (!status.ok()) return ToGrpcStatus(status);
  for (const auto& [id, sample] : samples) {
    const std::vector<int32_t> tokens(sample.tokens.begin() + sample.prompt_tokens,
                                      sample.tokens.end());
    response->add_texts(parts_.run.text.Decode(tokens));
    *response->add_samples() = tandem::ToProto(sample);
  }
  if (const size_t bytes = response->ByteSizeLong(); bytes > kClientMessageBytes) {
    return ToGrpcStatus(MakeStatus(absl::StatusCode::kResourceExhausted,
                                   "the {} responses have {} MiB, an answer has at most 4: ask for "
                                   "fewer at a time, or lower max_tokens",
                                   samples.size(), bytes >> 20));
  }
  return grpc::Status::OK;
}

grpc::Status TandemService::Evaluate(grpc::ServerContext* context,
                                     const v1::EvaluateRequest* request,
                                     v1::EvaluateResponse* response) {
  EvaluationRequest evaluation{.samples = parts_.options.validation_samples,
                               .sampling = parts_.options.validation_sampling,
                               .max_prompts = request->max_prompts(),
                               .budget_owner = BudgetOwner::kUserCall,
                               .abandoned = [context] { return context->IsCancelled(); }};
  if (request->n() != 0) {
    const absl::Status counted = CheckSampleCount(request->n());
    if (!counted.ok()) return ToGrpcStatus(counted);
    evaluation.samples = request->n();
    evaluation.sampling.temperature = request->temperature();
  } else if (request->temperature() != 0) {
    return ToGrpcStatus(
        InvalidArgument("temperature {} needs n: without n, samples are drawn as "
                        "rollout.val_kwargs says",
                        request->temperature()));
  }
  const auto evaluate = [&]() -> absl::Status {
    evaluation.step = parts_.position.finished_steps;
    evaluation.version = parts_.position.version;
    const absl::StatusOr<EvaluationRecord> evaluated = tandem::Evaluate(parts_.run, evaluation);
    parts_.progress.EndPhase();
    TANDEM_ASSIGN_OR_RETURN(const EvaluationRecord record, evaluated);
    for (const auto& [name, value] : record.metrics) (*response->mutable_metrics())[name] = value;
    response->set_prompts(record.prompts);
    response->set_version(record.version);
    return absl::OkStatus();
  };
  return ToGrpcStatus(parts_.control.BetweenSteps(evaluate, evaluation.abandoned));
}

grpc::Status TandemService::CheckWeights(grpc::ServerContext*,
                                         const v1::CheckRequest* request,
                                         v1::CheckResponse* response) {
  const absl::Status status = parts_.control.BetweenSteps([&]() -> absl::Status {
    TANDEM_ASSIGN_OR_RETURN(const auto results, parts_.run.weights.Check(request->hf_checkpoint()));
    const std::string reference =
        parts_.run.weights.check_files().Describe(request->hf_checkpoint());
    LogInfo("the weights of {} rollouts were compared with {}", results.size(), reference);
    const absl::Status verdict = Verdict(results, reference);
    // A difference from a checkpoint that the user named is not a fault of the run.
    if (!verdict.ok() && request->hf_checkpoint().empty()) parts_.control.Fail(verdict);
    *response = ToProto(results);
    return absl::OkStatus();
  });
  return ToGrpcStatus(status);
}

}  // namespace tandem
