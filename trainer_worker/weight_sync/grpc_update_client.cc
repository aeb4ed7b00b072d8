#include "trainer_worker/weight_sync/grpc_update_client.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include <absl/time/clock.h>
#include <grpcpp/grpcpp.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/progress.h"
#include "common/base/status.h"
#include "common/net/call_deadline.h"
#include "common/net/grpc_status.h"
#include "common/net/update_codec.h"
#include "common/weights/peer_connection.h"
#include "common/weights/update_request.h"
#include "tandem/v1/rollout.grpc.pb.h"

namespace tandem {
namespace {

// How often the data connection is looked at while a call is waited for, and how long an answer may
// take once it has ended: a rollout that lives says why it has ended it as soon as its engine is
// done with the slot before.
constexpr absl::Duration kLook = absl::Milliseconds(200);
constexpr absl::Duration kAnswerAfterEnd = absl::Seconds(10);

struct PendingApply {
  grpc::ClientContext context;
  std::optional<CallDeadline> deadline;
  v1::ApplyBucketResponse response;
  grpc::Status status;
  std::unique_ptr<grpc::ClientAsyncResponseReader<v1::ApplyBucketResponse>> reader;
  bool done = false;
};

// Marks an error as the rollout's if the rollout did not answer, so that the controller does not
// treat this trainer as lost.
absl::Status OfPartner(absl::Status status) {
  const bool silent = (absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status)) &&
                      !AnsweredByWorker(status);
  return silent ? WithOrigin(std::move(status), FailureOrigin::kPartner) : status;
}

absl::Status FromCall(const char* call, const grpc::Status& status) {
  return OfPartner(Annotate(FromServiceStatus(status), fmt::format("{} on the rollout", call)));
}

}  // namespace

struct GrpcUpdateClient::Calls {
  explicit Calls(std::shared_ptr<grpc::Channel> channel)
      : stub(v1::RolloutService::NewStub(std::move(channel))) {}

  std::unique_ptr<v1::RolloutService::Stub> stub;
  grpc::CompletionQueue queue;
  std::map<int, std::unique_ptr<PendingApply>> applies;  // by slot
};

GrpcUpdateClient::GrpcUpdateClient(std::shared_ptr<grpc::Channel> channel,
                                   GrpcUpdateClientOptions options)
    : options_(std::move(options)), calls_(std::make_unique<Calls>(std::move(channel))) {}

GrpcUpdateClient::~GrpcUpdateClient() {
  for (auto& [slot, apply] : calls_->applies) apply->context.TryCancel();
  calls_->queue.Shutdown();
  void* tag = nullptr;
  bool ok = false;
  while (calls_->queue.Next(&tag, &ok)) {
  }
}

absl::StatusOr<int64_t> GrpcUpdateClient::HeldVersion() {
  v1::RolloutStatusRequest request;
  grpc::ClientContext context;
  const CallDeadline deadline(context, options_.deadline);
  const OutsideWait wait;
  v1::RolloutStatusResponse response;
  TANDEM_RETURN_IF_ERROR(FromCall(
      "GetStatus", deadline.Explain(calls_->stub->GetStatus(&context, request, &response))));
  return response.version();
}

