#include "common/formats/hf_checkpoint.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <vector>

#include <nlohmann/json.hpp>

#include "common/base/json_nesting.h"
#include "common/base/progress.h"
#include "common/base/status.h"
#include "common/formats/files.h"
#include "common/formats/safetensors.h"
#include "common/model_spec/row_ranges.h"
#include "common/types/tensor_view.h"

namespace tandem {
namespace {

constexpr char kEmbedding[] = "model.embed_tokens.weight";
constexpr char kHead[] = "lm_head.weight";

// Buffers that old exporters saved; they are computed from the config.
bool IsKnownBuffer(const std::string& name) { return name.ends_with("rotary_emb.inv_freq"); }

absl::Status NoWeights(const std::string& dir) {
  const bool pickled =
      PathExists(dir + "/pytorch_model.bin") || PathExists(dir + "/pytorch_model.bin.index.json");
  return MakeStatus(absl::StatusCode::kNotFound, "{} has neither model.safetensors nor {}: {}", dir,
                    "model.safetensors.index.json",
                    pickled ? "save the model with safe_serialization to replace pytorch_model.bin"
                            : "give a Hugging Face model directory, or import a GGUF into one");
}

}  // namespace

absl::StatusOr<std::unique_ptr<const HfCheckpoint>> HfCheckpoint::Open(const std::string& model_dir,
                                                                       const ModelSpec& spec) {
  std::unique_ptr<HfCheckpoint> checkpoint(new HfCheckpoint(model_dir, HfTensors(spec)));
  const std::string single = model_dir + "/model.safetensors";
  const std::string index = model_dir + "/model.safetensors.index.json";
  if (PathExists(single)) {
    TANDEM_RETURN_IF_ERROR(checkpoint->MapSingle(single));
  } else if (PathExists(index)) {
    TANDEM_RETURN_IF_ERROR(checkpoint->MapSharded(index));
  } else {
    return NoWeights(model_dir);
  }
  TANDEM_RETURN_IF_ERROR(checkpoint->Check(spec));
  return std::unique_ptr<const HfCheckpoint>(std::move(checkpoint));
}

absl::Status HfCheckpoint::MapSingle(const std::string& path) {
  TANDEM_ASSIGN_OR_RETURN(const auto file, SafetensorsFile::Open(path));
  for (const SafetensorsTensor& tensor : file->tensors()) file_of_[tensor.name] = file;
  return absl::OkStatus();
}

absl::Status HfCheckpoint::MapSharded(const std::string& index_path) {
  TANDEM_ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(index_path));
  TANDEM_RETURN_IF_ERROR(Annotate(CheckJsonNesting(text), index_path));
  const auto index = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!index.is_object() || !index.contains("weight_map") || !index["weight_map"].is_object()) {
    return absl::DataLossError(
        fmt::format("{} is not a JSON object with a weight_map; fetch it again", index_path));
  }
  std::map<std::string, std::shared_ptr<const SafetensorsFile>> shards;
  for (const auto& [name, shard] : index["weight_map"].items()) {
    const std::string shard_name = shard.is_string() ? shard.get<std::string>() : "";
    if (shard_name.empty() || shard_name.find('/') != std::string::npos) {
      return InvalidArgument("{}: tensor {} is mapped to {}, expected a file name", index_path,
                             name, shard.dump());
    }
    auto& file = shards[shard_name];
    if (file == nullptr) {
      auto opened = SafetensorsFile::Open(dir_ + "/" + shard_name);
      if (!opened.ok()) return Annotate(opened.status(), index_path + " names a shard");
      file = *opened;
    }
    if (file->Find(name) == nullptr) {
      return absl::DataLossError(fmt::format("{} places tensor {} in {}, which does not have it",
                                             index_path, name, shard_name));
    }
    file_of_[name] = file;
  }
  return absl::OkStatus();
}

