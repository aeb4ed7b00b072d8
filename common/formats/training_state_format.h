// Names inside training-state files, shared by their writer and reader.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

namespace tandem {

// Raised when a reader of the old number could misread the new files.
inline constexpr int64_t kTrainingStateFormat = 2;
inline constexpr char kTrainingStatePrefix[] = "training_state-";
// Key of the header's JSON in the safetensors metadata.
inline constexpr char kTrainingStateKey[] = "tandem_training_state";
// Key of TrainingStateDigest of that JSON.
inline constexpr char kTrainingStateDigestKey[] = "tandem_training_state_xxh3";
// Suffixes of a tensor's parts, in the order of TrainingStateReader::Part.
inline constexpr std::array<const char*, 3> kTrainingStateParts = {"/master", "/exp_avg",
                                                                   "/exp_avg_sq"};

// XXH3 of 128 bits, as 32 hexadecimal digits. Of a part: its rows as they lie in the file. `read`
// (may be null) is told of every range of at most kRowRangeBytes once it was read.
std::string TrainingStateDigest(const void* data,
                                size_t bytes,
                                const std::function<void(const void*, size_t)>& read = nullptr);

}  // namespace tandem
