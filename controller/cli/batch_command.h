// `tandemctl batch inspect`: what is in a saved batch.
#pragma once

#include <ostream>
#include <string>

#include <absl/status/status.h>

namespace tandem {

struct BatchInspectOptions {
  std::string file;
  // Model directory or tokenizer.json, for the text around the worst token; empty: the model that
  // the batch names, if its tokenizer can be read.
  std::string tokenizer;
  bool json = false;
};

struct BatchInspectOutcome {
  int exit_code =
      0;  // of a run with such an input: 65 no batch or a damaged one, 66 not there, ...
  absl::Status error;
};

BatchInspectOutcome BatchInspectCommand(const BatchInspectOptions& options, std::ostream& out);

}  // namespace tandem
