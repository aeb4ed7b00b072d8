#include "controller/partial_rollout/round_journal.h"

#include <cerrno>
#include <filesystem>
#include <iterator>
#include <string_view>
#include <system_error>
#include <vector>

#include <fcntl.h>
#include <nlohmann/json.hpp>
#include <unistd.h>
#include <xxhash.h>

#include "common/base/json_integer.h"
#include "common/base/json_nesting.h"
#include "common/base/status.h"
#include "common/formats/file_io.h"
#include "common/formats/files.h"
#include "controller/store/run_file.h"

namespace tandem {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kFormat = 1;

// A line with the object and, as its last key, the object's digest.
std::string Sealed(const Json& json) {
  const std::string text = json.dump();
  return fmt::format("{},\"xxh3\":\"{:016x}\"}}\n",
                     std::string_view(text).substr(0, text.size() - 1),
                     XXH3_64bits(text.data(), text.size()));
}

// The object of a line that Sealed made, its newline included; discarded for any other line.
Json Unsealed(const std::string& line) {
  if (!CheckJsonNesting(line).ok()) return Json(Json::value_t::discarded);
  Json json = Json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return Json(Json::value_t::discarded);
  json.erase("xxh3");
  return Sealed(json) == line ? json : Json(Json::value_t::discarded);
}

std::string HeaderLine(const std::string& run) {
  return Sealed({{"format", kFormat}, {"journal", "partial rollout cuts"}, {"run", run}});
}

// Lines keep their newlines; the last one may have none.
std::vector<std::string> SplitLines(const std::string& text) {
  std::vector<std::string> lines;
  for (size_t at = 0; at < text.size();) {
    const size_t end = text.find('\n', at);
    const size_t next = end == std::string::npos ? text.size() : end + 1;
    lines.push_back(text.substr(at, next - at));
    at = next;
  }
  return lines;
}

}  // namespace

RoundJournal::~RoundJournal() {
  if (fd_ >= 0) close(fd_);
}

std::string RoundJournal::ToLine(const Place& place, const Entry& entry) {
  Json samples = Json::array();
  for (const auto& [id, tokens] : entry.points) samples.push_back({id, tokens});
  return Sealed({{"step", place.first},
                 {"round", place.second},
                 {"version", entry.version},
                 {"samples", std::move(samples)}});
}

std::optional<std::pair<RoundJournal::Place, RoundJournal::Entry>> RoundJournal::ParseLine(
    const std::string& line) try {
  const Json json = Unsealed(line);
  if (json.is_discarded()) return std::nullopt;
  Entry entry{.version = IntegerOf<int64_t>(json.at("version"))};
  for (const Json& sample : json.at("samples")) {
    entry.points[IntegerOf<uint64_t>(sample.at(0))] = IntegerOf<int64_t>(sample.at(1));
  }
  return std::pair{Place{IntegerOf<int64_t>(json.at("step")), IntegerOf<int64_t>(json.at("round"))},
                   std::move(entry)};
} catch (const nlohmann::json::exception&) {
  return std::nullopt;
}

absl::StatusOr<std::unique_ptr<RoundJournal>> RoundJournal::Open(const std::string& path,
                                                                 const std::string& run,
                                                                 Writer writer) {
  std::unique_ptr<RoundJournal> journal(new RoundJournal(path, run, std::move(writer)));
  std::error_code error;
  if (std::filesystem::exists(path, error)) TANDEM_RETURN_IF_ERROR(journal->Read());
  TANDEM_RETURN_IF_ERROR(journal->Rewrite());
  return journal;
}

std::unique_ptr<RoundJournal> RoundJournal::OpenUnread(const std::string& path,
                                                       const std::string& run) {
  return std::unique_ptr<RoundJournal>(new RoundJournal(path, run, AppendDurably));
}