absl::Status HfCheckpoint::Check(const ModelSpec& spec) const {
  std::set<std::string> expected;
  for (const TensorSpec& tensor : tensors_) {
    expected.insert(tensor.name);
    const auto found = file_of_.find(tensor.name);
    if (found == file_of_.end()) {
      return InvalidArgument("{} has no tensor {} {}{}", dir_, tensor.name, ShapeText(tensor.shape),
                             tensor.name == kHead
                                 ? ", although config.json does not tie it to the embedding: set "
                                   "tie_word_embeddings if the model ties them"
                                 : ": the weights do not belong to this config.json");
    }
    const SafetensorsTensor& stored = *found->second->Find(tensor.name);
    if (stored.shape != tensor.shape) {
      return InvalidArgument("{}: tensor {} has shape {}, config.json needs {}",
                             found->second->path(), tensor.name, ShapeText(stored.shape),
                             ShapeText(tensor.shape));
    }
    if (!IsFloat(stored.dtype)) {
      return InvalidArgument(
          "{}: tensor {} is {}, expected F32, BF16 or F16: quantised weights "
          "are not supported",
          found->second->path(), tensor.name, DTypeName(stored.dtype));
    }
  }
  for (const auto& [name, file] : file_of_) {
    if (expected.count(name) == 0) TANDEM_RETURN_IF_ERROR(CheckExtra(name, spec));
  }
  return absl::OkStatus();
}

absl::Status HfCheckpoint::CheckExtra(const std::string& name, const ModelSpec& spec) const {
  if (IsKnownBuffer(name)) return absl::OkStatus();
  TANDEM_ASSIGN_OR_RETURN(const TensorView extra, View(name));
  if (name != kHead || !spec.tie_word_embeddings) {
    return InvalidArgument(
        "{}: tensor {} {} is not part of a {} model: is it another model, or an "
        "adapter to be merged first?",
        dir_, name, ShapeText(extra.shape), spec.model_type);
  }
  TANDEM_ASSIGN_OR_RETURN(const TensorView embedding, View(kEmbedding));
  if (extra.dtype == embedding.dtype && extra.shape == embedding.shape &&
      std::memcmp(extra.data, embedding.data, embedding.bytes()) == 0) {
    return absl::OkStatus();
  }
  return InvalidArgument(
      "{}: config.json ties lm_head.weight to the embedding but the stored "
      "tensors differ: set tie_word_embeddings to false to use both",
      dir_);
}

std::vector<std::string> HfCheckpoint::files() const {
  std::set<std::string> paths;
  for (const auto& [name, file] : file_of_) paths.insert(file->path());
  return {paths.begin(), paths.end()};
}

DType HfCheckpoint::exact_dtype() const {
  const bool bf16 = std::all_of(tensors_.begin(), tensors_.end(), [this](const TensorSpec& tensor) {
    return file_of_.at(tensor.name)->Find(tensor.name)->dtype == DType::kBFloat16;
  });
  return bf16 ? DType::kBFloat16 : DType::kFloat32;
}

absl::StatusOr<TensorView> HfCheckpoint::View(const std::string& name) const {
  const auto found = file_of_.find(name);
  if (found == file_of_.end()) {
    return MakeStatus(absl::StatusCode::kNotFound, "{} has no tensor {}", dir_, name);
  }
  return found->second->View(name);
}

absl::Status HfCheckpoint::ReadRows(
    const std::string& name, int64_t row_begin, int64_t rows, DType dtype, void* buffer) const {
  TANDEM_ASSIGN_OR_RETURN(const TensorView view, View(name));
  const int64_t total = view.shape.empty() ? 1 : view.shape[0];
  if (row_begin < 0 || rows < 0 || row_begin > total || rows > total - row_begin) {
    return InvalidArgument("{}: rows [{}, {}) of tensor {} {} do not exist", dir_, row_begin,
                           row_begin + rows, name, ShapeText(view.shape));
  }
  if (rows == 0) return absl::OkStatus();
  const int64_t row_elements = view.elements() / total;
  const char* first = view.as<const char>() +
                      static_cast<size_t>(row_begin * row_elements) * DTypeBytes(view.dtype);
  const auto elements = static_cast<size_t>(rows * row_elements);
  const size_t bytes = elements * DTypeBytes(view.dtype);
  const SafetensorsFile& file = *file_of_.at(name);
  file.ReadExactly(first, bytes);
  const absl::Status converted = ConvertElements(first, view.dtype, buffer, dtype, elements);
  file.LetGo(first, bytes);
  NoteProgress();
  TANDEM_RETURN_IF_ERROR(file.CheckWhole());
  return Annotate(converted, name);
}

