#include "controller/api/cluster_service.h"

#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "common/base/log.h"
#include "common/base/status.h"
#include "common/net/grpc_status.h"
#include "common/net/security/caller.h"
#include "common/net/worker_codec.h"

namespace tandem {
namespace {

constexpr size_t kFlushedMessageBytes = 1 << 20;  // gRPC's limit is 4 MiB

absl::StatusOr<WorkerKey> ParseKey(v1::Role role, int rank) {
  if (role == v1::ROLE_TRAINER) return WorkerKey{WorkerRole::kTrainer, rank};
  if (role == v1::ROLE_ROLLOUT) return WorkerKey{WorkerRole::kRollout, rank};
  return InvalidArgument("role {} is neither trainer nor rollout", static_cast<int>(role));
}

absl::StatusOr<Announcement> ParseAnnouncement(const v1::RegisterRequest& request) {
  TANDEM_ASSIGN_OR_RETURN(const WorkerKey key, ParseKey(request.role(), request.rank()));
  return Announcement{
      .protocol = request.protocol(),
      .key = key,
      .address = request.address(),
      .boot_id = request.boot_id(),
      .device = request.device(),
      .boot_nonce = request.boot_nonce(),
      .pid = request.pid(),
      .numerics_class = request.numerics_class(),
      .kernel_set = request.kernel_set(),
      .numerics_choices = {request.numerics_choices().begin(), request.numerics_choices().end()},
      .build = request.build(),
      .build_id = request.build_id(),
      .device_memory_bytes = request.device_memory_bytes(),
      .tokenizer_digest = request.tokenizer_digest(),
      .incarnation = request.incarnation(),
      .device_uuid = request.device_uuid(),
      .process_start = request.process_start()};
}

EngineProgress FromProto(const v1::EngineProgress& proto) {
  return {.moves = proto.moves(),
          .activity = proto.activity(),
          .still_for = absl::Seconds(proto.still_seconds())};
}

// Sends what `next` fills, on the thread of `disk`, until it leaves a message empty; deletes
// itself at the end.
class SampleWriter final : public grpc::ServerWriteReactor<v1::StreamSamplesResponse> {
 public:
  SampleWriter(SampleDiskThread& disk, std::function<absl::Status(v1::StreamSamplesResponse*)> next)
      : disk_(disk), next_(std::move(next)) {
    Continue();
  }
  void OnWriteDone(bool ok) override {
    if (ok) return Continue();
    Finish(ToGrpcStatus(absl::CancelledError("the trainer closed the stream")));
  }
  void OnDone() override { delete this; }

 private:
  // It lives until it has finished, which is at the end of a task.
  void Continue() {
    disk_.Post([this] { Send(); });
  }
  void Send() {
    message_.Clear();
    const absl::Status filled = next_(&message_);
    if (!filled.ok() || message_.samples_size() == 0) return Finish(ToGrpcStatus(filled));
    StartWrite(&message_);
  }

  SampleDiskThread& disk_;
  const std::function<absl::Status(v1::StreamSamplesResponse*)> next_;
  v1::StreamSamplesResponse message_;
};

// Hands each message to `take`, which writes them to the disk, on the thread of `disk`; deletes
// itself at the end.
class LogProbsReader final : public grpc::ServerReadReactor<v1::PutLogProbsRequest> {
 public:
  LogProbsReader(SampleDiskThread& disk,
                 std::function<absl::Status(const v1::PutLogProbsRequest&)> take,
                 v1::PutLogProbsResponse* response)
      : disk_(disk), take_(std::move(take)), response_(response) {
    StartRead(&request_);
  }
  void OnReadDone(bool ok) override {
    if (!ok) return Finish(grpc::Status::OK);
    disk_.Post([this] { Take(); });
  }
  void OnDone() override { delete this; }

