// Prints a saved batch as text or as JSON.
#pragma once

#include <memory>
#include <ostream>
#include <string>

#include <absl/status/status.h>

#include "common/text/tokenizer.h"
#include "controller/store/batch_file.h"
#include "controller/store/batch_stats.h"

namespace tandem {

struct BatchTexts {
  const Tokenizer* tokenizer = nullptr;  // null: prints token ids only
  std::string note;                      // why there is no tokenizer
};

std::string BatchText(const BatchReader& batch, const BatchStats& stats, const BatchTexts& texts);
std::string BatchJson(const BatchReader& batch, const BatchStats& stats, const BatchTexts& texts);

// `tandemctl batch inspect`: prints the contents of a saved batch.
struct BatchInspectOptions {
  std::string file;
  // Model directory or tokenizer.json, for the text around the worst token; empty: the model that
  // the batch names, if its tokenizer can be read.
  std::string tokenizer;
  bool json = false;
};

struct BatchInspectOutcome {
  int exit_code =
      0;  // of a run with such an input: 65 no batch or a damaged one, 66 missing file, ...
  absl::Status error;
};

BatchInspectOutcome BatchInspectCommand(const BatchInspectOptions& options, std::ostream& out);

}  // namespace tandem
