#include "rollout_worker/rollout_service.h"

#include <atomic>
#include <deque>
#include <optional>
#include <string>
#include <utility>

#include <absl/base/thread_annotations.h>
#include <grpcpp/grpcpp.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/mutex.h"
#include "common/base/status.h"
#include "common/net/grpc_status.h"
#include "common/net/update_codec.h"
#include "common/net/worker_codec.h"
#include "tandem/v1/rollout.grpc.pb.h"

namespace tandem {
namespace {

// One Generate call: sends its events in order, as fast as the client reads them. The engine thread
// pushes events and gRPC's threads pop them; the object keeps itself alive until gRPC is done with
// it. The queue holds at most the request's n samples of max_tokens tokens.
class GenerateStream final : public grpc::ServerWriteReactor<v1::GenerateEvent>,
                             public GenerationSink {
 public:
  static std::shared_ptr<GenerateStream> Make();

  void OnTokens(const TokenDelta& delta) override;
  void OnFinished(const Sample& sample) override;
  void OnAlive() override;
  void OnEnd(const absl::Status& status) override;
  bool cancelled() const override { return cancelled_; }

  void OnWriteDone(bool ok) override;
  void OnCancel() override { cancelled_ = true; }
  void OnDone() override;

 private:
  GenerateStream() = default;
  void Push(v1::GenerateEvent event);

  Mutex events_mutex_;
  // The first event, if there is one, is being written.
  std::deque<v1::GenerateEvent> events_ ABSL_GUARDED_BY(events_mutex_);
  // The call's result, once the engine has ended it.
  std::optional<grpc::Status> result_ ABSL_GUARDED_BY(events_mutex_);
  std::atomic<bool> cancelled_{false};
  std::shared_ptr<GenerateStream> self_;  // keeps this object alive until OnDone
};

std::shared_ptr<GenerateStream> GenerateStream::Make() {
  std::shared_ptr<GenerateStream> stream(new GenerateStream);
  stream->self_ = stream;
  return stream;
}

void GenerateStream::OnTokens(const TokenDelta& delta) {
  v1::GenerateEvent event;
  v1::GenerateEvent::Tokens& tokens = *event.mutable_tokens();
  tokens.set_index(static_cast<int32_t>(delta.index));
  tokens.add_tokens(delta.token);
  if (delta.log_prob) tokens.add_log_probs(*delta.log_prob);
  tokens.add_versions(delta.version);
  tokens.set_text(delta.text);
  Push(std::move(event));
}

void GenerateStream::OnFinished(const Sample& sample) {
  v1::GenerateEvent event;
  *event.mutable_finished() = ToProto(sample);
  Push(std::move(event));
}

void GenerateStream::OnAlive() {
  {
    // Events are still queued for this client; they show that the engine is alive.
    const MutexLock lock(events_mutex_);
    if (!events_.empty()) return;
  }
  v1::GenerateEvent event;
  event.mutable_alive();
  Push(std::move(event));
}

void GenerateStream::Push(v1::GenerateEvent event) {
  const v1::GenerateEvent* first = nullptr;
  {
    const MutexLock lock(events_mutex_);
    events_.push_back(std::move(event));
    if (events_.size() == 1) first = &events_.front();
  }
  if (first != nullptr) StartWrite(first);
}

void GenerateStream::OnEnd(const absl::Status& status) {
  const grpc::Status result = ToGrpcStatus(status);
  bool idle = false;
  {
    const MutexLock lock(events_mutex_);
    result_ = result;
    idle = events_.empty();
  }
  // OnEnd is the engine's last call, and no write is in progress whose OnWriteDone could finish the
  // stream.
  if (idle) Finish(result);
}

void GenerateStream::OnWriteDone(bool ok) {
  const v1::GenerateEvent* next = nullptr;
  std::optional<grpc::Status> result;  // where nothing is left to be written
  {
    const MutexLock lock(events_mutex_);
    events_.pop_front();
    if (!ok) {
      cancelled_ = true;
      events_.clear();
    }
    if (!events_.empty()) {
      next = &events_.front();
    } else {
      result = result_;
    }
  }
  if (next != nullptr) StartWrite(next);
  if (result) Finish(*result);
}

void GenerateStream::OnDone() {
  // Destroys this stream here, unless the engine still holds it.
  const std::shared_ptr<GenerateStream> last = std::move(self_);
}

v1::RolloutState StateToProto(RolloutState state) {
  switch (state) {
    case RolloutState::kEmpty:
      return v1::EMPTY;
    case RolloutState::kServing:
      return v1::SERVING;
    case RolloutState::kDraining:
      return v1::DRAINING;
    case RolloutState::kAsleep:
      return v1::ASLEEP;
    case RolloutState::kUpdating:
      return v1::UPDATING;
  }
  return v1::ROLLOUT_STATE_UNSPECIFIED;
}

GenerationRequest ToRequest(const v1::GenerateRequest& proto) {
  GenerationRequest request;
  request.request_id = proto.request_id();
  request.group = proto.group();
  request.version = proto.version();
  request.prompt.assign(proto.prompt().begin(), proto.prompt().end());
  request.sample_ids.assign(proto.sample_ids().begin(), proto.sample_ids().end());
  request.params = FromProto(proto.params());
  request.stream_tokens = proto.stream_tokens();
  request.log_probs = proto.log_probs();
  for (const v1::Continuation& continuation : proto.continued()) {
    request.continued.push_back(FromProto(continuation));
  }
  return request;
}

std::vector<std::string> Strings(const google::protobuf::RepeatedPtrField<std::string>& field) {
  return {field.begin(), field.end()};
}

// Generate uses the callback API, so that thousands of streams need no threads; the other calls are
// few and block gRPC's threads.
class GrpcRolloutService final
    : public RolloutService,
      public v1::RolloutService::WithCallbackMethod_Generate<v1::RolloutService::Service> {
 public:
  explicit GrpcRolloutService(std::function<void()> on_shutdown)
      : on_shutdown_(std::move(on_shutdown)) {}

  void SetReady(Engine* engine, const v1::WorkerId& worker) override {
    const MutexLock lock(ready_mutex_);
    engine_ = engine;
    worker_ = worker;
    last_report_ = RealClock().Now();
  }
  grpc::Service* service() override { return this; }

  grpc::ServerWriteReactor<v1::GenerateEvent>* Generate(
      grpc::CallbackServerContext* context, const v1::GenerateRequest* request) override;
  grpc::Status Abort(grpc::ServerContext* context,
                     const v1::AbortRequest* request,
                     v1::AbortResponse* response) override;
  grpc::Status Sleep(grpc::ServerContext* context,
                     const v1::SleepRequest* request,
                     v1::SleepResponse* response) override;
  grpc::Status Wake(grpc::ServerContext* context,
                    const v1::WakeRequest* request,
                    v1::WakeResponse* response) override;
  grpc::Status BeginUpdate(grpc::ServerContext* context,
                           const v1::BeginUpdateRequest* request,
                           v1::BeginUpdateResponse* response) override;
  grpc::Status ApplyBucket(grpc::ServerContext* context,
                           const v1::ApplyBucketRequest* request,
                           v1::ApplyBucketResponse* response) override;
  grpc::Status CommitUpdate(grpc::ServerContext* context,
                            const v1::CommitUpdateRequest* request,
                            v1::CommitUpdateResponse* response) override;
  grpc::Status AbortUpdate(grpc::ServerContext* context,
                           const v1::AbortUpdateRequest* request,
                           v1::AbortUpdateResponse* response) override;
  grpc::Status GetDigests(grpc::ServerContext* context,
                          const v1::GetDigestsRequest* request,
                          v1::GetDigestsResponse* response) override;
  grpc::Status ReadTensor(grpc::ServerContext* context,
                          const v1::ReadTensorRequest* request,
                          v1::ReadTensorResponse* response) override;
  grpc::Status VerifyWeights(grpc::ServerContext* context,
                             const v1::VerifyWeightsRequest* request,
                             v1::VerifyWeightsResponse* response) override;
  grpc::Status GetStatus(grpc::ServerContext* context,
                         const v1::RolloutStatusRequest* request,
                         v1::RolloutStatusResponse* response) override;
  grpc::Status Shutdown(grpc::ServerContext* context,
                        const v1::RolloutShutdownRequest* request,
                        v1::RolloutShutdownResponse* response) override;

 private:
  // Unavailable before SetReady.
  absl::StatusOr<Engine*> ReadyEngine() const;
  // Aborted if the call is for another incarnation.
  absl::StatusOr<Engine*> EngineFor(int64_t incarnation) const;
  // Adds the worker, its phase and its last action to an error.
  grpc::Status Reply(absl::Status status) const;
  // The time from `start` until now. The peaks in the report are those since the previous report.
  v1::PhaseReport Report(Engine& engine, const std::string& phase, Instant start);
  // When the previous report was made or, before the first one, when the engine was ready.
  Instant last_report() const {
    const MutexLock lock(ready_mutex_);
    return last_report_;
  }
  // Replies with the result of `call` (absl::Status (Engine&)), or with an error if the call is for
  // another incarnation.
  template <typename Call>
  grpc::Status Answer(int64_t incarnation, const Call& call) const {
    const auto engine = EngineFor(incarnation);
    return Reply(engine.ok() ? call(**engine) : engine.status());
  }

  const std::function<void()> on_shutdown_;
  mutable Mutex ready_mutex_;
  Engine* engine_ ABSL_GUARDED_BY(ready_mutex_) = nullptr;
  v1::WorkerId worker_ ABSL_GUARDED_BY(ready_mutex_);
  Instant last_report_ ABSL_GUARDED_BY(ready_mutex_);
};

v1::PhaseReport GrpcRolloutService::Report(Engine& engine,
                                           const std::string& phase,
                                           Instant start) {
  const Instant now = RealClock().Now();
  const PhaseReport report{phase, absl::ToDoubleSeconds(now - start), engine.ledger().Snapshot()};
  engine.ledger().ResetPeaks();
  const MutexLock lock(ready_mutex_);
  last_report_ = now;
  return ToProto(report);
}

absl::StatusOr<Engine*> GrpcRolloutService::ReadyEngine() const {
  const MutexLock lock(ready_mutex_);
  if (engine_ == nullptr) {
    return absl::UnavailableError("this rollout worker is starting; try again in a moment");
  }
  return engine_;
}

absl::StatusOr<Engine*> GrpcRolloutService::EngineFor(int64_t incarnation) const {
  TANDEM_ASSIGN_OR_RETURN(Engine * engine, ReadyEngine());
  const MutexLock lock(ready_mutex_);
  if (incarnation != worker_.incarnation()) {
    return MakeStatus(absl::StatusCode::kAborted,
                      "the call is for incarnation {} of rollout {}, this is incarnation {}",
                      incarnation, worker_.rank(), worker_.incarnation());
  }
  return engine;
}

grpc::Status GrpcRolloutService::Reply(absl::Status status) const {
  if (status.ok()) return grpc::Status::OK;
  v1::ErrorInfo info;
  {
    const MutexLock lock(ready_mutex_);
    *info.mutable_worker() = worker_;
    if (engine_ != nullptr) {
      const EngineStatus now = engine_->status();
      info.set_phase(RolloutStateName(now.state));
      info.set_last_action(now.last_action);
    }
  }
  SetErrorInfo(status, info);
  return ToGrpcStatus(status);
}

grpc::ServerWriteReactor<v1::GenerateEvent>* GrpcRolloutService::Generate(
    grpc::CallbackServerContext* /*context*/, const v1::GenerateRequest* request) {
  const std::shared_ptr<GenerateStream> stream = GenerateStream::Make();
  const auto engine = EngineFor(request->incarnation());
  absl::Status status = engine.status();
  if (status.ok()) {
    SetLogStep(request->step());
    status = (*engine)->Generate(ToRequest(*request), stream);
  }
  if (!status.ok()) stream->OnEnd(status);
  return stream.get();
}

grpc::Status GrpcRolloutService::Abort(grpc::ServerContext* /*context*/,
                                       const v1::AbortRequest* request,
                                       v1::AbortResponse* response) {
  return Answer(request->incarnation(), [&](Engine& engine) -> absl::Status {
    const std::vector<std::string> ids = Strings(request->request_ids());
    TANDEM_ASSIGN_OR_RETURN(const int64_t aborted,
                            engine.Run("abort", RunningRequests::kKeep, [&](RolloutCore& core) {
                              return absl::StatusOr<int64_t>(core.generator.Abort(ids));
                            }));
    response->set_aborted(aborted);
    return absl::OkStatus();
  });
}

grpc::Status GrpcRolloutService::Sleep(grpc::ServerContext* /*context*/,
                                       const v1::SleepRequest* request,
                                       v1::SleepResponse* response) {
  return Answer(request->incarnation(), [&](Engine& engine) -> absl::Status {
    SetLogStep(request->step());
    const Instant start = RealClock().Now();
    *response->mutable_generate() = Report(engine, "generate", last_report());
    const SleepOrder order = {.level = request->level(),
                              .tags = Strings(request->tags()),
                              .drain_only = request->drain_only(),
                              .abort_running = request->abort_running()};
    TANDEM_ASSIGN_OR_RETURN(const int64_t freed, tandem::Sleep(engine, order));
    response->set_freed_bytes(freed);
    *response->mutable_report() = Report(engine, "sleep", start);
    return absl::OkStatus();
  });
}

grpc::Status GrpcRolloutService::Wake(grpc::ServerContext* /*context*/,
                                      const v1::WakeRequest* request,
                                      v1::WakeResponse* response) {
  return Answer(request->incarnation(), [&](Engine& engine) -> absl::Status {
    SetLogStep(request->step());
    const Instant start = RealClock().Now();
    const std::vector<std::string> tags = Strings(request->tags());
    TANDEM_ASSIGN_OR_RETURN(const int64_t mapped,
                            engine.Run("wake", RunningRequests::kKeep, [&](RolloutCore& core) {
                              core.states.KnowGroup(request->group_generation());
                              return core.memory.Wake(tags);
                            }));
    response->set_taken_bytes(mapped);
    *response->mutable_report() = Report(engine, "wake", start);
    return absl::OkStatus();
  });
}

grpc::Status GrpcRolloutService::BeginUpdate(grpc::ServerContext* /*context*/,
                                             const v1::BeginUpdateRequest* request,
                                             v1::BeginUpdateResponse* response) {
  return Answer(request->incarnation(), [&](Engine& engine) -> absl::Status {
    SetLogStep(request->step());
    UpdateRequest update;
    TANDEM_ASSIGN_OR_RETURN(update.manifest, FromProto(request->manifest()));
    update.id = {request->version(), request->generation()};
    update.group_generation = request->group_generation();
    update.over_tcp = request->over_tcp();
    update.chain = {.from_rollout = request->from_rollout(),
                    .next = {request->next_address(), request->next_ticket()},
                    .behind = request->rollouts_behind()};
    update.slots = {request->slot_bytes(), request->slots(), request->direct()};
    update.scramble = request->scramble();
    update.scope = request->adapters() ? UpdateScope::kAdapters : UpdateScope::kWhole;
    response->set_pair_socket(engine.pair_socket());
    // One that will be refused does not close admission first.
    TANDEM_RETURN_IF_ERROR(
        engine.Run("check update", RunningRequests::kKeep,
                   [&](RolloutCore& core) { return core.weights.CheckTurn(update); }));
    StreamOffer offer;
    TANDEM_RETURN_IF_ERROR(
        engine.Run("begin update", RunningRequests::kDrain,
                   [&](RolloutCore& core) { return core.weights.Begin(update, &offer); }));
    response->set_data_address(offer.address);
    response->set_ticket(offer.ticket);
    return absl::OkStatus();
  });
}

grpc::Status GrpcRolloutService::ApplyBucket(grpc::ServerContext* /*context*/,
                                             const v1::ApplyBucketRequest* request,
                                             v1::ApplyBucketResponse* /*response*/) {
  return Answer(request->incarnation(), [&](Engine& engine) -> absl::Status {
    const UpdateId id = {request->version(), request->generation()};
    const std::vector<BucketEntry> entries = FromProto(request->entries());
    return engine.Run("apply bucket", RunningRequests::kKeep, [&](RolloutCore& core) {
      return core.weights.Apply(id, request->slot(), entries);
    });
  });
}

grpc::Status GrpcRolloutService::CommitUpdate(grpc::ServerContext* /*context*/,
                                              const v1::CommitUpdateRequest* request,
                                              v1::CommitUpdateResponse* response) {
  return Answer(request->incarnation(), [&](Engine& engine) -> absl::Status {
    const Instant start = RealClock().Now();
    const UpdateId id = {request->version(), request->generation()};
    TANDEM_ASSIGN_OR_RETURN(const std::vector<Digest> digests, FromProto(request->digests()));
    StreamTraffic traffic;
    TANDEM_RETURN_IF_ERROR(
        engine.Run("commit update", RunningRequests::kKeep,
                   [&](RolloutCore& core) { return core.weights.Commit(id, digests, &traffic); }));
    response->set_version(request->version());
    response->set_received_bytes(traffic.received);
    response->set_forwarded_bytes(traffic.forwarded);
    *response->mutable_report() = Report(engine, "update", start);
    return absl::OkStatus();
  });
}

grpc::Status GrpcRolloutService::AbortUpdate(grpc::ServerContext* /*context*/,
                                             const v1::AbortUpdateRequest* request,
                                             v1::AbortUpdateResponse* response) {
  return Answer(request->incarnation(), [&](Engine& engine) -> absl::Status {
    if (engine.status().state == RolloutState::kUpdating) {
      LogWarn("The trainer aborts the open weight update: {}", request->reason());
    }
    const UpdateId id = {request->version(), request->generation()};
    const absl::Status aborted =
        engine.Run("abort update", RunningRequests::kKeep, [&](RolloutCore& core) {
          core.states.KnowGroup(request->group_generation());
          core.weights.Abort(id);
          return absl::OkStatus();
        });
    const EngineStatus now = engine.status();
    response->set_state(StateToProto(now.state));
    response->set_version(now.version);
    return aborted;
  });
}

grpc::Status GrpcRolloutService::GetDigests(grpc::ServerContext* /*context*/,
                                            const v1::GetDigestsRequest* request,
                                            v1::GetDigestsResponse* response) {
  return Answer(request->incarnation(), [&](Engine& engine) -> absl::Status {
    TANDEM_ASSIGN_OR_RETURN(const std::vector<Digest> digests,
                            engine.Run("digests", RunningRequests::kKeep,
                                       [](RolloutCore& core) { return core.weights.Digests(); }));
    response->set_version(engine.status().version);
    ToProto(ManifestOf(engine.layout()), response->mutable_manifest());
    ToProto(digests, response->mutable_digests());
    return absl::OkStatus();
  });
}

grpc::Status GrpcRolloutService::ReadTensor(grpc::ServerContext* /*context*/,
                                            const v1::ReadTensorRequest* request,
                                            v1::ReadTensorResponse* response) {
  return Answer(request->incarnation(), [&](Engine& engine) -> absl::Status {
    TANDEM_ASSIGN_OR_RETURN(
        *response->mutable_data(),
        engine.Run("read tensor", RunningRequests::kKeep, [&](RolloutCore& core) {
          return core.weights.ReadRows(request->name(), request->row(), request->rows());
        }));
    response->set_dtype(DTypeName(engine.layout().dtype()));
    return absl::OkStatus();
  });
}

grpc::Status GrpcRolloutService::VerifyWeights(grpc::ServerContext* /*context*/,
                                               const v1::VerifyWeightsRequest* request,
                                               v1::VerifyWeightsResponse* response) {
  return Answer(request->incarnation(), [&](Engine& engine) -> absl::Status {
    SetLogStep(request->step());
    const Instant start = RealClock().Now();
    TANDEM_RETURN_IF_ERROR(
        engine.Run("verify weights", RunningRequests::kKeep,
                   [&](RolloutCore& core) { return core.Verify(request->version()); }));
    response->set_tensors(std::ssize(engine.layout().places()));
    *response->mutable_report() = Report(engine, "verify", start);
    return absl::OkStatus();
  });
}

grpc::Status GrpcRolloutService::GetStatus(grpc::ServerContext* /*context*/,
                                           const v1::RolloutStatusRequest* /*request*/,
                                           v1::RolloutStatusResponse* response) {
  const auto engine = ReadyEngine();
  if (!engine.ok()) return Reply(engine.status());
  const EngineStatus now = (*engine)->status();
  {
    const MutexLock lock(ready_mutex_);
    *response->mutable_worker() = worker_;
  }
  response->set_state(StateToProto(now.state));
  response->set_version(now.version);
  response->set_running(now.load.running);
  response->set_waiting(now.load.waiting);
  response->set_kv_blocks(now.load.kv_blocks);
  response->set_kv_blocks_used(now.load.kv_blocks_used);
  response->set_last_action(now.last_action);
  *response->mutable_ledger() = ToProto((*engine)->ledger().Snapshot());
  response->set_preemptions(now.load.preemptions);
  response->set_generated_tokens(now.load.generated_tokens);
  response->set_prefill_tokens(now.load.prefill_tokens);
  return grpc::Status::OK;
}

grpc::Status GrpcRolloutService::Shutdown(grpc::ServerContext* /*context*/,
                                          const v1::RolloutShutdownRequest* /*request*/,
                                          v1::RolloutShutdownResponse* /*response*/) {
  on_shutdown_();
  return grpc::Status::OK;
}

}  // namespace

std::unique_ptr<RolloutService> RolloutService::Create(std::function<void()> on_shutdown) {
  return std::make_unique<GrpcRolloutService>(std::move(on_shutdown));
}

}  // namespace tandem
