#include "trainer_worker/forward_backward/packing.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "common/base/status.h"
#include "common/ops/adapter_dropout.h"
#include "common/types/response_tokens.h"

namespace tandem {
namespace {

absl::Status CheckSample(const Sample& sample, const PackingLimits& limits) {
  const auto tokens = static_cast<int64_t>(sample.tokens.size());
  if (tokens > limits.max_tokens) {
    return InvalidArgument(
        "sample {:#x} has {} tokens, but a micro-batch holds actor.ppo_max_token_len_per_gpu = {}; "
        "raise that key to at least data.max_prompt_length + data.max_response_length",
        sample.sample_id, tokens, limits.max_tokens);
  }
  if (tokens > limits.max_sequence_tokens) {
    return InvalidArgument("sample {:#x} has {} tokens, but rollout.max_model_len is {}",
                           sample.sample_id, tokens, limits.max_sequence_tokens);
  }
  if (sample.off_support && !limits.allow_off_support) {
    return InvalidArgument(
        "sample {:#x} was drawn with top_p below 1 or with top_k, which leaves the policy's "
        "support; set rollout.top_p=1 and rollout.top_k=-1, or rollout.allow_off_support=true",
        sample.sample_id);
  }
  if (sample.prompt_tokens < 1 || sample.prompt_tokens > tokens) {
    return InvalidArgument("sample {:#x} has {} tokens and claims a prompt of {}", sample.sample_id,
                           tokens, sample.prompt_tokens);
  }
  for (const Segment& segment : sample.segments) {
    if (segment.begin < 0 || segment.length < 0 || segment.begin + segment.length > tokens) {
      return InvalidArgument("sample {:#x} has a segment [{}, {}) outside its {} tokens",
                             sample.sample_id, segment.begin, segment.begin + segment.length,
                             tokens);
    }
  }
  const auto bad = std::find_if(sample.tokens.begin(), sample.tokens.end(), [&](int32_t token) {
    return token < 0 || token >= limits.vocab_limit;
  });
  if (bad != sample.tokens.end()) {
    return InvalidArgument("sample {:#x} holds token {}, but the vocabulary has {} ids",
                           sample.sample_id, *bad, limits.vocab_limit);
  }
  return absl::OkStatus();
}

// The tokens and rows that a sample needs in a micro-batch.
struct Needs {
  std::vector<int64_t> responses;  // the trained response tokens, in ascending order
  int64_t rows = 0;  // from position 0 to the last row that is scored, at least the prompt
};

Needs NeedsOf(const Sample& sample) {
  Needs needs{.responses = {}, .rows = sample.prompt_tokens};
  const std::vector<bool> trained = TrainedTokens(sample.segments, WindowOf(sample));
  for (size_t i = 0; i < trained.size(); ++i) {
    if (trained[i]) needs.responses.push_back(static_cast<int64_t>(i));
  }
  if (!needs.responses.empty()) {
    const int64_t last_row = WindowOf(sample).RowOf(needs.responses.back());
    needs.rows = std::max(needs.rows, last_row + 1);
  }
  return needs;
}

bool SamePrompt(const Sample& a, const Sample& b) {
  return a.prompt_tokens == b.prompt_tokens &&
         std::equal(a.tokens.begin(), a.tokens.begin() + a.prompt_tokens, b.tokens.begin());
}

// Fills one micro-batch after another.
class Packer {
 public:
  Packer(const std::vector<Sample>& samples, const PackingLimits& limits)
      : samples_(samples), limits_(limits) {}

  void Add(int64_t index) {
    const Sample& sample = At(index);
    const Needs needs = NeedsOf(sample);
    int64_t prefix = batches_.empty() ? -1 : PrefixFor(sample);
    if (batches_.empty() || !Fits(needs, prefix < 0 ? 0 : sample.prompt_tokens)) {
      batches_.emplace_back();
      prefix = -1;
    }
    Append(index, needs, prefix);
  }
  std::vector<PackedBatch> Take() { return std::move(batches_); }

 private:
  const Sample& At(int64_t index) const { return samples_[static_cast<size_t>(index)]; }
  // Index of the sequence in the open micro-batch that has the rows of this sample's prompt, or -1.
  int64_t PrefixFor(const Sample& sample) const {
    if (!limits_.share_prompts) return -1;
    const std::vector<PackedBatch::Sequence>& sequences = batches_.back().sequences;
    const PackedBatch::Sequence& last = sequences.back();
    if (!SamePrompt(sample, At(last.sample))) return -1;
    return last.prefix >= 0 ? last.prefix : static_cast<int64_t>(sequences.size()) - 1;
  }
  bool Fits(const Needs& needs, int64_t shared_rows) const {
    const PackedBatch& batch = batches_.back();
    return batch.rows() + needs.rows - shared_rows <= limits_.max_tokens &&
           batch.scored() + static_cast<int64_t>(needs.responses.size()) <= limits_.max_tokens;
  }
  void Append(int64_t index, const Needs& needs, int64_t prefix);

