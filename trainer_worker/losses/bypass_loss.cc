#include "trainer_worker/losses/bypass_loss.h"

#include <cstring>
#include <numeric>

#include "common/base/status_macros.h"
#include "common/rollout_correction/rollout_correction.h"

namespace tandem {
namespace {

// The tokens of one sequence, wherever they stand.
struct Sequence {
  std::vector<size_t> places;
  std::vector<float> policy, rollout, mask;

  LogProbRow row() const { return {.policy = policy, .rollout = rollout, .mask = mask}; }
};

std::vector<Sequence> SequencesOf(const LossTokens& tokens) {
  std::vector<Sequence> sequences(static_cast<size_t>(tokens.num_rows));
  for (size_t i = 0; i < tokens.log_probs.size(); ++i) {
    Sequence& sequence =
        sequences.at(tokens.rows.empty() ? 0 : static_cast<size_t>(tokens.rows[i]));
    sequence.places.push_back(i);
    sequence.policy.push_back(tokens.log_probs[i]);
    sequence.rollout.push_back(tokens.old_log_probs[i]);
    sequence.mask.push_back(tokens.mask.empty() ? 1.0f : tokens.mask[i]);
  }
  return sequences;
}

void Scatter(const Sequence& sequence, const std::vector<float>& from, std::vector<float>& to) {
  for (size_t t = 0; t < sequence.places.size(); ++t) to[sequence.places[t]] = from[t];
}

// A sample in a message, before its log-probs: the policy's, then the rollout's.
struct RowHead {
  uint64_t sample_id = 0;
  uint64_t tokens = 0;
};

void Write(const void* data, size_t bytes, std::vector<char>& to) {
  const auto* begin = static_cast<const char*>(data);
  to.insert(to.end(), begin, begin + bytes);
}

const char* Read(const char* from, void* data, size_t bytes) {
  if (bytes > 0) std::memcpy(data, from, bytes);
  return from + bytes;
}

// The messages of all ranks, one behind the other.
absl::StatusOr<std::vector<char>> Gather(const std::vector<char>& mine, Communicator& host) {
  const auto size = static_cast<int64_t>(mine.size());
  std::vector<int64_t> sizes(static_cast<size_t>(host.world_size()));
  TANDEM_RETURN_IF_ERROR(host.AllGather(&size, sizeof(size), sizes.data()));
  std::vector<char> all(
      static_cast<size_t>(std::accumulate(sizes.begin(), sizes.end(), int64_t{0})));
  TANDEM_RETURN_IF_ERROR(host.AllGatherV(mine.data(), sizes, all.data()));
  return all;
}

}  // namespace

absl::StatusOr<std::string> BypassLossMode(const BypassOptions& bypass) {
  TANDEM_RETURN_IF_ERROR(RolloutCorrection::Create(bypass.correction).status());
  if (bypass.loss_type == "ppo_clip") return "vanilla";
  if (bypass.loss_type == "reinforce") return "gpg";
  return InvalidArgument(
      "algorithm.rollout_correction.loss_type is \"{}\"; use ppo_clip or reinforce",
      bypass.loss_type);
}

absl::StatusOr<BypassCorrection> CorrectInBypass(const LossTokens& tokens,
                                                 const BypassOptions& bypass) {
  const RolloutCorrectionOptions& options = bypass.correction;
  TANDEM_ASSIGN_OR_RETURN(RolloutCorrection correction, RolloutCorrection::Create(options));
  const bool weighs = correction.weighs() && bypass.loss_type == "reinforce";
  const std::vector<Sequence> sequences = SequencesOf(tokens);
  for (const Sequence& sequence : sequences) {
    if (!options.rollout_is_batch_normalize) break;  // nothing else needs the others
    TANDEM_RETURN_IF_ERROR(correction.Observe(sequence.row()));
  }
  BypassCorrection result;
  if (weighs) result.weights.resize(tokens.log_probs.size());
  result.mask.resize(tokens.log_probs.size());
  for (const Sequence& sequence : sequences) {
    if (weighs) Scatter(sequence, correction.Weights(sequence.row()), result.weights);
    Scatter(sequence, correction.rejects() ? correction.Mask(sequence.row()) : sequence.mask,
            result.mask);
  }
  return result;
}

void BypassMetrics::AddToken(uint64_t sample_id, float policy, float rollout) {
  Row& row = rows_[sample_id];
  row.policy.push_back(policy);
  row.rollout.push_back(rollout);
}

absl::StatusOr<std::map<std::string, double>> BypassMetrics::Reduce(
    const RolloutCorrectionOptions& options, Communicator& communicator) const {
  std::vector<char> mine;
  for (const auto& [id, row] : rows_) {
    const RowHead head{.sample_id = id, .tokens = row.policy.size()};
    Write(&head, sizeof(head), mine);
    Write(row.policy.data(), row.policy.size() * sizeof(float), mine);
    Write(row.rollout.data(), row.rollout.size() * sizeof(float), mine);
  }
  TANDEM_ASSIGN_OR_RETURN(const std::vector<char> bytes, Gather(mine, communicator.host()));
  std::map<uint64_t, Row> rows;
  size_t tokens = 0;
  for (const char *next = bytes.data(), *end = next + bytes.size(); next != end;) {
    RowHead head;
    next = Read(next, &head, sizeof(head));
    Row& row = rows[head.sample_id];
    row.policy.resize(head.tokens);
    row.rollout.resize(head.tokens);
    next = Read(next, row.policy.data(), head.tokens * sizeof(float));
    next = Read(next, row.rollout.data(), head.tokens * sizeof(float));
    tokens += head.tokens;
  }
  if (tokens == 0) return std::map<std::string, double>();
  TANDEM_ASSIGN_OR_RETURN(RolloutCorrection correction, RolloutCorrection::Create(options));
  for (const auto& [id, row] : rows) {
    TANDEM_RETURN_IF_ERROR(correction.Observe({.policy = row.policy, .rollout = row.rollout}));
  }
  return correction.Metrics();
}

}  // namespace tandem