absl::StatusOr<GrpcUpdateClient::Opened> GrpcUpdateClient::BeginUpdate(
    const UpdateRequest& update) {
  id_ = update.id;
  sender_.reset();
  v1::BeginUpdateRequest request;
  request.set_incarnation(options_.rollout_incarnation);
  request.set_version(update.id.version);
  request.set_generation(update.id.update_number);
  request.set_slot_bytes(update.slots.slot_bytes);
  request.set_slots(update.slots.slots);
  request.set_direct(update.slots.direct);
  request.set_trainer_boot_id(options_.trainer_boot_id);
  request.set_step(LogStep());
  request.set_scramble(options_.scramble);
  request.set_adapters(update.scope == UpdateScope::kAdapters);
  request.set_group_generation(update.group_generation);
  request.set_over_tcp(update.over_tcp);
  request.set_from_rollout(update.chain.from_rollout);
  request.set_next_address(update.chain.next.address);
  request.set_next_ticket(update.chain.next.ticket);
  request.set_rollouts_behind(update.chain.behind);
  ToProto(update.manifest, request.mutable_manifest());
  grpc::ClientContext context;
  const CallDeadline deadline(context, options_.deadline);
  const OutsideWait wait;
  v1::BeginUpdateResponse response;
  TANDEM_RETURN_IF_ERROR(FromCall(
      "BeginUpdate", deadline.Explain(calls_->stub->BeginUpdate(&context, request, &response))));
  return Opened{response.pair_socket(), {response.data_address(), response.ticket()}};
}

absl::StatusOr<PeerConnection> GrpcUpdateClient::Begin(const UpdateRequest& update,
                                                       const ProducerSlots& slots) {
  TANDEM_ASSIGN_OR_RETURN(const Opened opened, BeginUpdate(update));
  if (update.over_tcp) return Connect(opened.offer, slots);
  auto connection = PassSlots(opened.pair_socket, update.id.update_number, slots);
  TANDEM_RETURN_IF_ERROR(OfPartner(connection.status()));
  PeerConnection passed;
  passed.socket = *std::move(connection);
  passed.timeout = options_.deadline;
  return passed;
}

absl::StatusOr<StreamOffer> GrpcUpdateClient::Open(const UpdateRequest& update) {
  TANDEM_ASSIGN_OR_RETURN(Opened opened, BeginUpdate(update));
  return std::move(opened.offer);
}

absl::StatusOr<PeerConnection> GrpcUpdateClient::Connect(const StreamOffer& offer,
                                                         const ProducerSlots& slots) {
  auto sender = SlotSender::Dial({offer.address, offer.ticket, id_.update_number, slots.shape()},
                                 options_.data, options_.deadline);
  TANDEM_RETURN_IF_ERROR(OfPartner(sender.status()));
  PeerConnection connection;
  connection.timeout = options_.deadline;
  connection.sender = *std::move(sender);
  sender_ = connection.sender;
  return connection;
}

absl::Status GrpcUpdateClient::StartApply(int slot, const std::vector<BucketEntry>& entries) {
  if (calls_->applies.count(slot) > 0) return Internal("slot {} is still being applied", slot);
  v1::ApplyBucketRequest request;
  request.set_incarnation(options_.rollout_incarnation);
  request.set_version(id_.version);
  request.set_generation(id_.update_number);
  request.set_slot(slot);
  ToProto(entries, request.mutable_entries());
  auto apply = std::make_unique<PendingApply>();
  apply->deadline.emplace(apply->context, options_.deadline);
  apply->reader = calls_->stub->AsyncApplyBucket(&apply->context, request, &calls_->queue);
  apply->reader->Finish(&apply->response, &apply->status, apply.get());
  calls_->applies[slot] = std::move(apply);
  return absl::OkStatus();
}

absl::Status GrpcUpdateClient::AwaitAnswer() const {
  Instant patience = Instant::InfiniteFuture();
  while (true) {
    void* tag = nullptr;
    bool ok = false;
    const auto look = absl::ToChronoTime(absl::Now() + kLook);
    const auto next = calls_->queue.AsyncNext(&tag, &ok, look);
    if (next == grpc::CompletionQueue::SHUTDOWN) return Internal("the completion queue has ended");
    if (next == grpc::CompletionQueue::GOT_EVENT) {
      static_cast<PendingApply*>(tag)->done = true;
      return absl::OkStatus();
    }
    const std::shared_ptr<SlotSender> sender = sender_.lock();
    if (sender == nullptr || !sender->closed()) continue;
    const Instant now = RealClock().Now();
    patience = std::min(patience, now + kAnswerAfterEnd);
    if (now < patience) continue;
    return MakeStatus(absl::StatusCode::kUnavailable,
                      "the data connection to the rollout has ended, and it has not "
                      "answered ApplyBucket within {}: its machine or its network is gone",
                      absl::FormatDuration(kAnswerAfterEnd));
  }
}

