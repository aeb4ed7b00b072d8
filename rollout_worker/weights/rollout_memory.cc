#include "rollout_worker/weights/rollout_memory.h"

#include <algorithm>

#include "common/base/log.h"
#include "common/base/status.h"
#include "common/device/device_memory.h"

namespace tandem {
namespace {

constexpr char kWeightsTag[] = "weights";
constexpr char kKvTag[] = "kv_cache";

double Mebibytes(int64_t bytes) { return static_cast<double>(bytes) / (1 << 20); }

absl::Status CheckTags(const std::vector<std::string>& tags) {
  for (const std::string& tag : tags) {
    if (tag == kWeightsTag || tag == kKvTag) continue;
    return InvalidArgument("unknown memory tag \"{}\"; the tags are {} and {}", tag, kWeightsTag,
                           kKvTag);
  }
  return absl::OkStatus();
}

bool Names(const std::vector<std::string>& tags, const char* tag) {
  return std::find(tags.begin(), tags.end(), tag) != tags.end();
}

// What becomes of each tag.
struct SleepPlan {
  bool drop_kv = false;
  bool drop_weights = false;
  bool park_weights = false;  // move them to host memory
};

absl::StatusOr<SleepPlan> MakePlan(const SleepOrder& order, bool weights_whole) {
  TANDEM_RETURN_IF_ERROR(CheckSleepOrder(order));
  if (order.drain_only) return SleepPlan{};
  if (!order.tags.empty()) {
    return SleepPlan{Names(order.tags, kKvTag), Names(order.tags, kWeightsTag), false};
  }
  // Weights that are no version are not worth keeping.
  const bool keep = order.level == 1 && weights_whole;
  return SleepPlan{true, !keep, keep};
}

}  // namespace

absl::Status CheckSleepOrder(const SleepOrder& order) {
  if (order.drain_only) return absl::OkStatus();
  if (!order.tags.empty()) return CheckTags(order.tags);
  if (order.level == 1 || order.level == 2) return absl::OkStatus();
  return InvalidArgument(
      "sleep level {} does not exist; 1 keeps the weights in host memory, 2 drops them",
      order.level);
}

Lifecycle::Lifecycle(WeightStorage* weights,
                     KvCache* kv,
                     ModelRunner* runner,
                     WeightReceiver* receiver)
    : weights_(weights), kv_(kv), runner_(runner), receiver_(receiver) {}

RolloutFacts Lifecycle::Facts() const {
  RolloutFacts facts;
  facts.weights_mapped = weights_->mapped();
  facts.weights_whole = version() != kNoVersion;
  facts.kv_mapped = kv_->mapped();
  facts.applied = receiver_->core().applied();
  return facts;
}

int64_t Lifecycle::DeviceBytes() const {
  return (weights_->mapped() ? weights_->bytes() : 0) + (kv_->mapped() ? kv_->bytes() : 0) +
         runner_->workspace_bytes();
}

absl::Status Lifecycle::Start() {
  TANDEM_RETURN_IF_ERROR(weights_->Map());
  TANDEM_RETURN_IF_ERROR(kv_->Map());
  return runner_->MapWorkspace();
}

absl::Status Lifecycle::LoadCheckpoint(const std::string& model_dir, const ModelSpec& spec) {
  TANDEM_RETURN_IF_ERROR(weights_->LoadCheckpoint(model_dir, spec, receiver_->core().storage()));
  TANDEM_RETURN_IF_ERROR(receiver_->AdoptVersion(0));
  SetLogVersion(version());
  return machine_.Handle(RolloutEvent::kLoad, Facts());
}

absl::Status Lifecycle::AdmitRequest(int64_t wanted) {
  TANDEM_RETURN_IF_ERROR(machine_.Handle(RolloutEvent::kGenerate, Facts()));
  if (wanted >= 0 && wanted != version()) {
    return FailedPrecondition(
        "the request wants weight version {}, but this rollout serves version {}; sync it first",
        wanted, version());
  }
  return absl::OkStatus();
}

absl::Status Lifecycle::Drain(bool running) {
  if (state() != RolloutState::kServing) return absl::OkStatus();
  RolloutFacts facts = Facts();
  facts.running = running;
  return machine_.Handle(RolloutEvent::kDrain, facts);
}

absl::Status Lifecycle::Reopen(const absl::Status& failure) {
  if (state() == RolloutState::kDraining) {
    TANDEM_RETURN_IF_ERROR(machine_.Handle(RolloutEvent::kWake, Facts()));
  }
  return failure;
}

absl::StatusOr<int64_t> Lifecycle::Sleep(const SleepOrder& order) {
  auto freed = GiveBack(order);
  if (!freed.ok()) return Reopen(freed.status());
  return freed;
}

absl::StatusOr<int64_t> Lifecycle::GiveBack(const SleepOrder& order) {
  TANDEM_ASSIGN_OR_RETURN(const SleepPlan plan, MakePlan(order, version() != kNoVersion));
  RolloutFacts after = Facts();
  after.kv_mapped = after.kv_mapped && !plan.drop_kv;
  after.weights_mapped = after.weights_mapped && !plan.drop_weights && !plan.park_weights;
  after.weights_whole = after.weights_whole && !plan.drop_weights;
  TANDEM_RETURN_IF_ERROR(NextState(state(), RolloutEvent::kSleep, after).status());

  const int64_t before = DeviceBytes();
  if (plan.drop_kv) {
    TANDEM_RETURN_IF_ERROR(kv_->Release());
    TANDEM_RETURN_IF_ERROR(runner_->ReleaseWorkspace());
  }
  if (plan.park_weights) TANDEM_RETURN_IF_ERROR(weights_->MoveToHost());
  if (plan.drop_weights) {
    TANDEM_RETURN_IF_ERROR(weights_->Drop());
    receiver_->DropVersion();
  }
  TANDEM_RETURN_IF_ERROR(CheckReleased());
  SetLogVersion(version());
  TANDEM_RETURN_IF_ERROR(machine_.Handle(RolloutEvent::kSleep, Facts()));
  LogInfo("{}: gave {:.1f} MiB of device memory back", RolloutStateName(state()),
          Mebibytes(before - DeviceBytes()));
  return before - DeviceBytes();
}

absl::Status Lifecycle::CheckReleased() const {
  const int64_t weights = weights_->mapped() ? 0 : weights_->resident_bytes();
  const int64_t kv = kv_->mapped() ? 0 : kv_->resident_bytes();
  if (weights == 0 && kv == 0) return absl::OkStatus();
  return Internal(
      "sleep did not give all memory back: {} bytes of weights and {} bytes of the KV "
      "cache are still resident",
      weights, kv);
}

absl::StatusOr<int64_t> Lifecycle::Wake(const std::vector<std::string>& tags) {
  TANDEM_RETURN_IF_ERROR(CheckTags(tags));
  const bool weights = tags.empty() || Names(tags, kWeightsTag);
  const bool kv = tags.empty() || Names(tags, kKvTag);
  RolloutFacts after = Facts();
  after.weights_mapped = after.weights_mapped || weights;
  after.kv_mapped = after.kv_mapped || kv;
  TANDEM_RETURN_IF_ERROR(NextState(state(), RolloutEvent::kWake, after).status());

  const int64_t before = DeviceBytes();
  if (weights) {
    TANDEM_RETURN_IF_ERROR(weights_->on_host() ? weights_->MoveToDevice() : weights_->Map());
  }
  if (kv) {
    TANDEM_RETURN_IF_ERROR(kv_->Map());
    TANDEM_RETURN_IF_ERROR(runner_->MapWorkspace());
  }
  TANDEM_RETURN_IF_ERROR(machine_.Handle(RolloutEvent::kWake, Facts()));
  LogInfo("{}: took {:.1f} MiB of device memory", RolloutStateName(state()),
          Mebibytes(DeviceBytes() - before));
  return DeviceBytes() - before;
}

absl::Status Lifecycle::BeginUpdate(const UpdateOpening& opening) {
  const bool reopened = updating();
  if (!reopened) {
    const auto next = NextState(state(), RolloutEvent::kBegin, Facts());
    if (!next.ok()) return Reopen(next.status());
  }
  const bool applied = receiver_->core().applied();
  const absl::Status begun = receiver_->Begin(opening);
  if (reopened) {
    if (!begun.ok() && receiver_->core().updating()) return begun;
    // A larger generation has ended the update that was open.
    RolloutFacts facts = Facts();
    facts.applied = applied;
    TANDEM_RETURN_IF_ERROR(machine_.Handle(RolloutEvent::kAbort, facts));
  }
  if (!begun.ok()) return Reopen(begun);
  TANDEM_RETURN_IF_ERROR(Drain(false));
  return machine_.Handle(RolloutEvent::kBegin, Facts());
}

absl::Status Lifecycle::ApplyBucket(int64_t version,
                                    int64_t generation,
                                    int slot,
                                    const std::vector<BucketEntry>& entries) {
  TANDEM_RETURN_IF_ERROR(NextState(state(), RolloutEvent::kApply, Facts()).status());
  const bool applied = receiver_->core().applied();
  const absl::Status status = receiver_->Apply(version, generation, slot, entries);
  SetLogVersion(this->version());
  if (!status.ok()) {
    TANDEM_RETURN_IF_ERROR(Settle(applied));
    return status;
  }
  return machine_.Handle(RolloutEvent::kApply, Facts());
}

absl::Status Lifecycle::CommitUpdate(int64_t version,
                                     int64_t generation,
                                     const std::vector<Digest>& digests) {
  TANDEM_RETURN_IF_ERROR(NextState(state(), RolloutEvent::kCommit, Facts()).status());
  const bool applied = receiver_->core().applied();
  const absl::Status status = receiver_->Commit(version, generation, digests);
  SetLogVersion(this->version());
  if (!status.ok()) {
    TANDEM_RETURN_IF_ERROR(Settle(applied));
    return status;
  }
  TANDEM_RETURN_IF_ERROR(machine_.Handle(RolloutEvent::kCommit, Facts()));
  LogInfo("{}: holds weight version {}", RolloutStateName(state()), version);
  FaultFlip(weights_->device(), "resident weights", weights_->data());
  return absl::OkStatus();
}

absl::Status Lifecycle::AbortUpdate(int64_t version, int64_t generation) {
  if (!updating()) return absl::OkStatus();
  const bool applied = receiver_->core().applied();
  receiver_->Abort(version, generation);
  return Settle(applied);
}

absl::Status Lifecycle::PollPeer() {
  if (!updating()) return receiver_->PollPeer();
  const bool applied = receiver_->core().applied();
  const absl::Status status = receiver_->PollPeer();
  TANDEM_RETURN_IF_ERROR(Settle(applied));
  return status;
}

absl::Status Lifecycle::Settle(bool applied_before) {
  if (!updating() || receiver_->core().updating()) return absl::OkStatus();
  SetLogVersion(version());
  RolloutFacts facts = Facts();
  facts.applied = applied_before || !facts.weights_whole;
  return machine_.Handle(RolloutEvent::kAbort, facts);
}

absl::Status Lifecycle::CheckReadable() const {
  if (!weights_->mapped() || version() == kNoVersion) {
    return FailedPrecondition("this rollout is {} and holds no readable weights; wake and sync it",
                              RolloutStateName(state()));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<Digest>> Lifecycle::Digests() const {
  TANDEM_RETURN_IF_ERROR(CheckReadable());
  return receiver_->core().Digests();
}

absl::StatusOr<std::string> Lifecycle::ReadTensor(const std::string& name,
                                                  int64_t row,
                                                  int64_t rows) const {
  TANDEM_RETURN_IF_ERROR(CheckReadable());
  return receiver_->ReadRows(name, row, rows);
}

absl::Status Lifecycle::Verify(int64_t version) const {
  TANDEM_RETURN_IF_ERROR(CheckReadable());
  if (updating() || version != this->version()) {
    return FailedPrecondition(
        "weight version {} cannot be verified: this rollout is {} and holds version {}", version,
        RolloutStateName(state()), this->version());
  }
  TANDEM_RETURN_IF_ERROR(receiver_->core().Verify());
  TANDEM_RETURN_IF_ERROR(receiver_->core().storage().CheckPadding());
  return runner_->VerifyTables();
}

}  // namespace tandem
