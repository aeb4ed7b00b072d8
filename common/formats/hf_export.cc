#include "common/formats/hf_export.h"

#include <algorithm>
#include <vector>

#include "common/base/status_macros.h"
#include "common/formats/atomic_file.h"
#include "common/formats/safetensors_writer.h"
#include "common/model_spec/row_ranges.h"

namespace tandem {
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
