// The file in a checkpoint folder that marks its run as finished.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace tandem {

inline constexpr char kFinishedMark[] = "finished";  // the file's name; it holds the step

// The step after which the run was finished; nullopt: it is not, or the mark cannot be read.
std::optional<int64_t> ReadFinishedStep(const std::string& checkpoint_folder);

// Whether the finished run made at least `total_steps` steps. 0: the number is not known before the
// start, as with a time limit; any finished run has made them.
bool HasMadeAllSteps(std::optional<int64_t> finished_step, int64_t total_steps);

}  // namespace tandem
