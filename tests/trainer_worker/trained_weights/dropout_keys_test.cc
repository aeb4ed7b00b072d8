#include <map>
#include <set>
#include <utility>

#include "tests/trainer_worker/trained_weights/lora_group.h"
#include "trainer_worker/forward_backward/packing.h"

namespace tandem {
namespace {

using namespace tandem::testing;

using RowKeys = std::map<std::pair<uint64_t, int64_t>, uint64_t>;

// Of every row, by sample and position, a shared prompt's for each that shares it.
RowKeys KeysOf(const std::vector<Sample>& samples,
               const PackingLimits& limits,
               uint64_t seed = 1,
               int64_t version = 0) {
  RowKeys keys;
  const auto batches = PackSamples(samples, limits);
  REQUIRE(batches.ok());
  for (const PackedBatch& batch : *batches) {
    const std::vector<uint64_t> rows = DropoutRowKeys(batch, samples, seed, version);
    REQUIRE(std::ssize(rows) == batch.rows());
    for (const PackedBatch::Sequence& sequence : batch.sequences) {
      const uint64_t id = samples[static_cast<size_t>(sequence.sample)].sample_id;
      for (int64_t i = 0; i < sequence.prefix_rows; ++i) {
        const auto& prefix = batch.sequences[static_cast<size_t>(sequence.prefix)];
        keys[{id, i}] = rows[static_cast<size_t>(prefix.first_row + i)];
      }
      for (int64_t i = 0; i < sequence.rows; ++i) {
        keys[{id, sequence.prefix_rows + i}] = rows[static_cast<size_t>(sequence.first_row + i)];
      }
    }
  }
  return keys;
}

}  // namespace

TEST_CASE("a row's key depends on seed, version, sample and position, a prompt's on its tokens",
          "[trainer][lora]") {
  const std::vector<Sample> samples = GroupedSamples();
  PackingLimits limits{.max_tokens = 300, .max_sequence_tokens = 128, .vocab_limit = 1 << 20};
  const RowKeys want = KeysOf(samples, limits);
  std::set<uint64_t> distinct;
  for (const auto& [row, key] : want) distinct.insert(key);
  size_t rows = 0;
  for (size_t i = 0; i < samples.size(); ++i) {
    rows += samples[i].tokens.size() - 1;  // the last token has no row
    if (i % 3 != 0) rows -= static_cast<size_t>(samples[i].prompt_tokens);
  }
  REQUIRE(distinct.size() == rows);
  for (const int64_t tokens : {60, 90, 150}) {
    limits.max_tokens = tokens;
    for (const bool share : {true, false}) {
      limits.share_prompts = share;
      REQUIRE(KeysOf(samples, limits) == want);
      // On one of several ranks.
      for (const auto& [row, key] : KeysOf(Share(samples, 1, 2), limits)) {
        REQUIRE(want.at(row) == key);
      }
    }
  }
  for (const RowKeys& others : {KeysOf(samples, limits, 2, 0), KeysOf(samples, limits, 1, 1)}) {
    for (const auto& [row, key] : others) REQUIRE(distinct.count(key) == 0);
  }
}

}  // namespace tandem
