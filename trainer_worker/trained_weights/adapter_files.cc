#include "trainer_worker/trained_weights/adapter_files.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "common/base/philox.h"
#include "common/base/status.h"
#include "common/formats/peft/peft_adapter.h"
#include "common/model_spec/row_ranges.h"

namespace tandem {
namespace {

// Separates these random streams from those that sample tokens with the same seed.
constexpr uint64_t kStream = uint64_t{0x4c6f5241} << 32;  // "LoRA"

}  // namespace

void InitialLoraA(
    uint64_t seed, int64_t tensor, int64_t in, int64_t first, int64_t count, float* out) {
  const auto bound = static_cast<float>(1.0 / std::sqrt(static_cast<double>(in)));
  const uint64_t stream = kStream | static_cast<uint64_t>(tensor);
  for (int64_t i = 0; i < count; ++i) {
    const float uniform = RandomUniform(seed, stream, static_cast<uint64_t>(first + i));
    out[i] = (2.0f * uniform - 1.0f) * bound;
  }
}

namespace {

// A and B of each target alternate (LoraWeights).
LoraMatrix MatrixOf(size_t tensor) { return tensor % 2 == 0 ? LoraMatrix::kA : LoraMatrix::kB; }

// Fills this rank's rows of every adapter, a few rows at a time, by `fill(tensor, row, rows, out)`.
template <typename FillRows>
absl::Status FillMasters(ParameterShard& shard, const FillRows& fill) {
  const ShardPlan& plan = shard.plan();
  for (size_t tensor = 0; tensor < plan.tensors().size(); ++tensor) {
    const ShardPlan::Piece& piece = plan.mine(tensor);
    const int64_t cols = plan.tensors()[tensor]->cols();
    const int64_t step = RowsPerRange(cols * static_cast<int64_t>(sizeof(float)));
    for (int64_t row = 0; row < piece.rows; row += step) {
      const int64_t rows = std::min(step, piece.rows - row);
      TANDEM_RETURN_IF_ERROR(
          shard.WriteMasters(piece.offset + row * cols, rows * cols,
                             [&](float* out) { return fill(tensor, piece.row + row, rows, out); }));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status InitAdapters(uint64_t seed, LoraWeights& weights) {
  return FillMasters(weights.adapters(),
                     [&](size_t tensor, int64_t row, int64_t rows, float* out) -> absl::Status {
                       const LoraTarget& target = weights.spec().targets[tensor / 2];
                       if (MatrixOf(tensor) == LoraMatrix::kA) {
                         InitialLoraA(seed, target.tensor, target.in, row * target.in,
                                      rows * target.in, out);
                       } else {
                         std::fill_n(out, rows * weights.spec().rank, 0.0f);
                       }
                       return absl::OkStatus();
                     });
}

absl::Status ReadAdapters(const std::string& directory,
                          const ModelSpec& model,
                          LoraWeights& weights) {
  TANDEM_ASSIGN_OR_RETURN(const auto adapter, PeftAdapter::Open(directory, model));
  TANDEM_RETURN_IF_ERROR(SameLora(weights.spec(), "model.lora", adapter->spec(), directory));
  return FillMasters(weights.adapters(),
                     [&](size_t tensor, int64_t row, int64_t rows, float* out) -> absl::Status {
                       return adapter->ReadRows(tensor / 2, MatrixOf(tensor), row, rows, out);
                     });
}

absl::StatusOr<MasterRowsReader> OpenAdapterMasters(const std::string& directory,
                                                    const ModelSpec& model,
                                                    const LoraWeights& weights) {
  TANDEM_ASSIGN_OR_RETURN(std::shared_ptr<const PeftAdapter> adapter,
                          PeftAdapter::Open(directory, model));
  TANDEM_RETURN_IF_ERROR(SameLora(weights.spec(), "model.lora", adapter->spec(), directory));
  std::map<std::string, size_t> tensors;
  for (const LoraTarget& target : weights.spec().targets) {
    for (const LoraMatrix matrix : {LoraMatrix::kA, LoraMatrix::kB}) {
      tensors.emplace(LoraTensorName(target, matrix), tensors.size());
    }
  }
  return [adapter = std::move(adapter), tensors = std::move(tensors)](
             const std::string& name, int64_t row, int64_t rows, float* out) -> absl::Status {
    const auto tensor = tensors.find(name);
    if (tensor == tensors.end()) return Internal("{} is not an adapter of this run", name);
    return adapter->ReadRows(tensor->second / 2, MatrixOf(tensor->second), row, rows, out);
  };
}

absl::Status WriteAdapters(const std::string& directory,
                           const std::string& base_dir,
                           double dropout,
                           const LoraWeights& weights,
                           Ledger* ledger) {
  if (weights.plan().rank() != 0) return absl::OkStatus();
  const LoraSpec& spec = weights.spec();
  TANDEM_RETURN_IF_ERROR(MakeFolder(directory));
  TANDEM_ASSIGN_OR_RETURN(const auto writer,
                          PeftAdapterWriter::Create(directory, spec, base_dir, dropout));
  HostStaging staging(weights.device(), ledger);
  const auto write = [&](size_t target, LoraMatrix matrix, int64_t rows, int64_t cols,
                         const float* values) -> absl::Status {
    TANDEM_ASSIGN_OR_RETURN(const float* const held, staging.Floats(values, rows * cols));
    return writer->WriteRows(target, matrix, 0, rows, held);
  };
  for (size_t target = 0; target < spec.targets.size(); ++target) {
    const LoraTarget& shape = spec.targets[target];
    TANDEM_RETURN_IF_ERROR(write(target, LoraMatrix::kA, spec.rank, shape.in, weights.a(target)));
    TANDEM_RETURN_IF_ERROR(write(target, LoraMatrix::kB, shape.out, spec.rank, weights.b(target)));
  }
  return writer->Finish();
}

std::vector<SavedSetting> LoraSettings(const LoraWeights* weights) {
  std::vector<SavedSetting> settings = {{"model.lora.rank", "0", "0", ""}};
  if (weights == nullptr) return settings;
  settings[0].value = std::to_string(weights->spec().rank);
  settings.push_back({"model.lora.alpha", fmt::format("{}", weights->spec().alpha), "", ""});
  settings.push_back({"model.lora.target_modules",
                      fmt::format("[{}]", fmt::join(weights->spec().target_modules, ", ")), "",
                      ""});
  settings.push_back(
      {.key = "a base model of digest",
       .value = weights->base_digest(),
       .remedy = "adapters belong to the weights that they were trained on; set model.path to "
                 "those, or start over with trainer.resume_mode=disable"});
  return settings;
}

}  // namespace tandem