  const std::vector<Sample>& samples_;
  const PackingLimits& limits_;
  std::vector<PackedBatch> batches_;
};

void Packer::Append(int64_t index, const Needs& needs, int64_t prefix) {
  const Sample& sample = At(index);
  PackedBatch& batch = batches_.back();
  const int64_t shared = prefix < 0 ? 0 : sample.prompt_tokens;
  const PackedBatch::Sequence own = {.sample = index,
                                     .first_row = batch.rows(),
                                     .rows = needs.rows - shared,
                                     .prefix = prefix,
                                     .prefix_rows = shared};
  const auto sequence = static_cast<int32_t>(batch.sequences.size());
  const int64_t prompt_row =
      prefix < 0 ? own.first_row : batch.sequences[static_cast<size_t>(prefix)].first_row;
  batch.sequences.push_back(own);
  batch.tokens.insert(batch.tokens.end(), sample.tokens.begin() + shared,
                      sample.tokens.begin() + needs.rows);
  const ResponseWindow window = WindowOf(sample);
  for (const int64_t response : needs.responses) {
    const int64_t row = window.RowOf(response);
    batch.scored_rows.push_back(
        static_cast<int32_t>(row < shared ? prompt_row + row : own.first_row + row - shared));
    batch.targets.push_back(sample.tokens[static_cast<size_t>(window.TokenOf(response))]);
    // Log-probs of greedy samples are recorded at T = 1 (docs/reference/numerics.md).
    batch.temperatures.push_back(sample.temperature == 0.0f ? 1.0f : sample.temperature);
    batch.scored_sequence.push_back(sequence);
    batch.scored_response.push_back(static_cast<int32_t>(response));
  }
}

}  // namespace

absl::StatusOr<std::vector<PackedBatch>> PackSamples(const std::vector<Sample>& samples,
                                                     const PackingLimits& limits) {
  std::vector<int64_t> order(samples.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    return samples[static_cast<size_t>(a)].sample_id < samples[static_cast<size_t>(b)].sample_id;
  });
  Packer packer(samples, limits);
  for (const int64_t index : order) {
    TANDEM_RETURN_IF_ERROR(CheckSample(samples[static_cast<size_t>(index)], limits));
    packer.Add(index);
  }
  return packer.Take();
}

namespace {

// Separates these random streams from those of the same seed that sample tokens and initialise
// adapters.
constexpr uint64_t kStream = uint64_t{0x64726f70} << 32;  // "drop"

// Equal for prompts with equal tokens.
uint64_t PromptKey(uint64_t pass, const Sample& sample) {
  uint64_t key = DerivedKey(pass, kStream, static_cast<uint64_t>(sample.prompt_tokens));
  for (int64_t i = 0; i < sample.prompt_tokens; ++i) {
    key = DerivedKey(key, kStream, static_cast<uint64_t>(sample.tokens[static_cast<size_t>(i)]));
  }
  return key;
}

}  // namespace

std::vector<uint64_t> DropoutRowKeys(const PackedBatch& batch,
                                     const std::vector<Sample>& samples,
                                     uint64_t seed,
                                     int64_t version) {
  const uint64_t pass = DerivedKey(seed, kStream, static_cast<uint64_t>(version));
  std::vector<uint64_t> keys(static_cast<size_t>(batch.rows()));
  for (const PackedBatch::Sequence& sequence : batch.sequences) {
    const Sample& sample = samples[static_cast<size_t>(sequence.sample)];
    // Then no row of the sequence is the prompt's.
    const bool shares = sequence.prefix_rows == sample.prompt_tokens;
    const uint64_t prompt = shares ? 0 : PromptKey(pass, sample);
    const uint64_t response = DerivedKey(pass, kStream + 1, sample.sample_id);
    for (int64_t row = 0; row < sequence.rows; ++row) {
      const int64_t position = sequence.prefix_rows + row;
      keys[static_cast<size_t>(sequence.first_row + row)] =
          DerivedKey(position < sample.prompt_tokens ? prompt : response, kStream,
                     static_cast<uint64_t>(position));
    }
  }
  return keys;
}

}  // namespace tandem
