#include "tests/gpu/model_bench/figures.h"

#include <cmath>
#include <cstdio>

#include "common/base/status.h"

namespace tandem::testing {

void Figures::Add(const std::string& name, double value, const std::string& unit) {
  std::printf("figure %s %.4g %s\n", name.c_str(), value, unit.c_str());
  std::fflush(stdout);  // what comes later may be ended by its time
  added_.push_back({name, value, unit});
}

void Figures::NotRun(const std::string& name, const std::string& reason) {
  std::printf("not_run %s %s\n", name.c_str(), reason.c_str());
  std::fflush(stdout);
  not_run_.push_back(name);
  last_reason_ = reason;
}

absl::Status Figures::Check() const {
  for (const Figure& figure : added_) {
    if (std::isfinite(figure.value) && figure.value > 0) continue;
    return Internal("the figure {} is {} {}: no speed", figure.name, figure.value, figure.unit);
  }
  if (!added_.empty()) return absl::OkStatus();
  return absl::UnavailableError(last_reason_);
}

}  // namespace tandem::testing
