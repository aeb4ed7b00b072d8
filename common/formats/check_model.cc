#include "common/formats/check_model.h"

#include "common/base/status_macros.h"
#include "common/formats/checkpoint_dir.h"

namespace tandem {

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
      "not "
      "belong together; take the tokenizer of the model",
      model_dir, ids, spec.vocab_size);
}

}  // namespace tandem
