#include "trainer_worker/forward_backward/batch_selection.h"

#include <algorithm>

#include "common/base/status_macros.h"
#include "common/comm/agreement.h"
#include "trainer_worker/forward_backward/token_inputs.h"

namespace tandem {
namespace {

bool AllFresh(const std::vector<PackedBatch>& batches,
              const std::vector<Sample>& samples,
              const MiniBatchRequest& request) {
  for (const PackedBatch& batch : batches) {
    for (size_t i = 0; i < batch.scored_response.size(); ++i) {
      const auto response = static_cast<size_t>(batch.scored_response[i]);
      if (!IsFresh(ScoredSample(batch, samples, i), response, request)) return false;
    }
  }
  return true;
}

// Adds the counted tokens; without `log_probs` the old ones are the current ones.
void Collect(const PackedBatch& batch,
             const std::vector<Sample>& samples,
             const MiniBatchRequest& request,
             const std::vector<float>* log_probs,
             std::vector<SelectionToken>& tokens) {
  for (size_t i = 0; i < batch.scored_response.size(); ++i) {
    const Sample& sample = ScoredSample(batch, samples, i);
    const auto response = static_cast<size_t>(batch.scored_response[i]);
    if (!IsCounted(sample, response)) continue;
    const float old = OldLogProbs(sample, request)[response];
    tokens.push_back({.log_prob = log_probs == nullptr ? old : (*log_probs)[i],
                      .old_log_prob = old,
                      .advantage = sample.advantages[response],
                      .sample_id = sample.sample_id,
                      .position = batch.scored_response[i]});
  }
}

// Back from the counted tokens to all scores.
BatchSelection Spread(const std::vector<PackedBatch>& batches,
                      const std::vector<Sample>& samples,
                      const std::vector<uint8_t>& selected) {
  BatchSelection result;
  size_t next = 0;
  for (const PackedBatch& batch : batches) {
    std::vector<uint8_t>& scores = result.emplace_back(batch.scored_response.size(), uint8_t{0});
    for (size_t i = 0; i < scores.size(); ++i) {
      const auto response = static_cast<size_t>(batch.scored_response[i]);
      if (IsCounted(ScoredSample(batch, samples, i), response)) scores[i] = selected[next++];
    }
  }
  return result;
}

}  // namespace

absl::StatusOr<BatchSelection> SelectInBatches(const std::vector<PackedBatch>& batches,
                                               const std::vector<Sample>& samples,
                                               const MiniBatchRequest& request,
                                               const ScoreBatch& score,
                                               Communicator& communicator) {
  const Selection selection = SelectionOf(request.loss);
  if (selection == Selection::kNone) return BatchSelection();
  TANDEM_ASSIGN_OR_RETURN(const std::vector<int64_t> stale,
                          Agree(communicator, absl::OkStatus(), "selecting tokens",
                                AllFresh(batches, samples, request) ? 0 : 1));
  const bool fresh = *std::max_element(stale.begin(), stale.end()) == 0;
  std::vector<SelectionToken> tokens;
  for (const PackedBatch& batch : batches) {
    std::vector<float> log_probs;
    if (!fresh) {
      TANDEM_ASSIGN_OR_RETURN(log_probs, score(batch));
    }
    Collect(batch, samples, request, fresh ? nullptr : &log_probs, tokens);
  }
  TANDEM_ASSIGN_OR_RETURN(const std::vector<uint8_t> selected,
                          SelectTokens(selection, tokens, request.loss,
                                       {.seed = request.seed, .step = request.step}, communicator));
  return Spread(batches, samples, selected);
}

}  // namespace tandem
