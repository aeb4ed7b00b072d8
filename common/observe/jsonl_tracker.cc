#include "common/observe/jsonl_tracker.h"

#include <cmath>
#include <utility>

#include <nlohmann/json.hpp>

#include "common/base/log.h"

namespace tandem {

JsonlTracker::JsonlTracker(std::string path)
    : path_(std::move(path)), file_(path_, std::ios::app) {}

void JsonlTracker::Log(int64_t step, const Metrics& metrics) {
  nlohmann::ordered_json data = nlohmann::ordered_json::object();
  for (const auto& [name, value] : metrics) {
    // JSON has no NaN: null keeps the line readable and the gap visible.
    data[name] = std::isfinite(value) ? nlohmann::ordered_json(value) : nlohmann::ordered_json();
  }
  nlohmann::ordered_json line;
  line["step"] = step;
  line["data"] = std::move(data);
  std::lock_guard lock(mutex_);
  file_ << line.dump() << '\n' << std::flush;
  if (!file_ && !std::exchange(reported_, true)) {
    spdlog::warn("cannot write metrics to {}: the run goes on without this file", path_);
  }
}

void JsonlTracker::Flush() {
  std::lock_guard lock(mutex_);
  file_.flush();
}

}  // namespace tandem
