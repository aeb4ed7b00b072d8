#include "controller/store/trackers.h"

#include <cmath>
#include <cstdio>
#include <filesystem>
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

std::string JsonlTracker::UndonePath(const std::string& path) {
  return std::filesystem::path(path).replace_extension(".undone.jsonl").string();
}

namespace {

// So that even after a power failure the file has what was written.
bool MakeDurable(const std::string& path) {
  const int fd = open(path.c_str(), O_WRONLY | O_CLOEXEC);
  const bool durable = fd >= 0 && fsync(fd) == 0;
  if (fd >= 0) close(fd);
  return durable;
}

// Copies each line of the file to `kept` or, if its step is after `step`, to `undone_path`, a file
// that is made for the first such line. False: something could not be written.
bool DivideLines(const std::string& path,
                 int64_t step,
                 const std::string& kept_path,
                 const std::string& undone_path) {
  std::ifstream old(path);
  std::ofstream kept(kept_path, std::ios::trunc), undone;
  for (std::string line; std::getline(old, line);) {
    const auto json = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    const bool whole = json.is_object() && json.contains("step") && json["step"].is_number();
    if (!whole) continue;
    const bool valid = json["step"].get<int64_t>() <= step;
    if (!valid && !undone.is_open()) undone.open(undone_path, std::ios::app);
    (valid ? kept : undone) << line << '\n';
  }
  kept.flush();
  if (!kept || !MakeDurable(kept_path)) return false;
  if (!undone.is_open()) return true;
  undone.flush();
  return undone && MakeDurable(undone_path);
}

}  // namespace

void JsonlTracker::Rewind(int64_t step) {
  const MutexLock lock(file_mutex_);
  // Only once all lines are safe in one of two other files does the file change.
  const std::string kept_path = path_ + ".kept";
  if (DivideLines(path_, step, kept_path, UndonePath(path_))) {
    file_.Close();
    if (std::rename(kept_path.c_str(), path_.c_str()) == 0) return;
  }
  LogWarn("cannot rewrite {}: what it has of steps after {} stays", path_, step);
}

}  // namespace tandem