absl::StatusOr<ModelSpec> CheckModel(const std::string& model_dir, int64_t tokens) {
  TANDEM_ASSIGN_OR_RETURN(ModelSpec spec, LoadModelSpec(model_dir));
  if (tokens > spec.max_position) {
    return InvalidArgument(
        "rollout.max_model_len is {} (data.max_prompt_length + data.max_response_length unless "
        "given), but the model has {} positions (max_position_embeddings in {}/config.json): make "
        "prompts or responses shorter",
        tokens, spec.max_position, model_dir);
  }
  TANDEM_RETURN_IF_ERROR(HfCheckpoint::Open(model_dir, spec).status());
  return spec;
}

absl::Status CheckVocabulary(const std::string& model_dir, const ModelSpec& spec, int64_t ids) {
  if (ids <= spec.vocab_size) return absl::OkStatus();
  return InvalidArgument(
      "{}: the tokenizer has {} ids but the model only {} embedding rows: tokenizer and model do "
      "not belong together; take the tokenizer of the model",
      model_dir, ids, spec.vocab_size);
}

namespace {

constexpr const char* kOptionalFiles[] = {"tokenizer_config.json",
                                          "special_tokens_map.json",
                                          "added_tokens.json",
                                          "vocab.json",
                                          "merges.txt",
                                          "chat_template.jinja"};

absl::Status CopyFile(const std::string& from, const std::string& to) {
  TANDEM_ASSIGN_OR_RETURN(const std::string content, ReadWholeFile(from));
  return WriteFileAtomically(to, content);
}

absl::Status WriteTensor(const TensorSpec& tensor,
                         const RowSource& source,
                         SafetensorsWriter& writer) {
  const int64_t rows = tensor.shape[0];
  const int64_t row_bytes = NumElements(tensor.shape) / rows * static_cast<int64_t>(sizeof(Bf16));
  const int64_t step = RowsPerRange(row_bytes);
  for (int64_t begin = 0; begin < rows; begin += step) {
    const int64_t count = std::min(step, rows - begin);
    const absl::StatusOr<const Bf16*> values = source(tensor, begin, count);
    if (!values.ok()) {
      return Annotate(values.status(), fmt::format("exporting {}", tensor.name));
    }
    TANDEM_RETURN_IF_ERROR(writer.Write(tensor.name, *values,
                                        static_cast<uint64_t>(count * row_bytes),
                                        static_cast<uint64_t>(begin * row_bytes)));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CopyTokenizerFiles(const std::string& tokenizer_dir, const std::string& dir) {
  TANDEM_RETURN_IF_ERROR(CopyFile(tokenizer_dir + "/tokenizer.json", dir + "/tokenizer.json"));
  for (const char* name : kOptionalFiles) {
    const std::string from = tokenizer_dir + "/" + name;
    if (!PathExists(from)) continue;
    TANDEM_RETURN_IF_ERROR(CopyFile(from, dir + "/" + name));
  }
  return absl::OkStatus();
}

absl::Status WriteHfFiles(const ModelSpec& spec,
                          const std::string& tokenizer_dir,
                          const std::string& dir,
                          const RowSource& source) {
  TANDEM_RETURN_IF_ERROR(CopyTokenizerFiles(tokenizer_dir, dir));
  // Sampling defaults that the model's authors chose stay as they are.
  const std::string generation = tokenizer_dir + "/generation_config.json";
  const std::string generation_out = dir + "/generation_config.json";
  TANDEM_RETURN_IF_ERROR(PathExists(generation)
                             ? CopyFile(generation, generation_out)
                             : WriteFileAtomically(generation_out, GenerationConfigJson(spec)));
  TANDEM_RETURN_IF_ERROR(WriteFileAtomically(dir + "/config.json", ModelConfigJson(spec)));
  const std::vector<TensorSpec> tensors = HfTensors(spec);
  std::vector<TensorDeclaration> declarations;
  for (const TensorSpec& tensor : tensors) {
    declarations.push_back({tensor.name, DType::kBFloat16, tensor.shape});
  }
  TANDEM_ASSIGN_OR_RETURN(
      const auto writer,
      SafetensorsWriter::Create(dir + "/model.safetensors", declarations, {{"format", "pt"}}));
  for (const TensorSpec& tensor : tensors) {
    TANDEM_RETURN_IF_ERROR(WriteTensor(tensor, source, *writer));
  }
  return writer->Finish();
}

}  // namespace tandem