absl::Status RoundJournal::Read() {
  TANDEM_ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(path_));
  const std::vector<std::string> lines = SplitLines(text);
  if (lines.empty() || lines.front() != HeaderLine(run_)) {
    const std::string previous = UnusedPreviousPath(path_);
    if (std::rename(path_.c_str(), previous.c_str()) != 0) {
      return RunFileError(path_, "renaming", errno);
    }
    note_ = fmt::format(
        "{} belongs to another run and was renamed to {}: repeated steps may be "
        "interrupted elsewhere",
        path_, previous);
    return absl::OkStatus();
  }
  for (size_t i = 1; i < lines.size(); ++i) {
    std::optional<std::pair<Place, Entry>> entry = ParseLine(lines[i]);
    if (entry) {
      Learn(entry->first, std::move(entry->second));
      continue;
    }
    // A process that dies while it appends leaves an incomplete last line.
    const bool torn = i + 1 == lines.size() && lines[i].back() != '\n';
    if (!torn) {
      note_ = fmt::format(
          "line {} of {} is damaged: later rounds may be interrupted elsewhere "
          "when they are repeated",
          i + 1, path_);
    }
    break;
  }
  return absl::OkStatus();
}

void RoundJournal::Learn(const Place& place, Entry entry) {
  entries_.erase(entries_.lower_bound(place), entries_.end());
  entries_[place] = std::move(entry);
}

AppendResult RoundJournal::AppendDurably(int fd, const std::string& line, int64_t end) {
  return AppendOrCutBack(fd, line, end, Sync::kYes);
}

absl::Status RoundJournal::Rewrite() {
  std::string text = HeaderLine(run_);
  for (const auto& [place, entry] : entries_) text += ToLine(place, entry);
  TANDEM_RETURN_IF_ERROR(WriteFileAtomically(path_, text));
  const int fd = open(path_.c_str(), O_WRONLY | O_CLOEXEC);
  if (fd < 0) return RunFileError(path_, "opening", errno);
  if (fd_ >= 0) close(fd_);
  fd_ = fd;
  end_ = std::ssize(text);
  return absl::OkStatus();
}

absl::Status RoundJournal::WriteLine(const std::string& line) {
  if (fd_ < 0) TANDEM_RETURN_IF_ERROR(Rewrite());
  const AppendResult append = writer_(fd_, line, end_);
  if (append.error == 0) {
    end_ += std::ssize(line);
    return absl::OkStatus();
  }
  if (append.torn) {  // the next line must not follow a part of this one
    close(fd_);
    fd_ = -1;
  }
  return RunFileError(path_, "writing", append.error);
}

absl::Status RoundJournal::Append(int64_t step,
                                  int64_t round,
                                  int64_t version,
                                  const InterruptionPoints& points) {
  const Place place{step, round};
  Entry entry{.version = version, .points = points};
  const auto known = entries_.find(place);
  if (known != entries_.end() && known->second == entry) return absl::OkStatus();
  TANDEM_RETURN_IF_ERROR(WriteLine(ToLine(place, entry)));
  Learn(place, std::move(entry));
  return absl::OkStatus();
}

std::optional<InterruptionPoints> RoundJournal::Find(int64_t step,
                                                     int64_t round,
                                                     int64_t version) const {
  const auto found = entries_.find(Place{step, round});
  if (found == entries_.end() || found->second.version != version) return std::nullopt;
  return found->second.points;
}

void RoundJournal::ForgetFrom(int64_t step, int64_t round) {
  entries_.erase(entries_.lower_bound(Place{step, round}), entries_.end());
}

absl::Status RoundJournal::Prune(int64_t step) {
  const auto kept = entries_.lower_bound(Place{step + 1, 0});
  if (kept == entries_.begin()) return absl::OkStatus();
  entries_.erase(entries_.begin(), kept);
  return Rewrite();
}

absl::Status RoundJournal::Clear() {
  entries_.clear();
  return Rewrite();
}

}  // namespace tandem
