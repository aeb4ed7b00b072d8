#include "trainer_worker/forward_backward/dropout_keys.h"

#include "common/ops/adapter_dropout.h"

namespace tandem {
namespace {

// Sets these streams apart from those of the same seed that sample tokens and make adapters.
constexpr uint64_t kStream = uint64_t{0x64726f70} << 32;  // "drop"

// The same for the same tokens.
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
    const bool shares = sequence.prefix_rows == sample.prompt_tokens;  // no row is the prompt's
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
