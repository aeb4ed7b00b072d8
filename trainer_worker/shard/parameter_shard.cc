#include "trainer_worker/shard/parameter_shard.h"

#include <algorithm>

#include "common/base/check.h"
#include "common/base/progress.h"
#include "common/base/status.h"
#include "common/memory/memory_formulas.h"
#include "common/process/fault_injection.h"

namespace tandem {

absl::StatusOr<std::unique_ptr<ParameterShard>> ParameterShard::Create(const ShardPlan* plan,
                                                                       ShardOptions options,
                                                                       const ShardCompute& compute,
                                                                       Ledger* ledger) {
  std::unique_ptr<ParameterShard> shard(
      new ParameterShard(plan, std::move(options), compute, ledger));
  TANDEM_ASSIGN_OR_RETURN(shard->master_, shard->Array("master", shard->options_.offload_master));
  const int64_t elements = std::max<int64_t>(shard->elements(), 1);
  TANDEM_ASSIGN_OR_RETURN(shard->gradients_,
                          compute.device->Reserve("gradients", elements * kFloat32Bytes, ledger));
  if (plan->layout().dtype() != DType::kFloat32) TANDEM_RETURN_IF_ERROR(shard->MakeRounded());
  return shard;
}

absl::Status ParameterShard::MakeRounded() {
  const int64_t bytes = std::max<int64_t>(elements(), 1) * static_cast<int64_t>(sizeof(Bf16));
  if (options_.direct) {
    TANDEM_ASSIGN_OR_RETURN(shared_, device_->ReserveShareable("weights", bytes, ledger_));
    rounded_ = reinterpret_cast<Bf16*>(shared_->data());
    return absl::OkStatus();
  }
  TANDEM_ASSIGN_OR_RETURN(unshared_, device_->Reserve("weights", bytes, ledger_));
  rounded_ = reinterpret_cast<Bf16*>(unshared_->data());
  return unshared_->Map();
}

absl::StatusOr<std::unique_ptr<ShardArray>> ParameterShard::Array(const char* tag, bool offloaded) {
  return ShardArray::Create(device_, tag, elements(), sizeof(float),
                            offloaded ? options_.offload_dir : std::string(), ledger_);
}

const std::byte* ParameterShard::compute() const {
  return rounded_ == nullptr ? reinterpret_cast<const std::byte*>(master())
                             : reinterpret_cast<const std::byte*>(rounded_);
}

std::vector<ShardArray*> ParameterShard::Arrays() const {
  std::vector<ShardArray*> arrays = {master_.get()};
  if (has_moments()) arrays.insert(arrays.end(), {exp_avg_.get(), exp_avg_sq_.get()});
  return arrays;
}

ShardArray& ParameterShard::ArrayOf(const float* values) const {
  const auto* at = reinterpret_cast<const std::byte*>(values);
  for (ShardArray* array : Arrays()) {
    const int64_t offset = at - array->data();
    if (offset >= 0 && offset < std::max<int64_t>(elements(), 1) * kFloat32Bytes) return *array;
  }
  CheckFailed("an element of this shard", __FILE__, __LINE__, "parameter shard");
}

absl::Status ParameterShard::Write(ShardArray& array,
                                   float* values,
                                   int64_t count,
                                   const Fill& fill) {
  if (array.in_host_memory()) return fill(values);
  TANDEM_ASSIGN_OR_RETURN(std::byte* const room, staging_.Room(count * kFloat32Bytes));
  TANDEM_RETURN_IF_ERROR(fill(reinterpret_cast<float*>(room)));
  device_->Copy(values, room, count * kFloat32Bytes);
  return device_->Synchronize();  // the staging memory is pinned and will be refilled
}

absl::Status ParameterShard::WriteMasters(int64_t first, int64_t count, const Fill& fill) {
  TANDEM_RETURN_IF_ERROR(Write(*master_, master() + first, count, fill));
  return MastersWritten(first, count);
}

absl::Status ParameterShard::WriteMoments(float* values, int64_t count, const Fill& fill) {
  TANDEM_RETURN_IF_ERROR(Write(ArrayOf(values), values, count, fill));
  Evict(values, count);
  return absl::OkStatus();
}

absl::Status ParameterShard::MastersWritten(int64_t first, int64_t count) {
  if (rounded_ != nullptr) ops_->Round(master() + first, rounded_ + first, count);
  TANDEM_RETURN_IF_ERROR(digests_.Take(*ops_, first, count, master() + first));
  master_->Evict(first * kFloat32Bytes, count * kFloat32Bytes);
  return absl::OkStatus();
}

absl::Status ParameterShard::CopyRows(
    size_t tensor, int64_t row, int64_t rows, DType dtype, void* out) {
  const int64_t cols = plan_->tensors()[tensor]->cols();
  const int64_t first = plan_->mine(tensor).offset + row * cols, count = rows * cols;
  if (dtype == DType::kBFloat16) {
    ops_->Round(master() + first, static_cast<Bf16*>(out), count);
  } else {
    device_->Copy(out, master() + first, count * kFloat32Bytes);
  }
  TANDEM_RETURN_IF_ERROR(device_->Synchronize());
  master_->Evict(first * kFloat32Bytes, count * kFloat32Bytes);
  return absl::OkStatus();
}

absl::StatusOr<const float*> ParameterShard::HostValues(const float* values, int64_t count) {
  if (read_ != nullptr) Evict(read_, read_count_);
  read_ = values;
  read_count_ = count;
  if (ArrayOf(values).in_host_memory()) return values;
  TANDEM_ASSIGN_OR_RETURN(const std::byte* const host,
                          staging_.Fetch(values, count * kFloat32Bytes));
  return reinterpret_cast<const float*>(host);
}

void ParameterShard::Evict() {
  for (ShardArray* array : Arrays()) array->Evict();
  read_ = nullptr;
  staging_.Release();
}

void ParameterShard::Evict(const float* values, int64_t count) {
  ShardArray& array = ArrayOf(values);
  array.Evict(reinterpret_cast<const std::byte*>(values) - array.data(), count * kFloat32Bytes);
}

absl::Status ParameterShard::ZeroGradients() {
  if (!gradients_->mapped()) return gradients_->Map();
  device_->Zero(gradients_->data(), elements() * kFloat32Bytes);
  return absl::OkStatus();
}

absl::Status ParameterShard::MapMoments() {
  if (has_moments()) return absl::OkStatus();
  TANDEM_ASSIGN_OR_RETURN(auto first, Array("optimizer", options_.offload_moments));
  TANDEM_ASSIGN_OR_RETURN(exp_avg_sq_, Array("optimizer", options_.offload_moments));
  exp_avg_ = std::move(first);
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<OffloadStream>> ParameterShard::StreamOffloaded(
    const std::vector<ShardWindow>& windows) {
  std::vector<OffloadWindows::Array> files;
  std::vector<OffloadStream::Array> pinned;
  for (ShardArray* array : Arrays()) {
    const char* tag = array == master_.get() ? "master" : "optimizer";
    if (!array->offloaded()) continue;
    files.push_back({tag, array->file()});
    pinned.push_back({tag, array->data()});
  }
  if (device_->is_host()) return OffloadWindows::Create(std::move(files), windows, ledger_);
  std::vector<OffloadStream::Window> bytes;
  for (const ShardWindow& window : windows) {
    bytes.push_back({window.first * kFloat32Bytes, window.count * kFloat32Bytes});
  }
  return device_->StreamThrough(std::move(pinned), std::move(bytes), ledger_);
}

absl::StatusOr<std::unique_ptr<ParameterShard::Pass>> ParameterShard::BeginUpdate() {
  TANDEM_RETURN_IF_ERROR(MapMoments());
  std::unique_ptr<Pass> pass(new Pass(this));
  pass->windows_ = CutWindows(elements(), OffloadWindowElements(plan_->layer_elements()));
  TANDEM_ASSIGN_OR_RETURN(pass->stream_, StreamOffloaded(pass->windows_));
  return pass;
}

absl::Status ParameterShard::Pass::Run(
    const std::function<absl::Status(const OptimizerChunk&)>& update) {
  const std::vector<ShardArray*> arrays = shard_->Arrays();
  for (size_t w = 0; w < windows_.size(); ++w) {
    const WorkStep step("optimizer", {"window", static_cast<int64_t>(w)});
    FaultPoint("optimizer.window");
    const auto [first, count] = windows_[w];
    TANDEM_ASSIGN_OR_RETURN(const std::vector<std::byte*> streamed, stream_->Open(w));
    auto next = streamed.begin();
    float* elements[3];
    for (size_t i = 0; i < 3; ++i) {
      elements[i] = reinterpret_cast<float*>(
          arrays[i]->offloaded() ? *next++ : arrays[i]->data() + first * kFloat32Bytes);
    }
    Bf16* const rounded = shard_->rounded();
    TANDEM_RETURN_IF_ERROR(update({.count = count,
                                   .master = elements[0],
                                   .gradient = shard_->gradients() + first,
                                   .exp_avg = elements[1],
                                   .exp_avg_sq = elements[2],
                                   .rounded = rounded == nullptr ? nullptr : rounded + first}));
    TANDEM_RETURN_IF_ERROR(shard_->digests_.Take(*shard_->ops_, first, count, elements[0]));
    TANDEM_RETURN_IF_ERROR(stream_->Close(w));
  }
  TANDEM_RETURN_IF_ERROR(stream_->Finish());
  return shard_->device_->Synchronize();
}

absl::StatusOr<std::unique_ptr<ReferenceShard>> ReferenceShard::Copy(const ParameterShard& shard,
                                                                     const std::string& offload_dir,
                                                                     Ledger* ledger) {
  std::unique_ptr<ReferenceShard> copy(new ReferenceShard(shard));
  const ShardPlan& plan = shard.plan();
  const auto element = static_cast<int64_t>(DTypeBytes(plan.layout().dtype()));
  TANDEM_ASSIGN_OR_RETURN(copy->array_,
                          ShardArray::Create(shard.device(), "reference", shard.elements(), element,
                                             offload_dir, ledger));
  for (int layer = -1; layer < plan.layout().num_layers(); ++layer) {
    const int64_t offset = plan.group_offset(layer, plan.rank()) * element;
    const int64_t length = plan.group_elements(layer, plan.rank()) * element;
    shard.device()->Copy(copy->array_->data() + offset, shard.compute() + offset, length);
    copy->array_->Evict(offset, length);
  }
  copy->array_->Evict();  // also evicts pages that two groups share
  TANDEM_RETURN_IF_ERROR(shard.device()->Synchronize());
  return copy;
}

absl::Status ReferenceShard::CopyRows(
    size_t tensor, int64_t row, int64_t rows, DType dtype, void* out) {
  const DType stored = plan_->layout().dtype();
  const int64_t cols = plan_->tensors()[tensor]->cols();
  const int64_t element = plan_->mine(tensor).offset + row * cols;
  ops_->Convert(array_->data() + element * static_cast<int64_t>(DTypeBytes(stored)), stored, out,
                dtype, rows * cols);
  return absl::OkStatus();
}

}  // namespace tandem
