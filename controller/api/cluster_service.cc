#include "controller/api/cluster_service.h"

#include <map>
#include <utility>

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

}  // namespace

absl::Status ClusterService::CheckOwn(const grpc::ServerContext* context,
                                      const WorkerKey& key) const {
  return CheckWorkerCall(context, project_, RoleName(key.role), key.rank);
}

grpc::Status ClusterService::Register(grpc::ServerContext* context,
                                      const v1::RegisterRequest* request,
                                      v1::RegisterResponse* response) {
  const absl::StatusOr<Announcement> announcement = ParseAnnouncement(*request);
  if (!announcement.ok()) return ToGrpcStatus(announcement.status());
  const absl::Status own = CheckOwn(context, announcement->key);
  const absl::StatusOr<int64_t> incarnation =
      own.ok() ? registry_.Register(*announcement) : absl::StatusOr<int64_t>(own);
  if (!incarnation.ok()) {
    LogWarn("Refused a worker: {}", std::string(incarnation.status().message()));
    return ToGrpcStatus(incarnation.status());
  }
  holders_.Write(registry_);
  LogInfo("{} registered: incarnation {}, process {}, {}{}", announcement->key.Text(), *incarnation,
          announcement->pid, announcement->address,
          announcement->numerics_class.empty() ? "" : ", ready, " + announcement->numerics_class);
  if (const std::string other = registry_.OtherBuild(*announcement); !other.empty()) {
    LogWarn("{}: accepted because of cluster.allow_other_build", other);
  }
  *response = welcome_;
  response->set_incarnation(*incarnation);
  return grpc::Status::OK;
}

grpc::Status ClusterService::Heartbeat(grpc::ServerContext* context,
                                       const v1::HeartbeatRequest* request,
                                       v1::HeartbeatResponse* response) {
  const v1::WorkerId& worker = request->worker();
  const absl::StatusOr<WorkerKey> key = ParseKey(worker.role(), worker.rank());
  if (!key.ok()) return ToGrpcStatus(key.status());
  if (const absl::Status own = CheckOwn(context, *key); !own.ok()) return ToGrpcStatus(own);
  response->set_stop(stopping_);
  HeartbeatNews news{.phase = request->phase(),
                     .version = request->version(),
                     .last_action = request->last_action(),
                     .ledger = FromProto(request->ledger()),
                     .numerics_class = request->numerics_class(),
                     .progress = FromProto(request->progress())};
  if (request->has_generation()) news.generation = FromProto(request->generation());
  if (request->has_training()) news.training = FromProto(request->training());
  return ToGrpcStatus(registry_.Heartbeat(*key, worker.incarnation(), std::move(news)));
}

absl::Status ClusterService::CheckCaller(const grpc::ServerContext* context,
                                         const v1::WorkerId& worker) const {
  TANDEM_ASSIGN_OR_RETURN(const WorkerKey key, ParseKey(worker.role(), worker.rank()));
  TANDEM_RETURN_IF_ERROR(CheckOwn(context, key));
  return registry_.CheckCurrent(key, worker.incarnation());
}

absl::Status ClusterService::StreamProbe(
    const v1::StreamSamplesRequest& request,
    grpc::ServerWriter<v1::StreamSamplesResponse>* writer) const {
  TANDEM_ASSIGN_OR_RETURN(const std::vector<Sample> samples,
                          probe_.Samples(request.step(), request.worker().rank()));
  v1::StreamSamplesResponse message;
  for (const Sample& sample : samples) *message.add_samples() = ToProto(sample);
  writer->Write(message);
  return absl::OkStatus();
}

grpc::Status ClusterService::StreamSamples(grpc::ServerContext* context,
                                           const v1::StreamSamplesRequest* request,
                                           grpc::ServerWriter<v1::StreamSamplesResponse>* writer) {
  const absl::Status stream = [&]() -> absl::Status {
    TANDEM_RETURN_IF_ERROR(CheckCaller(context, request->worker()));
    if (request->probe()) return StreamProbe(*request, writer);
    TANDEM_ASSIGN_OR_RETURN(
        const std::vector<uint64_t> ids,
        samples_.Assigned(request->step(), request->mini_batch(), request->worker().rank()));
    v1::StreamSamplesResponse message;
    for (const uint64_t id : ids) {
      TANDEM_ASSIGN_OR_RETURN(const Sample sample, samples_.Read(id));
      *message.add_samples() = ToProto(sample);
      if (message.ByteSizeLong() < kFlushedMessageBytes) continue;
      if (!writer->Write(message)) return absl::CancelledError("the trainer closed the stream");
      message.Clear();
    }
    if (message.samples_size() > 0) writer->Write(message);
    return absl::OkStatus();
  }();
  return ToGrpcStatus(stream);
}

absl::Status ClusterService::TakeLogProbs(const v1::PutLogProbsRequest& request) {
  static const std::map<std::string, TokenArray> kArrays = {
      {"current", TokenArray::kRecomputed},
      {"reference", TokenArray::kReference},
      {"sum_pi_squared", TokenArray::kSumPiSquared},
      {"training", TokenArray::kTraining}};
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

grpc::Status ClusterService::PutLogProbs(grpc::ServerContext* context,
                                         grpc::ServerReader<v1::PutLogProbsRequest>* reader,
                                         v1::PutLogProbsResponse* response) {
  int64_t accepted = 0;
  const absl::Status put = [&]() -> absl::Status {
    v1::PutLogProbsRequest request;
    while (reader->Read(&request)) {
      TANDEM_RETURN_IF_ERROR(CheckCaller(context, request.worker()));
      TANDEM_RETURN_IF_ERROR(TakeLogProbs(request));
      accepted += request.items_size();
    }
    return absl::OkStatus();
  }();
  response->set_accepted(accepted);
  return ToGrpcStatus(put);
}

}  // namespace tandem
