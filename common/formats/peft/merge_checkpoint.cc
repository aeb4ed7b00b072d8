#include "common/formats/peft/merge_checkpoint.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <vector>

#include <nlohmann/json.hpp>

#include "common/base/json_nesting.h"
#include "common/base/status.h"
#include "common/formats/files.h"
#include "common/formats/hf_checkpoint.h"
#include "common/formats/peft/peft_adapter.h"
#include "common/model_spec/row_ranges.h"

namespace tandem {
namespace {

using Rounding = MergeCheckpointOptions::Rounding;
using Output = MergeCheckpointOptions::Output;

bool Exists(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

absl::StatusOr<MergeRule> RuleFor(Rounding rounding, const PeftAdapter& adapter) {
  if (rounding == Rounding::kServed || adapter.dtype() == DType::kFloat32) {
    return MergeRule::kServed;
  }
  if (adapter.dtype() == DType::kBFloat16) return MergeRule::kBf16Product;
  return absl::UnimplementedError(
      fmt::format("{} is stored as {}, for which PEFT's rounding is not implemented: use --rule "
                  "served, or save the adapter as F32",
                  adapter.dir(), DTypeName(adapter.dtype())));
}

absl::StatusOr<DType> OutputDType(Output output, const std::string& name, DType stored) {
  if (output == Output::kBFloat16) return DType::kBFloat16;
  if (output == Output::kFloat32) return DType::kFloat32;
  if (stored == DType::kFloat32 || stored == DType::kBFloat16) return stored;
  return absl::UnimplementedError(
      fmt::format("tensor {} is stored as {}, which is not written: choose the dtype bfloat16 or "
                  "float32",
                  name, DTypeName(stored)));
}

// The base's config.json, which may say more than a ModelSpec, with the dtype that is written.
absl::Status WriteConfig(const std::string& base_dir, const std::string& dir, Output output) {
  TANDEM_ASSIGN_OR_RETURN(std::string text, ReadWholeFile(base_dir + "/config.json"));
  if (output != Output::kBase) {
    TANDEM_RETURN_IF_ERROR(Annotate(CheckJsonNesting(text), base_dir + "/config.json"));
    auto config = nlohmann::ordered_json::parse(text, nullptr, /*allow_exceptions=*/false);
    if (!config.is_object()) return Internal("{}/config.json changed meanwhile", base_dir);
    const char* dtype = output == Output::kBFloat16 ? "bfloat16" : "float32";
    if (config.contains("dtype")) config["dtype"] = dtype;
    if (config.contains("torch_dtype") || !config.contains("dtype")) config["torch_dtype"] = dtype;
    text = config.dump(2) + "\n";
  }
  return WriteFileAtomically(dir + "/config.json", text);
}

absl::Status WriteTexts(const std::string& base_dir, const std::string& dir, Output output) {
  TANDEM_RETURN_IF_ERROR(WriteConfig(base_dir, dir, output));
  const std::string generation = "/generation_config.json";
  if (Exists(base_dir + generation)) {
    TANDEM_ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(base_dir + generation));
    TANDEM_RETURN_IF_ERROR(WriteFileAtomically(dir + generation, text));
  }
  return Exists(base_dir + "/tokenizer.json") ? CopyTokenizerFiles(base_dir, dir)
                                              : absl::OkStatus();
}

// Writes the tensors of one model.
class TensorMerger {
 public:
  TensorMerger(const HfCheckpoint& base,
               const PeftAdapter& adapter,
               Rounding rounding,
               MergeRule rule)
      : base_(base), adapter_(adapter), rounding_(rounding), rule_(rule) {}

  // Of `out`: name, dtype and shape.
  absl::Status Write(const TensorDeclaration& out, SafetensorsWriter& writer) {
    const auto& targets = adapter_.spec().targets;
    const auto target = std::find_if(targets.begin(), targets.end(),
                                     [&](const LoraTarget& t) { return t.weight == out.name; });
    const bool merged = target != targets.end();
    const auto index = static_cast<size_t>(target - targets.begin());
    if (merged) {
      a_.resize(static_cast<size_t>(adapter_.spec().rank * target->in));
      TANDEM_RETURN_IF_ERROR(
          adapter_.ReadRows(index, LoraMatrix::kA, 0, adapter_.spec().rank, a_.data()));
    }
    const int64_t cols = NumElements(out.shape) / out.shape[0];
    const auto row_bytes = cols * static_cast<int64_t>(DTypeBytes(out.dtype));
    const int64_t step = RowsPerRange(cols * 4);
    for (int64_t begin = 0; begin < out.shape[0]; begin += step) {
      const int64_t rows = std::min(step, out.shape[0] - begin);
      out_.resize(static_cast<size_t>(rows * row_bytes));
      TANDEM_RETURN_IF_ERROR(merged
                                 ? MergeRange(index, begin, rows, out.dtype)
                                 : base_.ReadRows(out.name, begin, rows, out.dtype, out_.data()));
      TANDEM_RETURN_IF_ERROR(writer.Write(out.name, out_.data(), out_.size(),
                                          static_cast<uint64_t>(begin * row_bytes)));
    }
    return absl::OkStatus();
  }