absl::Status GrpcUpdateClient::WaitApply(int slot) {
  const auto found = calls_->applies.find(slot);
  if (found == calls_->applies.end()) return absl::OkStatus();
  PendingApply& apply = *found->second;
  const OutsideWait wait;
  absl::Status ended;
  while (!apply.done) {
    ended.Update(AwaitAnswer());
    if (absl::IsInternal(ended)) return ended;
    if (!ended.ok()) apply.context.TryCancel();
  }
  const grpc::Status status = apply.deadline->Explain(apply.status);
  calls_->applies.erase(found);
  return ended.ok() ? FromCall("ApplyBucket", status) : OfPartner(ended);
}

absl::Status GrpcUpdateClient::Commit(const std::vector<Digest>& digests) {
  v1::CommitUpdateRequest request;
  request.set_incarnation(options_.rollout_incarnation);
  request.set_version(id_.version);
  request.set_generation(id_.update_number);
  ToProto(digests, request.mutable_digests());
  grpc::ClientContext context;
  const CallDeadline deadline(context, options_.deadline);
  const OutsideWait wait;
  v1::CommitUpdateResponse response;
  TANDEM_RETURN_IF_ERROR(FromCall(
      "CommitUpdate", deadline.Explain(calls_->stub->CommitUpdate(&context, request, &response))));
  traffic_ = {response.received_bytes(), response.forwarded_bytes()};
  return absl::OkStatus();
}

absl::Status GrpcUpdateClient::Abort(const std::string& reason) {
  for (auto& [slot, apply] : calls_->applies) apply->context.TryCancel();
  while (!calls_->applies.empty()) (void)WaitApply(calls_->applies.begin()->first);
  v1::AbortUpdateRequest request;
  request.set_incarnation(options_.rollout_incarnation);
  request.set_version(id_.version);
  request.set_generation(id_.update_number);
  request.set_reason(reason);
  grpc::ClientContext context;
  const CallDeadline deadline(context, std::min(options_.deadline, options_.abort_deadline));
  const OutsideWait wait;
  v1::AbortUpdateResponse response;
  return FromCall("AbortUpdate",
                  deadline.Explain(calls_->stub->AbortUpdate(&context, request, &response)));
}

absl::StatusOr<HeldWeights> GrpcUpdateClient::Digests() {
  v1::GetDigestsRequest request;
  request.set_incarnation(options_.rollout_incarnation);
  grpc::ClientContext context;
  const CallDeadline deadline(context, options_.deadline);
  const OutsideWait wait;
  v1::GetDigestsResponse response;
  TANDEM_RETURN_IF_ERROR(FromCall(
      "GetDigests", deadline.Explain(calls_->stub->GetDigests(&context, request, &response))));
  HeldWeights held;
  held.version = response.version();
  TANDEM_ASSIGN_OR_RETURN(held.manifest, FromProto(response.manifest()));
  TANDEM_ASSIGN_OR_RETURN(held.digests, FromProto(response.digests()));
  return held;
}

absl::StatusOr<std::string> GrpcUpdateClient::Read(const std::string& name,
                                                   int64_t row,
                                                   int64_t rows) {
  v1::ReadTensorRequest request;
  request.set_incarnation(options_.rollout_incarnation);
  request.set_name(name);
  request.set_row(row);
  request.set_rows(rows);
  grpc::ClientContext context;
  const CallDeadline deadline(context, options_.deadline);
  const OutsideWait wait;
  v1::ReadTensorResponse response;
  TANDEM_RETURN_IF_ERROR(FromCall(
      "ReadTensor", deadline.Explain(calls_->stub->ReadTensor(&context, request, &response))));
  return std::move(*response.mutable_data());
}

}  // namespace tandem
