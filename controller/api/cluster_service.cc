#include "controller/api/cluster_service.h"

#include <functional>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "common/base/local_address.h"
#include "common/base/log.h"
#include "common/base/status.h"
#include "common/net/grpc_status.h"
#include "common/net/security/caller.h"
#include "common/net/worker_codec.h"

namespace tandem {
namespace {

constexpr size_t kFlushedMessageBytes = 1 << 20;  // gRPC's limit is 4 MiB

absl::StatusOr<Announcement> ParseAnnouncement(const v1::RegisterRequest& request) {
  TANDEM_ASSIGN_OR_RETURN(const WorkerKey key, WorkerKeyOf(request));
  if (!request.node().empty() && !IsNodeName(request.node())) {
    return InvalidArgument(
        "the node of {} is no name of 1 to 253 letters, digits, dots, hyphens and "
        "underscores",
        key.Text());
  }
  return Announcement{
      .protocol = request.protocol(),
      .key = key,
      .address = request.address(),
      .host = {.boot_id = request.boot_id(), .node = request.node()},
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
      .process_start = request.process_start(),
      .data_address = request.data_address()};
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

bool ClusterService::MustDial(const Announcement& announcement) const {
  if (dial_ == nullptr || announcement.address.starts_with("unix:")) return false;
  const std::optional<WorkerEntry> known = registry_.Find(announcement.key);
  return !known || known->announcement.boot_nonce != announcement.boot_nonce ||
         known->announcement.address != announcement.address;
}

absl::Status ClusterService::CheckReached(const Comer& comer, const absl::Status& reached) {
  const std::string& address = comer.announcement.address;
  const bool late = absl::IsDeadlineExceeded(reached);
  // A port of this host takes or refuses a connection at once: who answers late is busy.
  const bool busy = late && IsLocalAddress(address);
  // Of who is there and refuses this call others have to tell more.
  const bool refuses = absl::IsPermissionDenied(reached) || absl::IsUnauthenticated(reached) ||
                       absl::IsUnimplemented(reached);
  if (reached.ok() || busy || refuses) return absl::OkStatus();
  // Silence of another host may pass, and a worker of an earlier controller was reached there
  // before: they are told to try again. A port that refuses and a name that nobody knows stay so.
  const bool may_pass = late || comer.announcement.incarnation != 0;
  return MakeStatus(
      may_pass ? absl::StatusCode::kDeadlineExceeded : absl::StatusCode::kFailedPrecondition,
      "{} on {} calls from {} and announces {}, where this controller does not reach it: {}; give "
      "it --advertise or --interface with an address that this host reaches, and let its port "
      "through firewalls (a fixed one with --listen 0.0.0.0:PORT)",
      comer.announcement.key.Text(), comer.announcement.host.Text(), comer.from, address,
      std::string(reached.message()));
}

void ClusterService::Refuse(const Comer& comer, const absl::Status& why) {
  LogWarn("Refused a worker: {}", std::string(why.message()));
  comer.reactor->Finish(ToGrpcStatus(why));
}

void ClusterService::Admit(const Comer& comer) {
  const Announcement& announcement = comer.announcement;
  const absl::StatusOr<int64_t> incarnation = registry_.Register(announcement);
  if (!incarnation.ok()) return Refuse(comer, incarnation.status());
  LogInfo("{} registered: incarnation {}, process {}, {} on {}{}", announcement.key.Text(),
          *incarnation, announcement.pid, announcement.address, announcement.host.Text(),
          announcement.numerics_class.empty() ? "" : ", ready, " + announcement.numerics_class);
  if (const std::string other = registry_.OtherBuild(announcement); !other.empty()) {
    LogWarn("{}: accepted because of cluster.allow_other_build", other);
  }
  *comer.response = welcome_;
  comer.response->set_incarnation(*incarnation);
  comer.response->set_compute_threads(
      announcement.key.role == WorkerRole::kTrainer ? threads_.trainer : threads_.rollout);
  holders_.Write(registry_, [reactor = comer.reactor] { reactor->Finish(grpc::Status::OK); });
}

grpc::ServerUnaryReactor* ClusterService::Register(grpc::CallbackServerContext* context,
                                                   const v1::RegisterRequest* request,
                                                   v1::RegisterResponse* response) {
  Comer comer{.from = context->peer(), .response = response, .reactor = context->DefaultReactor()};
  absl::StatusOr<Announcement> announcement = ParseAnnouncement(*request);
  absl::Status own = announcement.status();
  if (own.ok()) own = CheckOwn(context, announcement->key);
  grpc::ServerUnaryReactor* const reactor = comer.reactor;
  if (!own.ok()) {
    Refuse(comer, own);
    return reactor;
  }
  comer.announcement = *std::move(announcement);
  if (!MustDial(comer.announcement)) {
    Admit(comer);
    return reactor;
  }
  // The reactor may be gone once it has been finished, so it is not looked at after this.
  const std::string address = comer.announcement.address;
  dial_(address, [this, comer = std::move(comer)](const absl::Status& reached) {
    const absl::Status found = CheckReached(comer, reached);
    found.ok() ? Admit(comer) : Refuse(comer, found);
  });
  return reactor;
}

absl::Status ClusterService::TakeHeartbeat(const grpc::ServerContextBase* context,
                                           const v1::HeartbeatRequest& request) {
  const v1::WorkerId& worker = request.worker();
  TANDEM_ASSIGN_OR_RETURN(const WorkerKey key, WorkerKeyOf(worker));
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
  TANDEM_ASSIGN_OR_RETURN(const WorkerKey key, WorkerKeyOf(worker));
  TANDEM_RETURN_IF_ERROR(CheckOwn(context, key));
  return registry_.CheckCurrent(key, worker.incarnation());
}

SampleStore& ClusterService::StoreOf(int64_t step) const {
  const bool ahead = upcoming_ != nullptr && samples_.step() != step && upcoming_->step() == step;
  return ahead ? *upcoming_ : samples_;
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
  const SampleStore* const store = &StoreOf(request.step());
  TANDEM_ASSIGN_OR_RETURN(
      std::vector<uint64_t> ids,
      store->Assigned(request.step(), request.mini_batch(), request.worker().rank()));
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
  SampleStore& store = StoreOf(request.step());
  for (const auto& item : request.items()) {
    const std::vector<float> values(item.log_probs().begin(), item.log_probs().end());
    TANDEM_RETURN_IF_ERROR(
        probe
            ? probe_.PutLogProbs(request.step(), request.worker().rank(), item.sample_id(), values)
            : store.PutArray(request.step(), array->second, item.sample_id(), values));
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
