#include "common/formats/peft/peft_adapter.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <set>
#include <system_error>

#include <absl/strings/match.h>
#include <absl/strings/str_replace.h>
#include <absl/strings/strip.h>
#include <fmt/format.h>

#include "common/base/status.h"
#include "common/formats/files.h"
#include "common/types/tensor_view.h"

namespace tandem {
namespace {

constexpr LoraMatrix kMatrices[] = {LoraMatrix::kA, LoraMatrix::kB};

size_t IndexOf(size_t target, LoraMatrix matrix) {
  return target * 2 + (matrix == LoraMatrix::kB ? 1 : 0);
}

const char* MatrixName(LoraMatrix matrix) { return matrix == LoraMatrix::kA ? "lora_A" : "lora_B"; }

size_t RankDim(LoraMatrix matrix) { return matrix == LoraMatrix::kA ? 0 : 1; }

std::map<std::string, size_t> ByModule(const LoraSpec& spec) {
  std::map<std::string, size_t> index;
  for (size_t i = 0; i < spec.targets.size(); ++i) index[spec.targets[i].module] = i;
  return index;
}

absl::Status NoLoraTensor(const SafetensorsFile& file, const SafetensorsTensor& tensor) {
  return InvalidArgument(
      "{}: tensor {} is not a lora_A or lora_B of the adapter \"default\": save the adapter "
      "alone, with PEFT's save_pretrained",
      file.path(), tensor.name);
}

absl::Status SameMatrix(const SafetensorsFile& file,
                        const std::string& name,
                        const std::string& other) {
  return InvalidArgument("{}: tensors {} and {} are the same matrix: take one out", file.path(),
                         name, other);
}

absl::Status OtherRank(const SafetensorsFile& file,
                       const SafetensorsTensor& tensor,
                       LoraMatrix matrix,
                       int64_t rank) {
  return InvalidArgument("{}: tensor {} {} has rank {}, {} says r {}: correct r there", file.path(),
                         tensor.name, ShapeText(tensor.shape), tensor.shape[RankDim(matrix)],
                         kAdapterConfigFile, rank);
}

absl::Status CheckDType(const SafetensorsFile& file, const SafetensorsTensor& tensor) {
  if (IsFloat(tensor.dtype)) return absl::OkStatus();
  return InvalidArgument(
      "{}: tensor {} is {}, expected F32, BF16 or F16: save the adapter as one "
      "of these",
      file.path(), tensor.name, DTypeName(tensor.dtype));
}

// Rows [row_begin, row_begin + rows) of a tensor of two dimensions, as fp32.
absl::Status ReadTensorRows(const SafetensorsFile& file,
                            const std::string& name,
                            const std::vector<int64_t>& shape,
                            int64_t row_begin,
                            int64_t rows,
                            float* out) {
  TANDEM_ASSIGN_OR_RETURN(const TensorView view, file.View(name));
  const size_t row_bytes = static_cast<size_t>(shape[1]) * DTypeBytes(view.dtype);
  TANDEM_RETURN_IF_ERROR(
      ConvertElements(view.as<char>() + static_cast<size_t>(row_begin) * row_bytes, view.dtype, out,
                      DType::kFloat32, static_cast<size_t>(rows * shape[1])));
  return file.CheckWhole();
}

absl::Status CheckFiniteTensor(const SafetensorsFile& file,
                               const std::string& name,
                               const std::vector<int64_t>& shape) {
  if (shape[1] == 0) return absl::OkStatus();  // however many rows are said to be
  std::vector<float> row(static_cast<size_t>(shape[1]));
  for (int64_t i = 0; i < shape[0]; ++i) {
    TANDEM_RETURN_IF_ERROR(ReadTensorRows(file, name, shape, i, 1, row.data()));
    const auto bad =
        std::find_if(row.begin(), row.end(), [](float value) { return !std::isfinite(value); });
    if (bad == row.end()) continue;
    return MakeStatus(absl::StatusCode::kDataLoss,
                      "{}: element [{}, {}] of {} is {}, not a finite number: the training that "
                      "wrote it had diverged; take an earlier adapter",
                      file.path(), i, bad - row.begin(), name, *bad);
  }
  return absl::OkStatus();
}

bool HasModule(const ModelSpec& model, const std::string& module) {
  const std::vector<TensorSpec> tensors = HfTensors(model);
  return std::any_of(tensors.begin(), tensors.end(),
                     [&](const TensorSpec& tensor) { return tensor.name == module + ".weight"; });
}

}  // namespace

absl::Status CheckPeftTensors(const SafetensorsFile& file, const PeftConfig& config) {
  std::map<std::string, std::map<LoraMatrix, std::string>> names;  // of tensors, by module
  for (const SafetensorsTensor& tensor : file.tensors()) {
    const auto parsed = ParsePeftTensorName(tensor.name);
    if (!parsed.has_value()) return NoLoraTensor(file, tensor);
    const auto [first, is_new] = names[parsed->module].emplace(parsed->matrix, tensor.name);
    if (!is_new) return SameMatrix(file, first->second, tensor.name);
    if (tensor.shape.size() != 2) {
      return InvalidArgument("{}: tensor {} has shape {}, adapters have matrices: save it again",
                             file.path(), tensor.name, ShapeText(tensor.shape));
    }
    if (tensor.shape[RankDim(parsed->matrix)] != config.lora.rank) {
      return OtherRank(file, tensor, parsed->matrix, config.lora.rank);
    }
    TANDEM_RETURN_IF_ERROR(CheckDType(file, tensor));
    TANDEM_RETURN_IF_ERROR(CheckFiniteTensor(file, tensor.name, tensor.shape));
  }
  for (const auto& [module, matrices] : names) {
    for (LoraMatrix matrix : kMatrices) {
      if (matrices.contains(matrix)) continue;
      return InvalidArgument("{} has no {} of {}, and the other one of it: save the adapter again",
                             file.path(), MatrixName(matrix), module);
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<const PeftAdapter>> PeftAdapter::Open(const std::string& dir,
                                                                     const ModelSpec& model) {
  const std::string config_path = dir + "/" + kAdapterConfigFile;
  TANDEM_ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(config_path));
  TANDEM_ASSIGN_OR_RETURN(PeftConfig config, ParsePeftConfig(text, config_path));
  absl::StatusOr<LoraSpec> spec = MakeLoraSpec(model, config.lora, UnmatchedEntry::kIgnore);
  if (!spec.ok()) return Annotate(spec.status(), config_path);
  std::unique_ptr<PeftAdapter> adapter(new PeftAdapter(dir, std::move(config), *std::move(spec)));
  TANDEM_ASSIGN_OR_RETURN(adapter->file_, SafetensorsFile::Open(dir + "/" + kAdapterWeightsFile));
  TANDEM_RETURN_IF_ERROR(adapter->FindTensors(model));
  for (size_t i = 0; i < adapter->spec_.targets.size(); ++i) {
    for (LoraMatrix matrix : kMatrices) TANDEM_RETURN_IF_ERROR(adapter->CheckFinite(i, matrix));
  }
  return std::unique_ptr<const PeftAdapter>(std::move(adapter));
}

absl::Status PeftAdapter::FindTensors(const ModelSpec& model) {
  const std::map<std::string, size_t> targets = ByModule(spec_);
  names_.assign(spec_.targets.size() * 2, "");
  std::set<DType> dtypes;
  for (const SafetensorsTensor& tensor : file_->tensors()) {
    const auto parsed = ParsePeftTensorName(tensor.name);
    if (!parsed.has_value()) return NoLoraTensor(*file_, tensor);
    const auto target = targets.find(parsed->module);
    if (target == targets.end()) {
      return HasModule(model, parsed->module)
                 ? InvalidArgument(
                       "{}: tensor {} is of a module that {} does not target: correct "
                       "target_modules there, or take the tensor out",
                       file_->path(), tensor.name, kAdapterConfigFile)
                 : InvalidArgument(
                       "{}: tensor {} is of a module that this {} model does not have: "
                       "give the adapter with the base that it was trained on",
                       file_->path(), tensor.name, model.model_type);
    }
    TANDEM_RETURN_IF_ERROR(CheckTensor(tensor, target->second, parsed->matrix));
    dtypes.insert(tensor.dtype);
  }
  for (size_t i = 0; i < spec_.targets.size(); ++i) {
    for (LoraMatrix matrix : kMatrices) {
      if (!names_[IndexOf(i, matrix)].empty()) continue;
      return InvalidArgument(
          "{} has no {} of {}, which {} targets: save the adapter again, or give it with the base "
          "that it was trained on",
          file_->path(), MatrixName(matrix), spec_.targets[i].module, kAdapterConfigFile);
    }
  }
  dtype_ = dtypes.size() == 1 ? *dtypes.begin() : DType::kFloat32;
  return absl::OkStatus();
}

absl::Status PeftAdapter::CheckTensor(const SafetensorsTensor& tensor,
                                      size_t target,
                                      LoraMatrix matrix) {
  std::string& name = names_[IndexOf(target, matrix)];
  if (!name.empty()) return SameMatrix(*file_, name, tensor.name);
  name = tensor.name;
  const std::vector<int64_t> want = LoraTensorShape(spec_.targets[target], matrix, spec_.rank);
  if (tensor.shape != want) {
    const size_t other_dim = 1 - RankDim(matrix);
    const bool only_rank = tensor.shape.size() == 2 && tensor.shape[other_dim] == want[other_dim];
    return only_rank ? OtherRank(*file_, tensor, matrix, spec_.rank)
                     : InvalidArgument(
                           "{}: tensor {} has shape {}, the model and r need {}: give the "
                           "adapter with the base that it was trained on",
                           file_->path(), tensor.name, ShapeText(tensor.shape), ShapeText(want));
  }
  return CheckDType(*file_, tensor);
}

absl::Status PeftAdapter::CheckFinite(size_t target, LoraMatrix matrix) const {
  return CheckFiniteTensor(*file_, names_[IndexOf(target, matrix)],
                           LoraTensorShape(spec_.targets[target], matrix, spec_.rank));
}

absl::Status PeftAdapter::ReadRows(
    size_t target, LoraMatrix matrix, int64_t row_begin, int64_t rows, float* out) const {
  const std::vector<int64_t> shape = LoraTensorShape(spec_.targets[target], matrix, spec_.rank);
  const std::string& name = names_[IndexOf(target, matrix)];
  if (row_begin < 0 || rows < 0 || row_begin > shape[0] - rows) {
    return InvalidArgument("{}: rows [{}, {}) are outside of {} {}", file_->path(), row_begin,
                           row_begin + rows, name, ShapeText(shape));
  }
  return ReadTensorRows(*file_, name, shape, row_begin, rows, out);
}

absl::StatusOr<std::unique_ptr<PeftAdapterWriter>> PeftAdapterWriter::Create(
    const std::string& dir, const LoraSpec& spec, const std::string& base_model, double dropout) {
  std::unique_ptr<PeftAdapterWriter> writer(
      new PeftAdapterWriter(dir, spec, PeftConfigJson(spec, base_model, dropout)));
  std::vector<TensorDeclaration> tensors;
  for (const LoraTarget& target : spec.targets) {
    for (LoraMatrix matrix : kMatrices) {
      tensors.push_back({LoraTensorName(target, matrix), DType::kFloat32,
                         LoraTensorShape(target, matrix, spec.rank)});
    }
  }
  std::sort(tensors.begin(), tensors.end(),
            [](const auto& a, const auto& b) { return a.name < b.name; });
  TANDEM_ASSIGN_OR_RETURN(
      writer->writer_,
      SafetensorsWriter::Create(dir + "/" + kAdapterWeightsFile, tensors, {{"format", "pt"}}));
  return writer;
}

absl::Status PeftAdapterWriter::WriteRows(
    size_t target, LoraMatrix matrix, int64_t row_begin, int64_t rows, const float* values) {
  const LoraTarget& at = spec_.targets[target];
  const auto row_bytes =
      static_cast<uint64_t>(LoraTensorShape(at, matrix, spec_.rank)[1]) * sizeof(float);
  return writer_->Write(LoraTensorName(at, matrix), values, static_cast<uint64_t>(rows) * row_bytes,
                        static_cast<uint64_t>(row_begin) * row_bytes);
}

absl::Status PeftAdapterWriter::Finish() {
  TANDEM_RETURN_IF_ERROR(writer_->Finish());
  return WriteFileAtomically(dir_ + "/" + kAdapterConfigFile, config_);
}

namespace {

std::string WithoutWrapping(const std::string& name) {
  absl::string_view rest = name;
  if (!absl::ConsumePrefix(&rest, "base_model.model.")) absl::ConsumePrefix(&rest, "base_model.");
  return absl::StrReplaceAll(rest, {{".base_layer.", "."}});
}

}  // namespace

std::optional<PeftTensorName> ParsePeftTensorName(const std::string& name) {
  const std::string plain = WithoutWrapping(name);
  absl::string_view rest = plain;
  if (!absl::ConsumeSuffix(&rest, ".weight")) return std::nullopt;
  absl::ConsumeSuffix(&rest, ".default");
  PeftTensorName parsed;
  if (absl::ConsumeSuffix(&rest, ".lora_A")) {
    parsed.matrix = LoraMatrix::kA;
  } else if (absl::ConsumeSuffix(&rest, ".lora_B")) {
    parsed.matrix = LoraMatrix::kB;
  } else {
    return std::nullopt;
  }
  parsed.module = std::string(rest);
  return parsed;
}

namespace {

namespace fs = std::filesystem;

bool Has(const fs::path& directory, const char* file) {
  std::error_code ignored;
  return fs::exists(directory / file, ignored);
}

}  // namespace

absl::StatusOr<LoraCheckFiles> FindLoraCheckFiles(const std::string& directory, bool merged) {
  std::error_code ignored;
  if (!fs::is_directory(directory, ignored)) {
    return MakeStatus(absl::StatusCode::kNotFound,
                      "weights cannot be compared with {}: there is no such directory", directory);
  }
  if (Has(directory, "adapter_config.json")) return LoraCheckFiles{.adapter = directory};
  // A model that lacks its weights is damaged, not absent.
  const bool model = Has(directory, "config.json") || Has(directory, "model.safetensors") ||
                     Has(directory, "model.safetensors.index.json");
  if (model && merged) return LoraCheckFiles{.model = directory};
  const fs::path adapter = fs::path(directory) / kAdapterFolder;
  if (Has(adapter, "adapter_config.json")) return LoraCheckFiles{.adapter = adapter.string()};
  if (model) {
    return InvalidArgument(
        "weights cannot be compared with {}: it has a model and no {}. With "
        "model.lora.merge=false rollouts hold separate adapters, which merged weights do not "
        "contain: name a checkpoint with {}, or an adapter",
        directory, kAdapterFolder, kAdapterFolder);
  }
  return MakeStatus(absl::StatusCode::kNotFound,
                    "weights cannot be compared with {}: it has neither model.safetensors nor {}",
                    directory, kAdapterFolder);
}

std::string LoraCheckText(const LoraCheckFiles& files, const std::string& model_dir) {
  if (files.adapter.empty()) return files.model;
  return fmt::format("{} with the adapter of {}", model_dir, files.adapter);
}

}  // namespace tandem
