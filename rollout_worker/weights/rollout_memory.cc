#include "rollout_worker/weights/rollout_memory.h"

#include <algorithm>

#include "common/base/log.h"
#include "common/base/status.h"
#include "common/process/fault_injection.h"

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

struct SleepPlan {
  bool drop_kv = false;
  bool drop_weights = false;
  bool park_weights = false;  // move them to host memory
};

absl::StatusOr<SleepPlan> MakePlan(const SleepOrder& order, bool weights_complete) {
  TANDEM_RETURN_IF_ERROR(CheckSleepOrder(order));
  if (order.drain_only) return SleepPlan{};
  if (!order.tags.empty()) {
    return SleepPlan{Names(order.tags, kKvTag), Names(order.tags, kWeightsTag), false};
  }
  // Incomplete weights need no copy.
  const bool keep = order.level == 1 && weights_complete;
  return SleepPlan{true, !keep, keep};
}

// Maps the KV cache and the memory of the activations, or neither: a mapped KV cache tells
// RolloutStates that the rollout can serve.
absl::Status MapKvAndActivations(KvCache& kv, ModelRunner& runner) {
  TANDEM_RETURN_IF_ERROR(kv.Map());
  const absl::Status activations = runner.MapActivations();
  if (activations.ok()) return absl::OkStatus();
  TANDEM_RETURN_IF_ERROR(Annotate(
      kv.Release(), "no memory for the activations, and the KV cache could not be released"));
  return activations;
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

RolloutMemory::RolloutMemory(RolloutStates* states,
                             WeightStorage* weights,
                             KvCache* kv,
                             ModelRunner* runner,
                             WeightUpdates* updates)
    : states_(states), weights_(weights), kv_(kv), runner_(runner), updates_(updates) {}

int64_t RolloutMemory::DeviceBytes() const {
  return (weights_->mapped() ? weights_->bytes() : 0) + (kv_->mapped() ? kv_->bytes() : 0) +
         runner_->activation_bytes();
}

absl::Status RolloutMemory::Map(bool weights, bool kv) {
  absl::Status mapped;
  if (weights) mapped = weights_->on_host() ? weights_->MoveToDevice() : weights_->Map();
  if (mapped.ok() && kv) mapped = MapKvAndActivations(*kv_, *runner_);
  states_->set_mapped(weights_->mapped(), kv_->mapped());
  return mapped;
}

absl::StatusOr<int64_t> RolloutMemory::Sleep(const SleepOrder& order) {
  auto released = ReleaseMemory(order);
  states_->set_mapped(weights_->mapped(), kv_->mapped());
  if (!released.ok()) return states_->ReopenAdmission(released.status());
  TANDEM_RETURN_IF_ERROR(states_->Handle(RolloutEvent::kSleep));
  LogInfo("{}: released {:.1f} MiB of device memory", RolloutStateName(states_->state()),
          Mebibytes(*released));
  FaultPoint("asleep");
  return released;
}

absl::StatusOr<int64_t> RolloutMemory::ReleaseMemory(const SleepOrder& order) {
  RolloutResources after = states_->resources();
  TANDEM_ASSIGN_OR_RETURN(const SleepPlan plan, MakePlan(order, after.weights_complete));
  after.kv_mapped = after.kv_mapped && !plan.drop_kv;
  after.weights_mapped = after.weights_mapped && !plan.drop_weights && !plan.park_weights;
  after.weights_complete = after.weights_complete && !plan.drop_weights;
  TANDEM_RETURN_IF_ERROR(states_->Check(RolloutEvent::kSleep, after));

  const int64_t before = DeviceBytes();
  if (plan.drop_kv) {
    TANDEM_RETURN_IF_ERROR(kv_->Release());
    TANDEM_RETURN_IF_ERROR(runner_->ReleaseActivations());
  }
  if (plan.park_weights) TANDEM_RETURN_IF_ERROR(weights_->MoveToHost());
  if (plan.drop_weights) {
    TANDEM_RETURN_IF_ERROR(weights_->Drop());
    updates_->DropVersion();
  }
  TANDEM_RETURN_IF_ERROR(CheckReleased());
  return before - DeviceBytes();
}

absl::Status RolloutMemory::CheckReleased() const {
  const int64_t weights = weights_->mapped() ? 0 : weights_->resident_bytes();
  const int64_t kv = kv_->mapped() ? 0 : kv_->resident_bytes();
  if (weights == 0 && kv == 0) return absl::OkStatus();
  return Internal(
      "sleep did not release all memory: {} bytes of weights and {} bytes of the KV cache are "
      "still resident",
      weights, kv);
}

absl::StatusOr<int64_t> RolloutMemory::Wake(const std::vector<std::string>& tags) {
  TANDEM_RETURN_IF_ERROR(CheckTags(tags));
  const bool weights = tags.empty() || Names(tags, kWeightsTag);
  const bool kv = tags.empty() || Names(tags, kKvTag);
  RolloutResources after = states_->resources();
  after.weights_mapped = after.weights_mapped || weights;
  after.kv_mapped = after.kv_mapped || kv;
  TANDEM_RETURN_IF_ERROR(states_->Check(RolloutEvent::kWake, after));

  const int64_t before = DeviceBytes();
  TANDEM_RETURN_IF_ERROR(Map(weights, kv));
  TANDEM_RETURN_IF_ERROR(states_->Handle(RolloutEvent::kWake));
  LogInfo("{}: mapped {:.1f} MiB of device memory", RolloutStateName(states_->state()),
          Mebibytes(DeviceBytes() - before));
  return DeviceBytes() - before;
}

}  // namespace tandem
