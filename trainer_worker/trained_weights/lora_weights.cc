#include "trainer_worker/trained_weights/lora_weights.h"

#include <algorithm>
#include <utility>

#include "common/base/log.h"
#include "common/base/status.h"
#include "common/comm/communicator.h"
#include "common/formats/peft/peft_adapter.h"
#include "common/lora/merge.h"
#include "common/model_spec/row_ranges.h"
#include "trainer_worker/shard/master_digests.h"
#include "trainer_worker/trained_weights/adapter_files.h"
#include "trainer_worker/trained_weights/lora_expected.h"
#include "trainer_worker/weight_sync/expected_weights.h"

namespace tandem {
namespace {

WeightLayout MakeAdapterLayout(const LoraSpec& spec) {
  std::vector<TensorPlace> matrices;
  for (const LoraTarget& target : spec.targets) {
    for (const LoraMatrix matrix : {LoraMatrix::kA, LoraMatrix::kB}) {
      matrices.push_back({.name = LoraTensorName(target, matrix),
                          .shape = LoraTensorShape(target, matrix, spec.rank)});
    }
  }
  return WeightLayout::OfMatrices(std::move(matrices), DType::kFloat32);
}

std::vector<int> FindTargets(const ShardPlan& plan, const LoraSpec& spec) {
  std::vector<int> targets;
  for (const TensorPlace* place : plan.tensors()) {
    const LoraTarget* const found = spec.Find(place->name);
    targets.push_back(found == nullptr ? -1 : static_cast<int>(found - spec.targets.data()));
  }
  return targets;
}

}  // namespace

absl::StatusOr<std::unique_ptr<FrozenBase>> FrozenBase::Create(const ShardPlan* plan,
                                                               DType dtype,
                                                               const ShardCompute& compute,
                                                               Ledger* ledger) {
  std::unique_ptr<FrozenBase> rows(new FrozenBase(plan, dtype, compute, ledger));
  TANDEM_ASSIGN_OR_RETURN(
      rows->array_, ShardArray::Create(compute.device, "weights", plan->elements(plan->rank()),
                                       static_cast<int64_t>(DTypeBytes(dtype)), "", ledger));
  return rows;
}

absl::Status FrozenBase::Load(const HfCheckpoint& checkpoint) {
  for (size_t tensor = 0; tensor < plan_->tensors().size(); ++tensor) {
    const ShardPlan::Piece& piece = plan_->mine(tensor);
    const int64_t step =
        RowsPerRange(plan_->tensors()[tensor]->cols() * static_cast<int64_t>(DTypeBytes(dtype_)));
    for (int64_t row = 0; row < piece.rows; row += step) {
      TANDEM_RETURN_IF_ERROR(LoadRows(checkpoint, tensor, row, std::min(step, piece.rows - row)));
    }
  }
  staging_.Release();
  return absl::OkStatus();
}

absl::Status FrozenBase::LoadRows(const HfCheckpoint& checkpoint,
                                  size_t tensor,
                                  int64_t row,
                                  int64_t rows) {
  const TensorPlace& place = *plan_->tensors()[tensor];
  const int64_t first = plan_->mine(tensor).row + row;
  auto* const to = const_cast<std::byte*>(Row(tensor, row));
  if (array_->in_host_memory()) {
    return checkpoint.ReadRows(place.name, first, rows, dtype_, to);
  }
  const int64_t bytes = rows * place.cols() * static_cast<int64_t>(DTypeBytes(dtype_));
  TANDEM_ASSIGN_OR_RETURN(std::byte* const room, staging_.Room(bytes));
  TANDEM_RETURN_IF_ERROR(checkpoint.ReadRows(place.name, first, rows, dtype_, room));
  compute_.device->Copy(to, room, bytes);
  return compute_.device->Synchronize();  // the staging memory is pinned and will be refilled
}

const std::byte* FrozenBase::Row(size_t tensor, int64_t row) const {
  const int64_t element = plan_->mine(tensor).offset + row * plan_->tensors()[tensor]->cols();
  return array_->data() + element * static_cast<int64_t>(DTypeBytes(dtype_));
}

absl::Status FrozenBase::CopyRows(
    size_t tensor, int64_t row, int64_t rows, DType dtype, void* out) {
  compute_.ops->Convert(Row(tensor, row), dtype_, out, dtype,
                        rows * plan_->tensors()[tensor]->cols());
  return absl::OkStatus();
}

LoraWeights::LoraWeights(const ShardPlan* plan,
                         LoraSpec spec,
                         const ShardCompute& compute,
                         Ledger* ledger)
    : plan_(plan),
      spec_(std::move(spec)),
      device_(compute.device),
      ops_(compute.ops),
      ledger_(ledger),
      target_of_(FindTargets(*plan, spec_)),
      adapter_layout_(MakeAdapterLayout(spec_)),
      adapter_plan_(&adapter_layout_, plan->rank(), plan->world_size()) {}

absl::StatusOr<std::unique_ptr<LoraWeights>> LoraWeights::Create(const ShardPlan* plan,
                                                                 LoraSpec spec,
                                                                 DType base_dtype,
                                                                 const ShardOptions& options,
                                                                 const ShardCompute& compute,
                                                                 Ledger* ledger) {
  std::unique_ptr<LoraWeights> weights(new LoraWeights(plan, std::move(spec), compute, ledger));
  TANDEM_ASSIGN_OR_RETURN(weights->base_, FrozenBase::Create(plan, base_dtype, compute, ledger));
  TANDEM_ASSIGN_OR_RETURN(weights->adapters_, ParameterShard::Create(&weights->adapter_plan_,
                                                                     options, compute, ledger));
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
  return all + place.gradient_offset;  // the layout of a single rank's shard
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
  return DigestGathered();
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
      !gathered_digests_.empty()
          ? absl::OkStatus()
          : FailedPrecondition("the adapters were not gathered since they were made");
  TANDEM_RETURN_IF_ERROR(Agree(communicator, gathered, "digesting adapters").status());
  TANDEM_ASSIGN_OR_RETURN(const std::vector<Digest> masters,
                          adapters().digests().OfTensors(communicator));
  absl::Status same;
  for (size_t tensor = 0; same.ok() && tensor < masters.size(); ++tensor) {
    if (masters[tensor] == gathered_digests_[tensor]) continue;
    same = Internal(
        "{} is not what was gathered last: the digest of its masters is {}, that of the gathered "
        "adapter {}. It was changed and not gathered since, or did not arrive intact; publishing "
        "would send older adapters under a newer version. This is a fault of the trainer; resume "
        "from the last checkpoint",
        adapter_layout_.places()[tensor].name, masters[tensor].Hex(),
        gathered_digests_[tensor].Hex());
  }
  return Agree(communicator, same, "comparing gathered adapters with their masters").status();
}

absl::Status LoraWeights::DigestBase(Communicator& communicator) {
  TANDEM_ASSIGN_OR_RETURN(const auto digests,
                          RowDigests::Create(base_.get(), base_->dtype(), ops_, ledger_));
  TANDEM_RETURN_IF_ERROR(digests->Take(nullptr));
  TANDEM_ASSIGN_OR_RETURN(const std::vector<Digest> tensors, digests->OfTensors(communicator));
  std::string all;
  for (const Digest& digest : tensors) all += digest.Bytes();
  base_digest_ = DigestOf(all.data(), static_cast<int64_t>(all.size())).Hex();
  return absl::OkStatus();
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

absl::Status LoraTraining::Allocate(const ModelSpec& base, const ShardPlan* plan) {
  TANDEM_ASSIGN_OR_RETURN(LoraSpec spec, MakeLoraSpec(base, options_.lora));
  TANDEM_ASSIGN_OR_RETURN(const auto checkpoint, HfCheckpoint::Open(options_.model_dir, base));
  TANDEM_ASSIGN_OR_RETURN(
      lora_, LoraWeights::Create(
                 plan, std::move(spec), checkpoint->exact_dtype(),
                 {.offload_dir = options_.offload_dir, .offload_moments = options_.offload_moments},
                 rank_.compute, rank_.ledger));
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<ExpectedWeights>> LoraTraining::OpenExpected(
    const std::string& directory) {
  const bool merged = smallest_update() == UpdateScope::kWhole;
  LoraCheckFiles files;
  if (!directory.empty()) {
    TANDEM_ASSIGN_OR_RETURN(files, FindLoraCheckFiles(directory, merged));
  }
  if (!files.model.empty()) {
    return CheckpointWeights::Open(files.model, *rank_.spec, rank_.plan->layout().dtype(),
                                   rank_.compute.device, rank_.ledger);
  }
  return LoraExpectedWeights::Open(options_.model_dir, *rank_.spec, lora_.get(), merged,
                                   rank_.ledger, files.adapter);
}

absl::Status LoraTraining::Load(const LoadRequest& request, Optimizer& optimizer) {
  Communicator& ranks = *rank_.communicator;
  TANDEM_RETURN_IF_ERROR(Agree(ranks, LoadBase(), "loading the model").status());
  TANDEM_RETURN_IF_ERROR(lora_->DigestBase(ranks));
  return Agree(ranks, LoadAdapters(request, optimizer), "loading the model").status();
}

absl::Status LoraTraining::LoadBase() {
  TANDEM_ASSIGN_OR_RETURN(const auto checkpoint,
                          HfCheckpoint::Open(options_.model_dir, *rank_.spec));
  return lora_->base().Load(*checkpoint);
}

absl::Status LoraTraining::LoadAdapters(const LoadRequest& request, Optimizer& optimizer) {
  if (!request.checkpoint_dir.empty()) {
    const std::string folder = request.checkpoint_dir + "/" + kAdapterFolder;
    TANDEM_ASSIGN_OR_RETURN(
        const int64_t version,
        LoadState(request.checkpoint_dir, trained(), optimizer, LoraSettings(lora_.get()), folder,
                  [&] { return OpenAdapterMasters(folder, *rank_.spec, *lora_); }));
    return CheckSavedVersion(request.checkpoint_dir, version, request.version);
  }
  if (request.adapter_path.empty()) return InitAdapters(request.seed, *lora_);
  LogInfo("Loading the initial LoRA adapters from {}.", request.adapter_path);
  return ReadAdapters(request.adapter_path, *rank_.spec, *lora_);
}

absl::StatusOr<int64_t> LoraTraining::Save(SaveOptions options, const Optimizer& optimizer) {
  // Without moments, the PEFT folder holds the adapters completely.
  options.masters = options.optimizer;
  options.settings = LoraSettings(lora_.get());
  Communicator& ranks = *rank_.communicator;
  TANDEM_ASSIGN_OR_RETURN(const int64_t bytes, SaveState(options, *rank_.spec, trained(), *lora_,
                                                         optimizer, ranks, rank_.ledger));
  const absl::Status written =
      WriteAdapters(options.directory + "/" + kAdapterFolder, options_.model_dir,
                    options_.lora.dropout, *lora_, rank_.ledger);
  TANDEM_RETURN_IF_ERROR(Agree(ranks, written, "writing the adapters").status());
  return bytes;
}

void LoraTraining::DescribeMemory(TrainerMemoryOptions& options) const {
  const ShardPlan& plan = lora_->adapters().plan();
  options.adapters = plan.total_elements();
  options.adapter_shard = plan.elements(0);
  options.base_element_bytes = static_cast<int64_t>(DTypeBytes(lora_->base().dtype()));
}

}  // namespace tandem
