#include "common/tensor_file/hf_export.h"

#include <algorithm>
#include <filesystem>
#include <vector>

#include "common/base/status_macros.h"
#include "common/tensor_file/safetensors_writer.h"

namespace tandem {
namespace {

// Rows are asked for in pieces of about this size.
constexpr int64_t kPieceElements = int64_t{8} << 20;

constexpr const char* kOptionalFiles[] = {"tokenizer_config.json",
                                          "special_tokens_map.json",
                                          "added_tokens.json",
                                          "vocab.json",
                                          "merges.txt",
                                          "chat_template.jinja"};

bool Exists(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

absl::Status CopyFile(const std::string& from, const std::string& to) {
  TANDEM_ASSIGN_OR_RETURN(const std::string content, ReadWholeFile(from));
  return WriteFileAtomically(to, content);
}

absl::Status WriteTensor(const TensorSpec& tensor,
                         const RowSource& source,
                         std::vector<Bf16>& piece,
                         SafetensorsWriter& writer) {
  const int64_t rows = tensor.shape[0];
  const int64_t row_elements = NumElements(tensor.shape) / rows;
  const int64_t piece_rows = std::max<int64_t>(1, kPieceElements / row_elements);
  for (int64_t begin = 0; begin < rows; begin += piece_rows) {
    const int64_t count = std::min(piece_rows, rows - begin);
    piece.resize(static_cast<size_t>(count * row_elements));
    TANDEM_RETURN_IF_ERROR(Annotate(source(tensor, begin, count, piece.data()),
                                    fmt::format("exporting {}", tensor.name)));
    const uint64_t row_bytes = static_cast<uint64_t>(row_elements) * sizeof(Bf16);
    TANDEM_RETURN_IF_ERROR(writer.Write(tensor.name, piece.data(), piece.size() * sizeof(Bf16),
                                        static_cast<uint64_t>(begin) * row_bytes));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CopyTokenizerFiles(const std::string& tokenizer_dir, const std::string& dir) {
  TANDEM_RETURN_IF_ERROR(CopyFile(tokenizer_dir + "/tokenizer.json", dir + "/tokenizer.json"));
  for (const char* name : kOptionalFiles) {
    const std::string from = tokenizer_dir + "/" + name;
    if (!Exists(from)) continue;
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
  TANDEM_RETURN_IF_ERROR(Exists(generation)
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
  std::vector<Bf16> piece;
  for (const TensorSpec& tensor : tensors) {
    TANDEM_RETURN_IF_ERROR(WriteTensor(tensor, source, piece, *writer));
  }
  return writer->Finish();
}

absl::Status ExportHfCheckpoint(const ModelSpec& spec,
                                const std::string& tokenizer_dir,
                                const std::string& out_dir,
                                const RowSource& source,
                                AtomicDirectory::IfExists if_exists) {
  TANDEM_ASSIGN_OR_RETURN(const auto directory, AtomicDirectory::Create(out_dir, if_exists));
  TANDEM_RETURN_IF_ERROR(WriteHfFiles(spec, tokenizer_dir, directory->partial_path(), source));
  return directory->Commit();
}

}  // namespace tandem
