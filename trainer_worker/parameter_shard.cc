#include "trainer_worker/parameter_shard.h"

#include <algorithm>
#include <cstring>

#include "common/base/status_macros.h"
#include "common/ops/cpu/adamw.h"

namespace tandem {

absl::StatusOr<std::unique_ptr<ParameterShard>> ParameterShard::Create(const ShardPlan* plan,
                                                                       Ledger* ledger) {
  std::unique_ptr<ParameterShard> shard(new ParameterShard(plan, ledger));
  TANDEM_ASSIGN_OR_RETURN(shard->master_, shard->Reserve("master", sizeof(float)));
  TANDEM_RETURN_IF_ERROR(shard->master_->Map());
  TANDEM_ASSIGN_OR_RETURN(shard->gradients_, shard->Reserve("gradients", sizeof(float)));
  if (plan->layout().dtype() == DType::kFloat32) return shard;
  TANDEM_ASSIGN_OR_RETURN(shard->compute_, shard->Reserve("weights", sizeof(Bf16)));
  TANDEM_RETURN_IF_ERROR(shard->compute_->Map());
  return shard;
}

absl::StatusOr<std::unique_ptr<MemoryRegion>> ParameterShard::Reserve(const char* tag,
                                                                      int64_t element_bytes) {
  // A rank without a single row still has regions: one element keeps them valid.
  const int64_t bytes = std::max<int64_t>(elements(), 1) * element_bytes;
  return MemoryRegion::Reserve(tag, bytes, ledger_);
}

const std::byte* ParameterShard::compute() const {
  return compute_ == nullptr ? master_->data() : compute_->data();
}

Bf16* ParameterShard::rounded() {
  return compute_ == nullptr ? nullptr : reinterpret_cast<Bf16*>(compute_->data());
}

void ParameterShard::RoundMaster() {
  if (compute_ == nullptr) return;
  ThreadPool caller(1);
  RoundToBf16(caller, master(), rounded(), elements());
}

absl::Status ParameterShard::ZeroGradients() {
  if (!gradients_->mapped()) return gradients_->Map();
  std::memset(gradients_->data(), 0, static_cast<size_t>(elements()) * sizeof(float));
  return absl::OkStatus();
}

absl::Status ParameterShard::MapMoments() {
  if (has_moments()) return absl::OkStatus();
  TANDEM_ASSIGN_OR_RETURN(auto first, Reserve("optimizer", sizeof(float)));
  TANDEM_ASSIGN_OR_RETURN(auto second, Reserve("optimizer", sizeof(float)));
  TANDEM_RETURN_IF_ERROR(first->Map());
  TANDEM_RETURN_IF_ERROR(second->Map());
  exp_avg_ = std::move(first);
  exp_avg_sq_ = std::move(second);
  return absl::OkStatus();
}

}  // namespace tandem
