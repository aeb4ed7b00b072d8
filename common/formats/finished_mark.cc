#include "common/formats/finished_mark.h"

#include <fstream>

namespace tandem {

std::optional<int64_t> ReadFinishedStep(const std::string& checkpoint_folder) {
  int64_t step = -1;
  std::ifstream(checkpoint_folder + "/" + kFinishedMark) >> step;
  return step >= 0 ? std::optional(step) : std::nullopt;
}

bool HasMadeAllSteps(std::optional<int64_t> finished_step, int64_t total_steps) {
  return finished_step && *finished_step >= total_steps;
}

}  // namespace tandem
