// The contents of a saved batch: the samples of one step with everything that is known about them.
// Plain structs.
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
  // Log-probs of the training pass that the run ended with, of samples for which the trainer saw
  // different old log-probs although the weights are the same.
  std::vector<float> training_log_probs;
  int64_t trained_tokens = 0;  // response tokens that the mask keeps
  int64_t mini_batch = 0;
  int rank = 0;          // of the trainer
  double score = 0;      // of the reward function
  double advantage = 0;  // of the complete response, unless its tokens have their own
  std::map<std::string, double> reward_terms;
};

// The float arrays by their names in files and tables; each has one value per response token, or
// none.
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

// Facts about the batch. Has no time and no run id, so that a repeated step gives the same bytes.
struct SavedBatchInfo {
  int64_t step = 0;
  int64_t sampling_version = 0;  // weights at the beginning of the step, the newest of all tokens
  int64_t version = 0;      // number of optimizer steps, skipped ones included, when it was saved
  std::string failure;      // why the run ended at this step; empty: saved on request
  int64_t epoch = 0;        // pass over the samples (actor.ppo_epochs)
  int64_t mini_batch = -1;  // the update that failed; -1: none
  int ranks = 1;
  std::string model_path;                    // folder with the tokenizer
  std::string checkpoint;                    // the newest before the step; empty: none
  std::string config_yaml;                   // resolved
  std::vector<SavedMiniBatch> mini_batches;  // of the current pass
  std::map<std::string, double> metrics;     // of the step so far
};

// The file format of a saved batch; all numbers are little endian:
//
//   preamble, 64 bytes   magic, version, offset of the header, digests
//   arrays               of one sample after another, without gaps
//   header               JSON: facts about the batch, and for each sample its facts and the offsets
//                        of its arrays
//
// The header comes last, so that a batch of any size is written in one pass. A reader ignores
// arrays and header keys that it does not know; a change of the meaning of anything increases
// kBatchVersion.
inline constexpr char kBatchMagic[9] = "TNDBATCH";
inline constexpr uint32_t kBatchVersion = 1;
inline constexpr char kBatchSuffix[] = ".batch";

// A run's .samples files (sample_store.h), whose arrays are appended as they come, end with the
// same header once their step is recorded, and behind it with the preamble: its magic is
// kSamplesMagic, and its digest that of the header. A sample without "advantages" has the same one
// for all tokens.
inline constexpr char kSamplesMagic[9] = "TNDSMPLS";
inline constexpr char kSamplesSuffix[] = ".samples";

struct BatchPreamble {
  std::array<char, 8> magic{};
  uint32_t version = 0;
  uint32_t bytes = 64;         // of the preamble
  uint64_t header_offset = 0;  // from the start of the file
  uint64_t header_bytes = 0;
  uint64_t file_bytes = 0;
  uint64_t digest_low = 0;  // XXH3, 128 bits, of everything else
  uint64_t digest_high = 0;
  uint64_t check = 0;  // XXH3, 64 bits, of the 56 bytes before it
};
static_assert(sizeof(BatchPreamble) == 64);

// The arrays of every sample in addition to those of kSavedArrays, which are float32.
inline constexpr char kBatchTokens[] = "tokens";      // int32, prompt then response
inline constexpr char kBatchVersions[] = "versions";  // int64, per response token

// The position of an array in the file.
struct BatchPlace {
  uint64_t offset = 0;  // bytes from the start of the file
  uint64_t count = 0;   // number of values
};

struct BatchEntry {
  SavedSample meta;                          // without arrays
  std::map<std::string, BatchPlace> arrays;  // by name; without empty ones
};

struct BatchHeader {
  SavedBatchInfo info;
  std::vector<BatchEntry> entries;
};

// Also releases the memory of the arrays.
SavedSample WithoutArrays(SavedSample sample);

// Bytes that are not UTF-8 become replacement characters; numbers that are not finite become
// strings.
std::string BatchHeaderToJson(const SavedBatchInfo& info, const std::vector<BatchEntry>& entries);

// DataLoss: the text is not JSON, or not of this form. Positions of arrays are not checked here.
absl::StatusOr<BatchHeader> BatchHeaderFromJson(const char* text, size_t bytes);

// stop, length, aborted, cut; "none" for a response that has not ended.
std::string FinishReasonName(FinishReason reason);

}  // namespace tandem
