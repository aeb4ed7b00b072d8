#include "common/formats/digest_cache.h"

#include <utility>

#include <nlohmann/json.hpp>
#include <sys/stat.h>

#include "common/base/clock.h"
#include "common/base/json_integer.h"
#include "common/base/status.h"
#include "common/formats/files.h"

namespace tandem {
namespace {

// Longer than the resolution of any file system's times.
constexpr int64_t kSettledSeconds = 2;

}  // namespace

std::optional<DigestCache::Stamp> DigestCache::ReadStamp(const std::string& path) {
  struct stat file {};
  if (stat(path.c_str(), &file) != 0) return std::nullopt;
  return Stamp{.numbers = {static_cast<int64_t>(file.st_dev), static_cast<int64_t>(file.st_ino),
                           file.st_size, file.st_mtim.tv_sec, file.st_mtim.tv_nsec,
                           file.st_ctim.tv_sec, file.st_ctim.tv_nsec},
               .changed_seconds = file.st_ctim.tv_sec};
}

DigestCache::DigestCache(std::string path) : path_(std::move(path)) {
  const absl::StatusOr<std::string> text = ReadWholeFile(path_);
  if (!text.ok()) return;
  try {
    const nlohmann::json json = nlohmann::json::parse(*text);
    for (const auto& [file, entry] : json.items()) {
      known_[file] = {.stamp = IntegersOf<int64_t>(entry.at("stamp")),
                      .digest = {.bytes = IntegerOf<int64_t>(entry.at("bytes")),
                                 .hex = entry.at("digest").get<std::string>()}};
    }
  } catch (const nlohmann::json::exception&) {
    known_.clear();
  }
}

absl::StatusOr<std::vector<FileDigest>> DigestCache::Digest(const std::vector<std::string>& paths,
                                                            int threads) {
  std::vector<FileDigest> digests(paths.size());
  std::vector<std::string> unknown;
  std::vector<size_t> places;
  std::vector<std::optional<Stamp>> stamps;
  const int64_t now = absl::ToUnixSeconds(RealClock().WallNow());
  for (size_t i = 0; i < paths.size(); ++i) {
    const std::optional<Stamp> stamp = ReadStamp(paths[i]);
    const auto found = known_.find(paths[i]);
    if (stamp && found != known_.end() && found->second.stamp == stamp->numbers) {
      digests[i] = found->second.digest;
      used_[paths[i]] = found->second;
      continue;
    }
    unknown.push_back(paths[i]);
    places.push_back(i);
    stamps.push_back(stamp);
  }
  TANDEM_ASSIGN_OR_RETURN(const std::vector<FileDigest> fresh, DigestFiles(unknown, threads));
  for (size_t i = 0; i < fresh.size(); ++i) {
    digests[places[i]] = fresh[i];
    const bool is_settled = stamps[i] && stamps[i]->changed_seconds + kSettledSeconds < now;
    if (is_settled) used_[unknown[i]] = {.stamp = stamps[i]->numbers, .digest = fresh[i]};
  }
  return digests;
}

absl::Status DigestCache::Save() const {
  nlohmann::json json = nlohmann::json::object();
  for (const auto& [file, known] : used_) {
    json[file] = {
        {"stamp", known.stamp}, {"bytes", known.digest.bytes}, {"digest", known.digest.hex}};
  }
  return WriteFileAtomically(path_, json.dump(1) + "\n");
}

}  // namespace tandem
