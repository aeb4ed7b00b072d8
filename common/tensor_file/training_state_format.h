// Names inside training-state files, shared by their writer and reader.
#pragma once

#include <array>
#include <cstdint>

namespace tandem {

// Raised when a reader of the old number could misread the new files.
inline constexpr int64_t kTrainingStateFormat = 1;
inline constexpr char kTrainingStatePrefix[] = "training_state-";
// Key of the header's JSON in the safetensors metadata.
inline constexpr char kTrainingStateKey[] = "tandem_training_state";
// Suffixes of a tensor's parts, in the order of TrainingStateReader::Part.
inline constexpr std::array<const char*, 3> kTrainingStateParts = {"/master", "/exp_avg",
                                                                   "/exp_avg_sq"};

}  // namespace tandem
