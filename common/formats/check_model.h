// Whether a model directory can be run, told before anything starts for it.
#pragma once

#include <cstdint>
#include <string>

#include <absl/status/statusor.h>

#include "common/model_spec/model_spec.h"

namespace tandem {

// Reads config.json and the headers of the weight files; no weight is read, but a stored lm_head of
// a tied model. Errors as LoadModelSpec and HfCheckpoint::Open; InvalidArgument as well where
// sequences of `tokens` (prompt and response) exceed the positions of the model.
absl::StatusOr<ModelSpec> CheckModel(const std::string& model_dir, int64_t tokens);

// InvalidArgument where the tokenizer in `model_dir` has more ids than the embedding has rows.
absl::Status CheckVocabulary(const std::string& model_dir, const ModelSpec& spec, int64_t ids);

}  // namespace tandem
