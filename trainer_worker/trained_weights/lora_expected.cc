#include "trainer_worker/trained_weights/lora_expected.h"

#include <string_view>

#include "common/base/status.h"
#include "common/lora/merge.h"
#include "common/model_spec/row_ranges.h"
#include "common/types/tensor_view.h"
#include "trainer_worker/shard/shard_array.h"

namespace tandem {
namespace {

constexpr std::string_view kA = ".lora_A.weight";
constexpr std::string_view kB = ".lora_B.weight";

}  // namespace

absl::StatusOr<std::unique_ptr<LoraExpectedWeights>> LoraExpectedWeights::Open(
    const std::string& model_dir,
    const ModelSpec& spec,
    const LoraWeights* weights,
    bool merged,
    Ledger* ledger,
    const std::string& adapter_dir) {
  auto expected = std::make_unique<LoraExpectedWeights>(weights, ledger);
  if (!adapter_dir.empty()) {
    TANDEM_ASSIGN_OR_RETURN(expected->on_disk_, PeftAdapter::Open(adapter_dir, spec));
    TANDEM_RETURN_IF_ERROR(
        SameLora(weights->spec(), "model.lora", expected->on_disk_->spec(), adapter_dir));
  }
  TANDEM_ASSIGN_OR_RETURN(expected->checkpoint_, HfCheckpoint::Open(model_dir, spec));
  expected->base_dtype_ = expected->checkpoint_->exact_dtype();
  expected->merge_ = merged;
  const int64_t compute =
      RowScratchBytes(spec, static_cast<int64_t>(DTypeBytes(weights->plan().layout().dtype())));
  // As many rows of a wider dtype need at most twice the bytes.
  const int64_t base = 2 * compute;
  TANDEM_ASSIGN_OR_RETURN(expected->base_,
                          TakeHostMemory(weights->device(), "gather", base, ledger));
  TANDEM_ASSIGN_OR_RETURN(expected->merged_,
                          TakeHostMemory(weights->device(), "gather", compute, ledger));
  return expected;
}

const LoraTarget* LoraExpectedWeights::AdapterOf(const std::string& name) const {
  for (const std::string_view suffix : {kA, kB}) {
    if (!name.ends_with(suffix)) continue;
    return weights_->spec().Find(name.substr(0, name.size() - suffix.size()) + ".weight");
  }
  return nullptr;
}

absl::StatusOr<const float*> LoraExpectedWeights::Matrix(size_t target,
                                                         LoraMatrix matrix,
                                                         int64_t row,
                                                         int64_t rows) {
  const bool is_a = matrix == LoraMatrix::kA;
  HostStaging& staging = is_a ? a_ : b_;
  const int64_t cols = is_a ? weights_->spec().targets[target].in : weights_->spec().rank;
  if (on_disk_ == nullptr) {
    const float* const all = is_a ? weights_->a(target) : weights_->b(target);
    return staging.Floats(all + row * cols, rows * cols);
  }
  TANDEM_ASSIGN_OR_RETURN(std::byte* const room,
                          staging.Room(rows * cols * static_cast<int64_t>(sizeof(float))));
  auto* const values = reinterpret_cast<float*>(room);
  TANDEM_RETURN_IF_ERROR(on_disk_->ReadRows(target, matrix, row, rows, values));
  return values;
}

absl::StatusOr<const void*> LoraExpectedWeights::AdapterRows(const TensorRows& rows,
                                                             const LoraTarget& target) {
  const auto index = static_cast<size_t>(&target - weights_->spec().targets.data());
  const LoraMatrix matrix = rows.place->name.ends_with(kA) ? LoraMatrix::kA : LoraMatrix::kB;
  const int64_t count = rows.rows * rows.place->cols();
  TANDEM_ASSIGN_OR_RETURN(const float* const masters, Matrix(index, matrix, rows.row, rows.rows));
  TANDEM_RETURN_IF_ERROR(ConvertElements(masters, DType::kFloat32, merged_->data(),
                                         weights_->plan().layout().dtype(),
                                         static_cast<size_t>(count)));
  return merged_->data();
}

absl::StatusOr<const void*> LoraExpectedWeights::Rows(const TensorRows& rows) {
  const std::string& name = rows.place->name;
  const DType dtype = weights_->plan().layout().dtype();
  if (const LoraTarget* const adapter = AdapterOf(name); adapter != nullptr) {
    return AdapterRows(rows, *adapter);
  }
  const LoraTarget* const target = merge_ ? weights_->spec().Find(name) : nullptr;
  if (target == nullptr) {
    TANDEM_RETURN_IF_ERROR(
        checkpoint_->ReadRows(name, rows.row, rows.rows, dtype, merged_->data()));
    return merged_->data();
  }
  TANDEM_RETURN_IF_ERROR(
      checkpoint_->ReadRows(name, rows.row, rows.rows, base_dtype_, base_->data()));
  const auto index = static_cast<size_t>(target - weights_->spec().targets.data());
  const int64_t rank = weights_->spec().rank, in = rows.place->cols();
  TANDEM_ASSIGN_OR_RETURN(const float* const a, Matrix(index, LoraMatrix::kA, 0, rank));
  TANDEM_ASSIGN_OR_RETURN(const float* const b, Matrix(index, LoraMatrix::kB, rows.row, rows.rows));
  MergeRows({.base = base_->data(),
             .base_dtype = base_dtype_,
             .b = b,
             .a = a,
             .scaling = weights_->spec().scaling(),
             .rows = rows.rows,
             .in = in,
             .rank = rank,
             .out = merged_->data(),
             .out_dtype = dtype});
  return merged_->data();
}

}  // namespace tandem
