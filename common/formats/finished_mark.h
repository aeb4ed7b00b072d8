// The mark in a checkpoint folder that its run has nothing left to do.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace tandem {

inline constexpr char kFinishedMark[] = "finished";  // the file's name; it holds the step

// The step after which the run was finished; nullopt: it is not, or the mark cannot be read.
std::optional<int64_t> ReadFinishedStep(const std::string& checkpoint_folder);

// Whether a start that asks for `total_steps` finds them made by a run with that mark. 0: their
// number is not known before the start, as with a limit of time; any finished run has made them.
bool HasMadeAllSteps(std::optional<int64_t> finished_step, int64_t total_steps);

}  // namespace tandem
