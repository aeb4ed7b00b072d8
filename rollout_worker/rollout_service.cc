#include "rollout_worker/rollout_service.h"

#include <utility>

#include <absl/time/clock.h>

#include "common/base/log.h"
#include "common/base/status.h"
#include "common/net/grpc_status.h"
#include "common/net/update_codec.h"
#include "common/net/worker_codec.h"

namespace tandem {

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

void GenerateStream::Push(v1::GenerateEvent event) {
  const v1::GenerateEvent* first = nullptr;
  {
    std::lock_guard lock(mutex_);
    events_.push_back(std::move(event));
    if (events_.size() == 1) first = &events_.front();
  }
  if (first != nullptr) StartWrite(first);
}

void GenerateStream::OnEnd(const absl::Status& status) {
  bool idle = false;
  {
    std::lock_guard lock(mutex_);
    ended_ = true;
    status_ = ToGrpcStatus(status);
    idle = events_.empty();
  }
  // Nobody else writes or finishes: this was the engine's last call and no write is under way.
  if (idle) Finish(status_);
}

void GenerateStream::OnWriteDone(bool ok) {
  const v1::GenerateEvent* next = nullptr;
  bool finish = false;
  {
    std::lock_guard lock(mutex_);
    events_.pop_front();
    if (!ok) {
      cancelled_ = true;
      events_.clear();
    }
    if (!events_.empty()) {
      next = &events_.front();
    } else {
      finish = ended_;
    }
  }
  if (next != nullptr) StartWrite(next);
  if (finish) Finish(status_);
}

void GenerateStream::OnDone() {
  // Destroys the stream here, unless the engine still holds it.
  const std::shared_ptr<GenerateStream> last = std::move(self_);
}

namespace {

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

GenerationRequest RequestOf(const v1::GenerateRequest& proto) {
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

// The peaks in it are those since the last report.
v1::PhaseReport Report(Engine* engine, const std::string& phase, absl::Time start) {
  const PhaseReport report{phase, absl::ToDoubleSeconds(absl::Now() - start),
                           engine->ledger().Snapshot()};
  engine->ledger().ResetPeaks();
  return ToProto(report);
}

std::vector<std::string> Strings(const google::protobuf::RepeatedPtrField<std::string>& field) {
  return {field.begin(), field.end()};
}

}  // namespace

void RolloutService::SetReady(Engine* engine, const v1::WorkerId& worker) {
  std::lock_guard lock(mutex_);
  engine_ = engine;
  worker_ = worker;
}

absl::StatusOr<Engine*> RolloutService::ReadyEngine() const {
  std::lock_guard lock(mutex_);
  if (engine_ == nullptr) {
    return absl::UnavailableError("this rollout worker is starting; try again in a moment");
  }
  return engine_;
}

absl::StatusOr<Engine*> RolloutService::EngineFor(int64_t incarnation) const {
  TANDEM_ASSIGN_OR_RETURN(Engine * engine, ReadyEngine());
  std::lock_guard lock(mutex_);
  if (incarnation != worker_.incarnation()) {
    return MakeStatus(absl::StatusCode::kAborted,
                      "the call is for incarnation {} of rollout {}, this is incarnation {}",
                      incarnation, worker_.rank(), worker_.incarnation());
  }
  return engine;
}

grpc::Status RolloutService::Reply(absl::Status status) const {
  if (status.ok()) return grpc::Status::OK;
  v1::ErrorInfo info;
  {
    std::lock_guard lock(mutex_);
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

grpc::ServerWriteReactor<v1::GenerateEvent>* RolloutService::Generate(
    grpc::CallbackServerContext* /*context*/, const v1::GenerateRequest* request) {
  const std::shared_ptr<GenerateStream> stream = GenerateStream::Make();
  const auto engine = EngineFor(request->incarnation());
  absl::Status status = engine.status();
  if (status.ok()) {
    SetLogStep(request->step());
    status = (*engine)->Generate(RequestOf(*request), stream);
  }
  if (!status.ok()) stream->OnEnd(status);
  return stream.get();
}

grpc::Status RolloutService::Abort(grpc::ServerContext* /*context*/,
                                   const v1::AbortRequest* request,
                                   v1::AbortResponse* response) {
  const auto engine = EngineFor(request->incarnation());
  if (!engine.ok()) return Reply(engine.status());
  const auto aborted = (*engine)->Abort(Strings(request->request_ids()));
  if (aborted.ok()) response->set_aborted(*aborted);
  return Reply(aborted.status());
}

grpc::Status RolloutService::Sleep(grpc::ServerContext* /*context*/,
                                   const v1::SleepRequest* request,
                                   v1::SleepResponse* response) {
  const auto engine = EngineFor(request->incarnation());
  if (!engine.ok()) return Reply(engine.status());
  SetLogStep(request->step());
  const absl::Time start = absl::Now();
  *response->mutable_generate() = Report(*engine, "generate", start);
  SleepOrder order;
  order.level = request->level();
  order.tags = Strings(request->tags());
  order.drain_only = request->drain_only();
  order.abort_running = request->abort_running();
  const auto freed = (*engine)->Sleep(std::move(order));
  if (!freed.ok()) return Reply(freed.status());
  response->set_freed_bytes(*freed);
  *response->mutable_report() = Report(*engine, "sleep", start);
  return grpc::Status::OK;
}

grpc::Status RolloutService::Wake(grpc::ServerContext* /*context*/,
                                  const v1::WakeRequest* request,
                                  v1::WakeResponse* response) {
  const auto engine = EngineFor(request->incarnation());
  if (!engine.ok()) return Reply(engine.status());
  SetLogStep(request->step());
  const absl::Time start = absl::Now();
  const auto taken = (*engine)->Wake(Strings(request->tags()));
  if (!taken.ok()) return Reply(taken.status());
  response->set_taken_bytes(*taken);
  *response->mutable_report() = Report(*engine, "wake", start);
  return grpc::Status::OK;
}

grpc::Status RolloutService::BeginUpdate(grpc::ServerContext* /*context*/,
                                         const v1::BeginUpdateRequest* request,
                                         v1::BeginUpdateResponse* response) {
  const auto engine = EngineFor(request->incarnation());
  if (!engine.ok()) return Reply(engine.status());
  SetLogStep(request->step());
  auto manifest = FromProto(request->manifest());
  if (!manifest.ok()) return Reply(manifest.status());
  UpdateOpening opening;
  opening.version = request->version();
  opening.generation = request->generation();
  opening.slots = {request->slot_bytes(), request->slots(), request->direct()};
  opening.manifest = *std::move(manifest);
  opening.scramble = request->scramble();
  opening.scope = request->adapters() ? UpdateScope::kAdapters : UpdateScope::kWhole;
  response->set_pair_socket((*engine)->pair_socket());
  return Reply((*engine)->BeginUpdate(std::move(opening)));
}

grpc::Status RolloutService::ApplyBucket(grpc::ServerContext* /*context*/,
                                         const v1::ApplyBucketRequest* request,
                                         v1::ApplyBucketResponse* /*response*/) {
  const auto engine = EngineFor(request->incarnation());
  if (!engine.ok()) return Reply(engine.status());
  return Reply((*engine)->ApplyBucket(request->version(), request->generation(), request->slot(),
                                      FromProto(request->entries())));
}

grpc::Status RolloutService::CommitUpdate(grpc::ServerContext* /*context*/,
                                          const v1::CommitUpdateRequest* request,
                                          v1::CommitUpdateResponse* response) {
  const auto engine = EngineFor(request->incarnation());
  if (!engine.ok()) return Reply(engine.status());
  const absl::Time start = absl::Now();
  auto digests = FromProto(request->digests());
  if (!digests.ok()) return Reply(digests.status());
  const absl::Status status =
      (*engine)->CommitUpdate(request->version(), request->generation(), *std::move(digests));
  if (!status.ok()) return Reply(status);
  response->set_version(request->version());
  *response->mutable_report() = Report(*engine, "update", start);
  return grpc::Status::OK;
}

grpc::Status RolloutService::AbortUpdate(grpc::ServerContext* /*context*/,
                                         const v1::AbortUpdateRequest* request,
                                         v1::AbortUpdateResponse* response) {
  const auto engine = EngineFor(request->incarnation());
  if (!engine.ok()) return Reply(engine.status());
  const EngineStatus before = (*engine)->status();
  if (before.state == RolloutState::kUpdating) {
    LogWarn("the open update is given up: {}", request->reason());
  }
  const absl::Status status = (*engine)->AbortUpdate(request->version(), request->generation());
  const EngineStatus now = (*engine)->status();
  response->set_state(StateToProto(now.state));
  response->set_version(now.version);
  return Reply(status);
}

grpc::Status RolloutService::GetDigests(grpc::ServerContext* /*context*/,
                                        const v1::GetDigestsRequest* request,
                                        v1::GetDigestsResponse* response) {
  const auto engine = EngineFor(request->incarnation());
  if (!engine.ok()) return Reply(engine.status());
  const auto digests = (*engine)->Digests();
  if (!digests.ok()) return Reply(digests.status());
  response->set_version((*engine)->status().version);
  ToProto(ManifestOf((*engine)->layout()), response->mutable_manifest());
  ToProto(*digests, response->mutable_digests());
  return grpc::Status::OK;
}

grpc::Status RolloutService::ReadTensor(grpc::ServerContext* /*context*/,
                                        const v1::ReadTensorRequest* request,
                                        v1::ReadTensorResponse* response) {
  const auto engine = EngineFor(request->incarnation());
  if (!engine.ok()) return Reply(engine.status());
  auto data = (*engine)->ReadTensor(request->name(), request->row(), request->rows());
  if (!data.ok()) return Reply(data.status());
  response->set_dtype(DTypeName((*engine)->layout().dtype()));
  response->set_data(*std::move(data));
  return grpc::Status::OK;
}

grpc::Status RolloutService::VerifyWeights(grpc::ServerContext* /*context*/,
                                           const v1::VerifyWeightsRequest* request,
                                           v1::VerifyWeightsResponse* response) {
  const auto engine = EngineFor(request->incarnation());
  if (!engine.ok()) return Reply(engine.status());
  SetLogStep(request->step());
  const absl::Time start = absl::Now();
  const absl::Status verified = (*engine)->VerifyWeights(request->version());
  if (!verified.ok()) return Reply(verified);
  response->set_tensors(std::ssize((*engine)->layout().places()));
  *response->mutable_report() = Report(*engine, "verify", start);
  return grpc::Status::OK;
}

grpc::Status RolloutService::GetStatus(grpc::ServerContext* /*context*/,
                                       const v1::RolloutStatusRequest* /*request*/,
                                       v1::RolloutStatusResponse* response) {
  const auto engine = ReadyEngine();
  if (!engine.ok()) return Reply(engine.status());
  const EngineStatus now = (*engine)->status();
  {
    std::lock_guard lock(mutex_);
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

grpc::Status RolloutService::Shutdown(grpc::ServerContext* /*context*/,
                                      const v1::RolloutShutdownRequest* /*request*/,
                                      v1::RolloutShutdownResponse* /*response*/) {
  on_shutdown_();
  return grpc::Status::OK;
}

}  // namespace tandem