 private:
  // Fills out_.
  absl::Status MergeRange(size_t index, int64_t begin, int64_t rows, DType dtype) {
    const LoraSpec& spec = adapter_.spec();
    const LoraTarget& target = spec.targets[index];
    b_.resize(static_cast<size_t>(rows * spec.rank));
    TANDEM_RETURN_IF_ERROR(adapter_.ReadRows(index, LoraMatrix::kB, begin, rows, b_.data()));
    TANDEM_ASSIGN_OR_RETURN(const TensorView stored, base_.View(target.weight));
    const DType wanted = rounding_ == Rounding::kPeft ? dtype : stored.dtype;
    const DType read = wanted == DType::kBFloat16 ? DType::kBFloat16 : DType::kFloat32;
    in_.resize(static_cast<size_t>(rows * target.in) * DTypeBytes(read));
    TANDEM_RETURN_IF_ERROR(base_.ReadRows(target.weight, begin, rows, read, in_.data()));
    MergeRows({.base = in_.data(),
               .base_dtype = read,
               .b = b_.data(),
               .a = a_.data(),
               .scaling = spec.scaling(),
               .rows = rows,
               .in = target.in,
               .rank = spec.rank,
               .out = out_.data(),
               .out_dtype = dtype,
               .rule = rule_});
    return CheckFinite(target, begin, rows, dtype);
  }

  absl::Status CheckFinite(const LoraTarget& target, int64_t begin, int64_t rows, DType dtype) {
    for (int64_t i = 0; i < rows * target.in; ++i) {
      const float value = dtype == DType::kFloat32
                              ? reinterpret_cast<const float*>(out_.data())[i]
                              : FromBf16(reinterpret_cast<const Bf16*>(out_.data())[i]);
      if (std::isfinite(value)) continue;
      return MakeStatus(absl::StatusCode::kDataLoss,
                        "element [{}, {}] of {} is {} once merged, not a finite number: check base "
                        "and adapter, of which one had diverged",
                        begin + i / target.in, i % target.in, target.weight, value);
    }
    return absl::OkStatus();
  }

  const HfCheckpoint& base_;
  const PeftAdapter& adapter_;
  const Rounding rounding_;
  const MergeRule rule_;
  std::vector<float> a_, b_;
  std::vector<std::byte> in_, out_;
};

}  // namespace

absl::StatusOr<MergedCheckpoint> MergeCheckpoint(const std::string& base_dir,
                                                 const std::string& adapter_dir,
                                                 const std::string& out_dir,
                                                 const MergeCheckpointOptions& options) {
  TANDEM_ASSIGN_OR_RETURN(const ModelSpec spec, LoadModelSpec(base_dir));
  TANDEM_ASSIGN_OR_RETURN(const auto base, HfCheckpoint::Open(base_dir, spec));
  TANDEM_ASSIGN_OR_RETURN(const auto adapter, PeftAdapter::Open(adapter_dir, spec));
  TANDEM_ASSIGN_OR_RETURN(const MergeRule rule, RuleFor(options.rounding, *adapter));
  MergedCheckpoint result;
  result.merged = static_cast<int64_t>(adapter->spec().targets.size());
  std::vector<TensorDeclaration> tensors;
  for (const TensorSpec& tensor : base->tensors()) {
    TANDEM_ASSIGN_OR_RETURN(const TensorView stored, base->View(tensor.name));
    TANDEM_ASSIGN_OR_RETURN(const DType dtype,
                            OutputDType(options.output, tensor.name, stored.dtype));
    tensors.push_back({tensor.name, dtype, tensor.shape});
    result.bytes += NumElements(tensor.shape) * static_cast<int64_t>(DTypeBytes(dtype));
    ++result.tensors;
  }
  TANDEM_ASSIGN_OR_RETURN(const auto directory, AtomicDirectory::Create(out_dir));
  const std::string dir = directory->partial_path();
  TANDEM_RETURN_IF_ERROR(WriteTexts(base_dir, dir, options.output));
  TANDEM_ASSIGN_OR_RETURN(
      const auto writer,
      SafetensorsWriter::Create(dir + "/model.safetensors", tensors, {{"format", "pt"}}));
  TensorMerger merger(*base, *adapter, options.rounding, rule);
  for (const TensorDeclaration& tensor : tensors) {
    TANDEM_RETURN_IF_ERROR(merger.Write(tensor, *writer));
  }
  TANDEM_RETURN_IF_ERROR(writer->Finish());
  TANDEM_RETURN_IF_ERROR(directory->Commit());
  return result;
}

}  // namespace tandem
