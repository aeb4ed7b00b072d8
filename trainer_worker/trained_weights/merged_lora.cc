#include "trainer_worker/trained_weights/merged_lora.h"

#include <algorithm>
#include <utility>

#include "common/base/status.h"
#include "common/comm/communicator.h"
#include "common/lora/merge.h"
#include "trainer_worker/shard/master_digests.h"

namespace tandem {
namespace {

WeightLayout AdapterLayout(const LoraSpec& spec) {
  std::vector<TensorPlace> matrices;
  for (const LoraTarget& target : spec.targets) {
    for (const LoraMatrix matrix : {LoraMatrix::kA, LoraMatrix::kB}) {
      matrices.push_back({.name = LoraTensorName(target, matrix),
                          .shape = LoraTensorShape(target, matrix, spec.rank)});
    }
  }
  return WeightLayout::OfMatrices(std::move(matrices), DType::kFloat32);
}

std::vector<int> TargetsOf(const ShardPlan& plan, const LoraSpec& spec) {
  std::vector<int> targets;
  for (const TensorPlace* place : plan.tensors()) {
    const LoraTarget* const found = spec.Find(place->name);
    targets.push_back(found == nullptr ? -1 : static_cast<int>(found - spec.targets.data()));
  }
  return targets;
}

}  // namespace

LoraWeights::LoraWeights(const ShardPlan* plan,
                         LoraSpec spec,
                         const ShardCompute& compute,
                         LoraUse use)
    : plan_(plan),
      spec_(std::move(spec)),
      device_(compute.device),
      ops_(compute.ops),
      use_(use),
      target_of_(TargetsOf(*plan, spec_)),
      adapter_layout_(AdapterLayout(spec_)),
      adapter_plan_(&adapter_layout_, plan->rank(), plan->world_size()),
      digests_(plan) {}

absl::StatusOr<std::unique_ptr<LoraWeights>> LoraWeights::Create(const ShardPlan* plan,
                                                                 LoraSpec spec,
                                                                 DType base_dtype,
                                                                 const ShardOptions& options,
                                                                 const ShardCompute& compute,
                                                                 Ledger* ledger,
                                                                 LoraUse use) {
  std::unique_ptr<LoraWeights> weights(new LoraWeights(plan, std::move(spec), compute, use));
  TANDEM_ASSIGN_OR_RETURN(weights->base_, FrozenBase::Create(plan, base_dtype, compute, ledger));
  TANDEM_ASSIGN_OR_RETURN(weights->adapters_, ParameterShard::Create(&weights->adapter_plan_,
                                                                     options, compute, ledger));
  TANDEM_ASSIGN_OR_RETURN(
      weights->scratch_,
      compute.device->Reserve("gather", PieceDigestScratchBytes(*plan, *compute.device), ledger));
  if (plan->world_size() == 1) return weights;
  TANDEM_ASSIGN_OR_RETURN(
      weights->gathered_,
      compute.device->Reserve("weights", weights->adapter_plan_.total_elements() * kFloat32Bytes,
                              ledger));
  TANDEM_RETURN_IF_ERROR(weights->gathered_->Map());
  return weights;
}

const float* LoraWeights::Adapter(size_t tensor) const {
  const TensorPlace& place = adapter_layout_.places()[tensor];
  const float* all = gathered_ == nullptr ? adapters().master()
                                          : reinterpret_cast<const float*>(gathered_->data());
  return all + place.gradient_offset;  // the order of a single rank's shard
}

absl::Status LoraWeights::Gather(Communicator& communicator) {
  for (size_t i = 0; gathered_ != nullptr && i < adapter_plan_.tensors().size(); ++i) {
    const ShardPlan::Piece& piece = adapter_plan_.mine(i);
    std::vector<int64_t> bytes = adapter_plan_.CountsPerRank(i);
    for (int64_t& count : bytes) count *= kFloat32Bytes;
    auto* const to =
        reinterpret_cast<float*>(gathered_->data()) + adapter_plan_.tensors()[i]->gradient_offset;
    TANDEM_RETURN_IF_ERROR(communicator.AllGatherV(
        reinterpret_cast<const std::byte*>(adapters().master() + piece.offset), bytes,
        reinterpret_cast<std::byte*>(to)));
  }
  TANDEM_RETURN_IF_ERROR(DigestGathered());
  if (use_ == LoraUse::kBeside) {
    gathered_once_ = true;
    return absl::OkStatus();
  }
  TANDEM_RETURN_IF_ERROR(scratch_->Map());
  for (size_t tensor = 0; tensor < target_of_.size(); ++tensor) {
    // The base alone stays what it is.
    if (target_of_[tensor] < 0 && gathered_once_) continue;
    TANDEM_RETURN_IF_ERROR(DigestPiece(*this, tensor, *ops_, *scratch_, digests_));
  }
  gathered_once_ = true;
  return scratch_->Release();
}

absl::Status LoraWeights::DigestGathered() {
  std::vector<MasterRun> runs;
  for (size_t tensor = 0; tensor < adapter_layout_.places().size(); ++tensor) {
    runs.push_back({Adapter(tensor), NumElements(adapter_layout_.places()[tensor].shape), 0});
  }
  TANDEM_ASSIGN_OR_RETURN(const std::vector<DigestRun> digests,
                          ops_->Digest(runs, DType::kFloat32));
  gathered_digests_.clear();
  for (const DigestRun& digest : digests) gathered_digests_.push_back(digest.Finish());
  return absl::OkStatus();
}

absl::Status LoraWeights::CheckGathered(Communicator& communicator) const {
  const absl::Status gathered =
      gathered_once_ ? absl::OkStatus()
                     : FailedPrecondition("the adapters were not gathered since they were made");
  TANDEM_RETURN_IF_ERROR(Agree(communicator, gathered, "digesting adapters").status());
  TANDEM_ASSIGN_OR_RETURN(const std::vector<Digest> masters,
                          adapters().digests().OfTensors(communicator));
  absl::Status same;
  for (size_t tensor = 0; same.ok() && tensor < masters.size(); ++tensor) {
    if (masters[tensor] == gathered_digests_[tensor]) continue;
    same = Internal(
        "{} is not what was gathered last: the digest of its masters is {}, of what was gathered "
        "{}; with it older adapters would be published under a newer version: it was changed and "
        "not gathered since, or did not come whole, which is a fault of the trainer; resume from "
        "the last checkpoint",
        adapter_layout_.places()[tensor].name, masters[tensor].Hex(),
        gathered_digests_[tensor].Hex());
  }
  return Agree(communicator, same, "comparing gathered adapters with their masters").status();
}

absl::Status LoraWeights::DigestBase(Communicator& communicator) {
  MasterDigests digests(plan_, base_->dtype());
  TANDEM_RETURN_IF_ERROR(scratch_->Map());
  for (size_t tensor = 0; tensor < target_of_.size(); ++tensor) {
    TANDEM_RETURN_IF_ERROR(DigestPiece(*base_, tensor, *ops_, *scratch_, digests));
  }
  TANDEM_RETURN_IF_ERROR(scratch_->Release());
  TANDEM_ASSIGN_OR_RETURN(const std::vector<Digest> tensors, digests.OfTensors(communicator));
  std::string all;
  for (const Digest& digest : tensors) all += digest.Bytes();
  base_digest_ = DigestOf(all.data(), static_cast<int64_t>(all.size())).Hex();
  return absl::OkStatus();
}

absl::StatusOr<std::vector<Digest>> LoraWeights::Digests(Communicator& communicator) const {
  TANDEM_RETURN_IF_ERROR(CheckGathered(communicator));
  return digests_.OfTensors(communicator);
}

absl::Status LoraWeights::CopyRows(
    size_t tensor, int64_t row, int64_t rows, DType dtype, void* out) {
  const int target = target_of_[tensor];
  if (target < 0) return base_->CopyRows(tensor, row, rows, dtype, out);
  const int64_t first = plan_->mine(tensor).row + row;
  ops_->Merge({.base = base_->Row(tensor, row),
               .base_dtype = base_->dtype(),
               .b = b(static_cast<size_t>(target)) + first * spec_.rank,
               .a = a(static_cast<size_t>(target)),
               .scaling = spec_.scaling(),
               .rows = rows,
               .in = plan_->tensors()[tensor]->cols(),
               .rank = spec_.rank,
               .out = out,
               .out_dtype = dtype});
  return absl::OkStatus();
}

}  // namespace tandem
