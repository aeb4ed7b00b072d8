#include "controller/cli/batch_command.h"

#include <filesystem>
#include <memory>
#include <utility>

#include "common/base/status_macros.h"
#include "common/process/exit_code.h"
#include "common/text/tokenizer.h"
#include "controller/cli/batch_text.h"
#include "controller/store/batch_reader.h"
#include "controller/store/batch_stats.h"

namespace tandem {
namespace {

absl::StatusOr<std::unique_ptr<Tokenizer>> LoadTokenizer(const std::string& path) {
  std::error_code error;
  const bool file = std::filesystem::is_regular_file(path, error);
  return file ? Tokenizer::FromFile(path) : Tokenizer::Load(path);
}

absl::Status Inspect(const BatchInspectOptions& options, std::ostream& out) {
  TANDEM_ASSIGN_OR_RETURN(const auto batch, BatchReader::Open(options.file));
  const bool named = !options.tokenizer.empty();
  const auto tokenizer = LoadTokenizer(named ? options.tokenizer : batch->info().model_path);
  if (named) TANDEM_RETURN_IF_ERROR(Annotate(tokenizer.status(), "--tokenizer"));
  BatchTexts texts;
  if (tokenizer.ok()) {
    texts.tokenizer = tokenizer->get();
  } else {
    texts.note = fmt::format("{}; --tokenizer names another model directory",
                             std::string(tokenizer.status().message()));
  }
  const BatchStats stats = SummarizeBatch(*batch);
  out << (options.json ? BatchJson(*batch, stats, texts) : BatchText(*batch, stats, texts));
  return absl::OkStatus();
}

}  // namespace

BatchInspectOutcome BatchInspectCommand(const BatchInspectOptions& options, std::ostream& out) {
  const absl::Status status = Inspect(options, out);
  return {.exit_code = ExitCodeAt(FailedAt::kInputs, status), .error = status};
}

}  // namespace tandem
