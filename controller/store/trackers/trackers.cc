#include "controller/store/trackers/trackers.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "common/base/log.h"
#include "common/base/status.h"
#include "common/formats/file_io.h"
#include "common/formats/files.h"
#include "controller/store/run_file.h"

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

enum class LineFate { kStays, kUndone, kTorn };

// kTorn: what a kill has left of a line.
LineFate FateOf(const std::string& line, int64_t step) {
  const auto json = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
  const bool whole = json.is_object() && json.contains("step") && json["step"].is_number_integer();
  if (!whole) return LineFate::kTorn;
  return json["step"].get<int64_t>() <= step ? LineFate::kStays : LineFate::kUndone;
}

// Calls `use` with each line and whether a line break ends it. Returns the errno of a failure to
// read, 0: these were all. A file that does not exist has none.
int ForEachLine(const std::string& path,
                const std::function<void(const std::string& line, bool ends)>& use) {
  errno = 0;
  std::ifstream file(path);
  if (!file.is_open()) {
    const int error = errno == 0 ? EIO : errno;
    return error == ENOENT || error == ENOTDIR ? 0 : error;
  }
  std::string line;
  while (errno = 0, std::getline(file, line)) use(line, !file.eof());
  if (file.eof() && !file.bad()) return 0;
  return errno == 0 ? EIO : errno;
}

// Appends lines to a file. Unless Keep is called, the destructor removes them again.
class AddedLines {
 public:
  explicit AddedLines(std::string path)
      : path_(std::move(path)),
        existed_(PathExists(path_)),
        fd_(open(path_.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644)) {
    begin_ = end_ = fd_ < 0 ? -1 : lseek(fd_, 0, SEEK_END);
    if (begin_ < 0) error_ = errno;
  }
  ~AddedLines() {
    if (fd_ < 0) return;
    if (!kept_ && !existed_) unlink(path_.c_str());
    if (!kept_ && existed_ && begin_ >= 0 && ftruncate(fd_, begin_) != 0) {
      LogWarn("{} still has added lines that cannot be removed: {}", path_, std::strerror(errno));
    }
    close(fd_);
  }
  AddedLines(const AddedLines&) = delete;
  AddedLines& operator=(const AddedLines&) = delete;

  const std::string& path() const { return path_; }
  void Add(const std::string& line) {
    buffer_ += line + '\n';
    if (buffer_.size() >= kWriteAt) WriteOut();
  }
  // The first `bytes` of the file `path`.
  void AddFirst(const std::string& path, int64_t bytes) {
    std::ifstream file(path, std::ios::binary);
    std::string part(kWriteAt, '\0');
    for (int64_t left = bytes; left > 0 && error_ == 0;) {
      const int64_t some = std::min(left, std::ssize(part));
      if (!file.read(part.data(), some)) error_ = EIO;
      buffer_.append(part, 0, static_cast<size_t>(some));
      WriteOut();
      left -= some;
    }
  }
  // So that even after a power failure the file has them. The first failure's errno; 0: none.
  int Sync() {
    WriteOut();
    if (error_ == 0 && fsync(fd_) != 0) error_ = errno;
    return error_;
  }
  void Keep() { kept_ = true; }

 private:
  static constexpr size_t kWriteAt = 1 << 16;

  void WriteOut() {
    if (error_ != 0) return;
    error_ = WriteAll(fd_, buffer_, end_).error;
    end_ += static_cast<int64_t>(buffer_.size());
    buffer_.clear();
  }

  const std::string path_;
  const bool existed_;
  const int fd_;
  int64_t begin_ = 0, end_ = 0;
  std::string buffer_;
  int error_ = 0;
  bool kept_ = false;
};

// Replaces the file by one without its lines of steps after `step`, which are then at the end of
// `undone_path`, a file that is made for the first such line. A file without such lines stays as it
// is. Returns whether it was replaced.
absl::StatusOr<bool> MoveUndoneLines(const std::string& path,
                                     int64_t step,
                                     const std::string& undone_path) {
  const std::string kept_path = path + ".kept";
  unlink(kept_path.c_str());  // of a process that was killed
  std::optional<AddedLines> kept, undone;
  int64_t same_bytes = 0;  // of the lines before the first one that changes
  const int error = ForEachLine(path, [&](const std::string& line, bool ends) {
    const LineFate fate = FateOf(line, step);
    // A last line without its line break gets one.
    if (!kept && ends && fate == LineFate::kStays) {
      same_bytes += std::ssize(line) + 1;
      return;
    }
    if (!kept) {
      kept.emplace(kept_path);
      kept->AddFirst(path, same_bytes);
    }
    if (fate == LineFate::kTorn) return;
    if (fate == LineFate::kUndone && !undone) undone.emplace(undone_path);
    (fate == LineFate::kStays ? *kept : *undone).Add(line);
  });
  if (error != 0) return RunFileError(path, "reading", error);
  if (!kept) return false;
  // Only once all lines are safe in one of two other files does the file change.
  for (AddedLines* lines : {&*kept, undone ? &*undone : nullptr}) {
    const int failed = lines == nullptr ? 0 : lines->Sync();
    if (failed != 0) return RunFileError(lines->path(), "writing", failed);
  }
  if (std::rename(kept_path.c_str(), path.c_str()) != 0) {
    return RunFileError(path, "replacing", errno);
  }
  kept->Keep();
  if (undone) undone->Keep();
  return true;
}

}  // namespace

absl::Status JsonlTracker::Rewind(int64_t step) {
  const MutexLock lock(file_mutex_);
  TANDEM_RETURN_IF_ERROR(file_.Flush());
  TANDEM_ASSIGN_OR_RETURN(const bool replaced, MoveUndoneLines(path_, step, UndonePath(path_)));
  if (replaced) file_.Close();
  return absl::OkStatus();
}

}  // namespace tandem