 private:
  // It lives until it has finished, which is at the end of a task.
  void Take() {
    if (const absl::Status taken = take_(request_); !taken.ok()) {
      return Finish(ToGrpcStatus(taken));
    }
    response_->set_accepted(response_->accepted() + request_.items_size());
    StartRead(&request_);
  }

  SampleDiskThread& disk_;
  const std::function<absl::Status(const v1::PutLogProbsRequest&)> take_;
  v1::PutLogProbsResponse* const response_;
  v1::PutLogProbsRequest request_;
};

}  // namespace

absl::Status ClusterService::CheckOwn(const grpc::ServerContextBase* context,
                                      const WorkerKey& key) const {
  return CheckWorkerCall(context, project_, RoleName(key.role), key.rank);
}

absl::StatusOr<int64_t> ClusterService::Accept(const grpc::ServerContextBase* context,
                                               const v1::RegisterRequest& request) {
  TANDEM_ASSIGN_OR_RETURN(const Announcement announcement, ParseAnnouncement(request));
  const absl::Status own = CheckOwn(context, announcement.key);
  const absl::StatusOr<int64_t> incarnation =
      own.ok() ? registry_.Register(announcement) : absl::StatusOr<int64_t>(own);
  if (!incarnation.ok()) {
    LogWarn("Refused a worker: {}", std::string(incarnation.status().message()));
    return incarnation;
  }
  LogInfo("{} registered: incarnation {}, process {}, {}{}", announcement.key.Text(), *incarnation,
          announcement.pid, announcement.address,
          announcement.numerics_class.empty() ? "" : ", ready, " + announcement.numerics_class);
  if (const std::string other = registry_.OtherBuild(announcement); !other.empty()) {
    LogWarn("{}: accepted because of cluster.allow_other_build", other);
  }
  return incarnation;
}

grpc::ServerUnaryReactor* ClusterService::Register(grpc::CallbackServerContext* context,
                                                   const v1::RegisterRequest* request,
                                                   v1::RegisterResponse* response) {
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  const absl::StatusOr<int64_t> incarnation = Accept(context, *request);
  if (!incarnation.ok()) {
    reactor->Finish(ToGrpcStatus(incarnation.status()));
    return reactor;
  }
  *response = welcome_;
  response->set_incarnation(*incarnation);
  response->set_compute_threads(request->role() == v1::ROLE_TRAINER ? threads_.trainer
                                                                    : threads_.rollout);
  holders_.Write(registry_, [reactor] { reactor->Finish(grpc::Status::OK); });
  return reactor;
}

absl::Status ClusterService::TakeHeartbeat(const grpc::ServerContextBase* context,
                                           const v1::HeartbeatRequest& request) {
  const v1::WorkerId& worker = request.worker();
  TANDEM_ASSIGN_OR_RETURN(const WorkerKey key, ParseKey(worker.role(), worker.rank()));
  TANDEM_RETURN_IF_ERROR(CheckOwn(context, key));
  HeartbeatNews news{.phase = request.phase(),
                     .version = request.version(),
                     .last_action = request.last_action(),
                     .ledger = FromProto(request.ledger()),
                     .numerics_class = request.numerics_class(),
                     .progress = FromProto(request.progress())};
  if (request.has_generation()) news.generation = FromProto(request.generation());
  if (request.has_training()) news.training = FromProto(request.training());
  return registry_.Heartbeat(key, worker.incarnation(), std::move(news));
}

grpc::ServerUnaryReactor* ClusterService::Heartbeat(grpc::CallbackServerContext* context,
                                                    const v1::HeartbeatRequest* request,
                                                    v1::HeartbeatResponse* response) {
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  response->set_stop(stopping_);
  reactor->Finish(ToGrpcStatus(TakeHeartbeat(context, *request)));
  return reactor;
}

absl::Status ClusterService::CheckCaller(const grpc::ServerContextBase* context,
                                         const v1::WorkerId& worker) const {
  TANDEM_ASSIGN_OR_RETURN(const WorkerKey key, ParseKey(worker.role(), worker.rank()));
  TANDEM_RETURN_IF_ERROR(CheckOwn(context, key));
  return registry_.CheckCurrent(key, worker.incarnation());
}

absl::StatusOr<ClusterService::SampleSource> ClusterService::OpenSampleSource(
    const grpc::ServerContextBase* context, const v1::StreamSamplesRequest& request) const {
  TANDEM_RETURN_IF_ERROR(CheckCaller(context, request.worker()));
  if (request.probe()) {
    TANDEM_ASSIGN_OR_RETURN(std::vector<Sample> samples,
                            probe_.Samples(request.step(), request.worker().rank()));
    return [samples = std::move(samples)](v1::StreamSamplesResponse* message) mutable {
      for (const Sample& sample : std::exchange(samples, {})) {
        *message->add_samples() = ToProto(sample);
      }
      return absl::OkStatus();
    };
  }
  const auto assigned = [&request](const SampleStore& store) {
    return store.Assigned(request.step(), request.mini_batch(), request.worker().rank());
  };
  const SampleStore* store = &samples_;
  absl::StatusOr<std::vector<uint64_t>> found = assigned(samples_);
  if (auto next = assigned(upcoming_); !found.ok() && next.ok()) {
    store = &upcoming_;
    found = std::move(next);
  }
  TANDEM_ASSIGN_OR_RETURN(std::vector<uint64_t> ids, std::move(found));
  return [store, ids = std::move(ids),
          next = size_t{0}](v1::StreamSamplesResponse* message) mutable -> absl::Status {
    for (size_t bytes = 0; next < ids.size() && bytes < kFlushedMessageBytes;) {
      TANDEM_ASSIGN_OR_RETURN(const Sample sample, store->Read(ids[next++]));
      v1::Sample* const added = message->add_samples();
      *added = ToProto(sample);
      bytes += added->ByteSizeLong();
    }
    return absl::OkStatus();
  };
}

grpc::ServerWriteReactor<v1::StreamSamplesResponse>* ClusterService::StreamSamples(
    grpc::CallbackServerContext* context, const v1::StreamSamplesRequest* request) {
  absl::StatusOr<SampleSource> source = OpenSampleSource(context, *request);
  if (source.ok()) return new SampleWriter(disk_, *std::move(source));
  return new SampleWriter(disk_, [refused = source.status()](auto*) { return refused; });
}

absl::Status ClusterService::TakeLogProbs(const grpc::ServerContextBase* context,
                                          const v1::PutLogProbsRequest& request) {
  static const std::map<std::string, TokenArray> kArrays = {
      {"current", TokenArray::kRecomputed},
      {"reference", TokenArray::kReference},
      {"sum_pi_squared", TokenArray::kSumPiSquared},
      {"training", TokenArray::kTraining}};
  TANDEM_RETURN_IF_ERROR(CheckCaller(context, request.worker()));
  const bool probe = request.policy() == "probe";
  const auto array = kArrays.find(request.policy());
  if (!probe && array == kArrays.end()) {
    return InvalidArgument(
        "policy {} is none of current, reference, probe, sum_pi_squared and training",
        request.policy());
  }
  for (const auto& item : request.items()) {
    const std::vector<float> values(item.log_probs().begin(), item.log_probs().end());
    TANDEM_RETURN_IF_ERROR(
        probe
            ? probe_.PutLogProbs(request.step(), request.worker().rank(), item.sample_id(), values)
            : samples_.PutArray(request.step(), array->second, item.sample_id(), values));
  }
  return absl::OkStatus();
}

grpc::ServerReadReactor<v1::PutLogProbsRequest>* ClusterService::PutLogProbs(
    grpc::CallbackServerContext* context, v1::PutLogProbsResponse* response) {
  const auto take = [this, context](const v1::PutLogProbsRequest& request) {
    return TakeLogProbs(context, request);
  };
  return new LogProbsReader(disk_, take, response);
}

}  // namespace tandem
