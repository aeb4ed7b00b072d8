#include "controller/store/trackers.h"

#include <cmath>
#include <cstdio>
#include <fstream>
#include <string>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "common/base/log.h"

namespace tandem {

void ConsoleTracker::Log(int64_t step, const Metrics& metrics) {
  std::string line = fmt::format("step:{}", step);
  for (const auto& [name, value] : metrics) line += fmt::format(" - {}:{:.6g}", name, value);
  const MutexLock lock(out_mutex_);
  out_ << line << '\n' << std::flush;
}

absl::Status ConsoleTracker::Flush() {
  const MutexLock lock(out_mutex_);
  out_.flush();
  return absl::OkStatus();
}

JsonlTracker::JsonlTracker(std::string path) : path_(std::move(path)), file_(path_, "metrics") {}

void JsonlTracker::Log(int64_t step, const Metrics& metrics) {
  nlohmann::ordered_json data = nlohmann::ordered_json::object();
  for (const auto& [name, value] : metrics) {
    // JSON has no NaN: null keeps the line valid and the gap visible.
    data[name] = std::isfinite(value) ? nlohmann::ordered_json(value) : nlohmann::ordered_json();
  }
  nlohmann::ordered_json line;
  line["step"] = step;
  line["data"] = std::move(data);
  const MutexLock lock(file_mutex_);
  file_.Append(line.dump() + '\n');
}

absl::Status JsonlTracker::Flush() {
  const MutexLock lock(file_mutex_);
  return file_.Flush();
}

void JsonlTracker::Rewind(int64_t step) {
  const MutexLock lock(file_mutex_);
  const auto report = [&] {
    LogWarn("cannot rewrite {}: what it has of steps after {} stays", path_, step);
  };
  const std::string kept_path = path_ + ".kept";
  {
    std::ifstream old(path_);
    std::ofstream kept(kept_path, std::ios::trunc);
    for (std::string line; std::getline(old, line);) {
      const auto json = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
      const bool whole = json.is_object() && json.contains("step") && json["step"].is_number();
      if (whole && json["step"].get<int64_t>() <= step) kept << line << '\n';
    }
    kept.flush();
    if (!kept) return report();  // the old file is unchanged
  }
  // The file is made durable before the rename, so that even after a power failure the name refers
  // to the complete old file or to the complete new one.
  const int fd = open(kept_path.c_str(), O_WRONLY | O_CLOEXEC);
  const bool durable = fd >= 0 && fsync(fd) == 0;
  if (fd >= 0) close(fd);
  if (!durable) return report();
  file_.Close();
  if (std::rename(kept_path.c_str(), path_.c_str()) != 0) report();
}

}  // namespace tandem
