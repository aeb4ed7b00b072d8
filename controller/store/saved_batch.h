// What a saved batch holds: the samples of one step with everything that was known of them. Plain
// structs.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <absl/status/statusor.h>

#include "common/types/sample.h"

namespace tandem {

struct SavedSample : Sample {
  std::vector<float> sum_pi_squared;  // per response token; empty: not computed
  // Of the training pass that the run ended with, where its trainer saw old log-probs of the same
  // weights that are not the same.
  std::vector<float> training_log_probs;
  int64_t trained_tokens = 0;  // response tokens that the mask leaves
  int64_t mini_batch = 0;
  int rank = 0;          // of the trainer
  double score = 0;      // the reward function's
  double advantage = 0;  // of the whole response, where tokens have no own
  std::map<std::string, double> reward_terms;
};

// The arrays of floats, one value per response token or empty, by their names in files and tables.
struct SavedArray {
  const char* name;
  std::vector<float> SavedSample::*values;
};
inline constexpr std::array<SavedArray, 8> kSavedArrays = {{
    {"log_probs", &SavedSample::log_probs},
    {"old_log_probs", &SavedSample::old_log_probs},
    {"ref_log_probs", &SavedSample::ref_log_probs},
    {"training_log_probs", &SavedSample::training_log_probs},
    {"sum_pi_squared", &SavedSample::sum_pi_squared},
    {"advantages", &SavedSample::advantages},
    {"is_weights", &SavedSample::is_weights},
    {"mask", &SavedSample::mask},
}};

struct SavedMiniBatch {
  int64_t index = 0;
  int64_t samples = 0;
  int64_t trained_tokens = 0;
};

// Of the whole batch. No time and no run id: a step that is made again gives the same bytes.
struct SavedBatchInfo {
  int64_t step = 0;
  int64_t sampling_version = 0;  // weights that the step began with; no token is of later ones
  int64_t version = 0;           // optimizer steps done or skipped when it was saved
  std::string failure;           // why the run stopped at it; empty: it was saved on request
  int64_t epoch = 0;             // of the passes over the samples (actor.ppo_epochs)
  int64_t mini_batch = -1;       // the update that failed; -1: none
  int ranks = 1;
  std::string model_path;                    // with the tokenizer
  std::string checkpoint;                    // newest before the step; empty: none
  std::string config_yaml;                   // resolved
  std::vector<SavedMiniBatch> mini_batches;  // of the newest plan
  std::map<std::string, double> metrics;     // of the step so far
};

// A saved batch on disk, all numbers little endian:
//
//   preamble, 64 bytes   magic, version, where the header lies, digests
//   arrays               of one sample after another, without gaps
//   header               JSON: the batch, and of every sample its numbers and where its arrays are
//
// The header comes last, so that a batch of any size is written in one pass. A reader that does not
// know an array or a key of the header leaves it out; what changes the meaning of anything raises
// kBatchVersion.
inline constexpr char kBatchMagic[9] = "TNDBATCH";
inline constexpr uint32_t kBatchVersion = 1;
inline constexpr char kBatchSuffix[] = ".batch";

struct BatchPreamble {
  std::array<char, 8> magic{};
  uint32_t version = 0;
  uint32_t bytes = 64;         // of the preamble
  uint64_t header_offset = 0;  // from the start of the file
  uint64_t header_bytes = 0;
  uint64_t file_bytes = 0;
  uint64_t digest_low = 0;  // XXH3 of 128 bits of all that follows the preamble
  uint64_t digest_high = 0;
  uint64_t check = 0;  // XXH3 of 64 bits of the 56 bytes before
};
static_assert(sizeof(BatchPreamble) == 64);

// Arrays of every sample beside those of kSavedArrays (saved_batch.h), which are float32.
inline constexpr char kBatchTokens[] = "tokens";      // int32, prompt then response
inline constexpr char kBatchVersions[] = "versions";  // int64, per response token

// The JSON of a saved batch's header, and back.

// Where an array lies.
struct BatchPlace {
  uint64_t offset = 0;  // from the start of the file
  uint64_t count = 0;   // values
};

struct BatchEntry {
  SavedSample meta;                          // without arrays
  std::map<std::string, BatchPlace> arrays;  // by name; empty ones are left out
};

struct BatchHeader {
  SavedBatchInfo info;
  std::vector<BatchEntry> entries;
};

// Gives their memory back too.
SavedSample WithoutArrays(SavedSample sample);

// Texts that are no UTF-8 get replacement characters; a number that is not finite is a string.
std::string BatchHeaderToJson(const SavedBatchInfo& info, const std::vector<BatchEntry>& entries);

// DataLoss: no JSON, or not this one. Places are not checked here.
absl::StatusOr<BatchHeader> BatchHeaderFromJson(const char* text, size_t bytes);

// stop, length, aborted; "none" where a response has not ended.
std::string FinishReasonName(FinishReason reason);

}  // namespace tandem
