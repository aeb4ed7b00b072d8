#include "controller/store/checkpoint_index.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <nlohmann/json.hpp>
#include <sys/stat.h>

#include "common/base/disk_refusal.h"
#include "common/base/json_integer.h"
#include "common/base/json_nesting.h"
#include "common/base/log.h"
#include "common/base/status.h"
#include "common/formats/files.h"
#include "common/formats/finished_mark.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr char kStateFile[] = "controller_state.json";
constexpr char kLatest[] = "latest";
constexpr char kCheckpointPrefix[] = "step_";
constexpr char kTemporary[] = ".tmp";
constexpr char kReplaced[] = ".replaced";
constexpr int kFormat = 1;

absl::Status FromError(const std::string& what, const std::error_code& error) {
  return MarkedByErrno(MakeStatus(IoErrorCode(error.value()), "{}: {}", what, error.message()),
                       error.value());
}

// The N of "step_N"; nullopt for any other name.
std::optional<int64_t> ParseStep(const std::string& name) {
  if (name.rfind(kCheckpointPrefix, 0) != 0) return std::nullopt;
  int64_t step = 0;
  const char* begin = name.data() + std::strlen(kCheckpointPrefix);
  const char* end = name.data() + name.size();
  const auto [stop, error] = std::from_chars(begin, end, step);
  if (error != std::errc() || stop != end || step < 0) return std::nullopt;
  return step;
}

// For step_N.replaced.tmp: its former name step_N, unless its successor has that name by now. ""
// for other folders.
std::string LostName(const fs::path& path) {
  const std::string name = path.filename().string();
  const std::string ending = std::string(kReplaced) + kTemporary;
  if (!name.ends_with(ending)) return "";
  const std::string lost = name.substr(0, name.size() - ending.size());
  std::error_code error;
  return fs::exists(path.parent_path() / lost, error) ? "" : lost;
}

// All folders step_N in `dir`, complete or not, oldest first; one that has lost its name counts.
std::vector<CheckpointEntry> Folders(const std::string& dir) {
  std::vector<CheckpointEntry> entries;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(dir, error)) {
    const std::string lost = LostName(entry.path());
    const std::optional<int64_t> step =
        ParseStep(lost.empty() ? entry.path().filename().string() : lost);
    if (step) entries.push_back({.step = *step, .path = entry.path().string()});
  }
  std::sort(entries.begin(), entries.end(),
            [](const auto& a, const auto& b) { return a.step < b.step; });
  return entries;
}

absl::StatusOr<std::map<std::string, int64_t>> ListFiles(const std::string& path) {
  std::map<std::string, int64_t> files;
  std::error_code error;
  for (fs::recursive_directory_iterator it(path, error), end; !error && it != end;
       it.increment(error)) {
    if (!it->is_regular_file(error)) continue;
    const std::string name = fs::path(it->path()).lexically_relative(path).string();
    if (name != kStateFile) files[name] = static_cast<int64_t>(it->file_size(error));
  }
  if (error) return FromError("cannot list " + path, error);
  return files;
}

Json InputsJson(const std::vector<PinnedInput>& inputs) {
  Json json = Json::array();
  for (const PinnedInput& input : inputs) {
    json.push_back({{"key", input.key},
                    {"path", input.path},
                    {"bytes", input.bytes},
                    {"digest", input.digest}});
  }
  return json;
}

std::vector<PinnedInput> InputsFromJson(const Json& json) {
  std::vector<PinnedInput> inputs;
  for (const Json& input : json) {
    inputs.push_back({.key = input.at("key").get<std::string>(),
                      .path = input.at("path").get<std::string>(),
                      .bytes = IntegerOf<int64_t>(input.at("bytes")),
                      .digest = input.at("digest").get<std::string>()});
  }
  return inputs;
}

Json StateJson(const ControllerState& state) {
  Json json;
  json["format"] = kFormat;
  json["step"] = state.step;
  json["version"] = state.version;
  json["data"] = {{"epoch", state.data.epoch}, {"row", state.data.row}};
  json["store_step"] = state.store_step;
  json["world_size"] = state.world_size;
  json["moments"] = state.moments;
  json["skipped_in_a_row"] = state.skipped_in_a_row;
  if (state.kl_coef) json["kl_coef"] = *state.kl_coef;
  if (state.planned_steps > 0) json["planned_steps"] = state.planned_steps;
  if (!state.inputs.empty()) json["inputs"] = InputsJson(state.inputs);
  json["files"] = state.files;
  json["config"] = state.config_yaml;
  return json;
}

// Turns nlohmann's exceptions about wrong types into a status.
absl::StatusOr<ControllerState> FromJson(const std::string& path, const std::string& text) try {
  TANDEM_RETURN_IF_ERROR(Annotate(CheckJsonNesting(text), path));
  const Json json = Json::parse(text);
  if (json.at("format") != kFormat) {
    return MakeStatus(absl::StatusCode::kDataLoss, "{}: format {} is not known here, {} is", path,
                      json.at("format").dump(), kFormat);
  }
  ControllerState state;
  state.step = IntegerOf<int64_t>(json.at("step"));
  state.version = IntegerOf<int64_t>(json.at("version"));
  state.data.epoch = IntegerOf<uint64_t>(json.at("data").at("epoch"));
  state.data.row = IntegerOf<int64_t>(json.at("data").at("row"));
  state.store_step = IntegerOf<int64_t>(json.at("store_step"));
  state.world_size = IntegerOf<int>(json.at("world_size"));
  state.moments = json.at("moments").get<bool>();
  state.skipped_in_a_row = json.value("skipped_in_a_row", int64_t{0});
  if (json.contains("kl_coef")) state.kl_coef = json.at("kl_coef").get<double>();
  state.planned_steps = json.value("planned_steps", int64_t{0});
  if (json.contains("inputs")) state.inputs = InputsFromJson(json.at("inputs"));
  state.files = json.at("files").get<std::map<std::string, int64_t>>();
  state.config_yaml = json.at("config").get<std::string>();
  return state;
} catch (const nlohmann::json::exception& e) {
  return MakeStatus(absl::StatusCode::kDataLoss, "{} is damaged: {}", path, e.what());
}

// A file system and a mount of it. Two mounts of one file system do not take a rename either.
struct MountOf {
  uint32_t major = 0, minor = 0;
  uint64_t mount = 0;  // 0: an old kernel does not say

  bool operator==(const MountOf&) const = default;
};

std::optional<MountOf> FindMount(const std::string& folder) {
  struct statx found {};
  if (statx(AT_FDCWD, folder.c_str(), 0, STATX_MNT_ID, &found) != 0) return std::nullopt;
  MountOf mount{.major = found.stx_dev_major, .minor = found.stx_dev_minor};
  if ((found.stx_mask & STATX_MNT_ID) != 0) mount.mount = found.stx_mnt_id;
  return mount;
}

}  // namespace

int FolderRenames::Rename(const std::string& from, const std::string& to) const {
  return std::rename(from.c_str(), to.c_str()) == 0 ? 0 : errno;
}

int FolderRenames::Exchange(const std::string& a, const std::string& b) const {
  return renameat2(AT_FDCWD, a.c_str(), AT_FDCWD, b.c_str(), RENAME_EXCHANGE) == 0 ? 0 : errno;
}

bool FolderRenames::CanMove(const std::string& from_folder, const std::string& to_folder) const {
  const std::optional<MountOf> from = FindMount(from_folder);
  const std::optional<MountOf> to = FindMount(to_folder);
  return !from || !to || *from == *to;
}

absl::Status MoveAside(const FolderRenames& renames,
                       const std::string& from,
                       const std::string& to) {
  if (PathExists(to)) {
    return FailedPrecondition("cannot move {} to {}, which exists: move one of them away", from,
                              to);
  }
  const int error = renames.Rename(from, to);
  if (error == 0) return absl::OkStatus();
  return FromError(fmt::format("cannot move {} to {}", from, to),
                   std::error_code(error, std::generic_category()));
}

const FolderRenames& SystemRenames() {
  static const FolderRenames renames;
  return renames;
}

absl::StatusOr<CheckpointIndex> CheckpointIndex::Open(const std::string& dir,
                                                      int64_t keep,
                                                      const FolderRenames& renames) {
  TANDEM_RETURN_IF_ERROR(MakeFolder(dir));
  std::error_code error;
  CheckpointIndex index(dir, keep, renames);
  std::vector<fs::path> unfinished;
  for (const auto& entry : fs::directory_iterator(dir, error)) {
    if (entry.path().extension() == kTemporary &&
        entry.path().filename().string().rfind(kCheckpointPrefix, 0) == 0) {
      unfinished.push_back(entry.path());
    }
  }
  for (const fs::path& path : unfinished) {
    // A repeated step was replacing its checkpoint, and did not come to its end: the old one is
    // still complete.
    if (const std::string lost = LostName(path); !lost.empty()) {
      fs::rename(path, path.parent_path() / lost, error);
      continue;
    }
    LogInfo("removing unfinished checkpoint {}", path.string());
    fs::remove_all(path, error);
  }
  return index;
}

absl::StatusOr<std::string> CheckpointIndex::Begin(int64_t step) {
  const std::string path = fmt::format("{}/{}{}{}", dir_, kCheckpointPrefix, step, kTemporary);
  std::error_code error;
  fs::remove(dir_ + "/" + kFinishedMark, error);
  fs::remove_all(path, error);
  fs::create_directories(path, error);
  if (error) return FromError("cannot make the folder " + path, error);
  return path;
}

absl::StatusOr<std::string> CheckpointIndex::PutInPlace(const std::string& temporary,
                                                        const std::string& final_path) const {
  const auto failed = [&](int error) {
    return FromError("cannot rename " + temporary, std::error_code(error, std::generic_category()));
  };
  std::error_code ignored;
  if (!fs::exists(final_path, ignored)) {
    const int error = renames_->Rename(temporary, final_path);
    return error == 0 ? absl::StatusOr<std::string>("") : failed(error);
  }
  // A repeated step replaces its checkpoint, at once where the file system can.
  const int error = renames_->Exchange(temporary, final_path);
  if (error == 0) return temporary;
  if (error != EINVAL && error != ENOSYS && error != ENOTSUP) return failed(error);
  const std::string replaced = final_path + kReplaced + kTemporary;
  if (const int first = renames_->Rename(final_path, replaced); first != 0) return failed(first);
  if (const int second = renames_->Rename(temporary, final_path); second != 0) {
    // If this fails as well, the old checkpoint is known by its other name (Folders).
    renames_->Rename(replaced, final_path);
    return failed(second);
  }
  return replaced;
}

absl::StatusOr<std::string> CheckpointIndex::Commit(int64_t step, ControllerState state) {
  const std::string name = fmt::format("{}{}", kCheckpointPrefix, step);
  const std::string final_path = dir_ + "/" + name;
  const std::string temporary = final_path + kTemporary;
  TANDEM_ASSIGN_OR_RETURN(state.files, ListFiles(temporary));
  const Json json = StateJson(state);
  TANDEM_RETURN_IF_ERROR(WriteFileAtomically(temporary + "/" + kStateFile, json.dump(1) + "\n"));
  std::error_code error;
  for (fs::recursive_directory_iterator it(temporary, error), end; !error && it != end;
       it.increment(error)) {
    if (it->is_directory()) TANDEM_RETURN_IF_ERROR(SyncDirectory(it->path().string()));
  }
  TANDEM_RETURN_IF_ERROR(SyncDirectory(temporary));

  TANDEM_ASSIGN_OR_RETURN(const std::string replaced, PutInPlace(temporary, final_path));
  TANDEM_RETURN_IF_ERROR(SyncDirectory(dir_));
  if (!replaced.empty()) fs::remove_all(replaced, error);
  // From here on the checkpoint counts, whatever else fails. On a full disk, `latest` may need the
  // space of the old ones.
  Prune();
  if (const absl::Status named = NameLatest(name); !named.ok()) {
    LogWarn("{} is complete, but {}/{} does not name it: {}", final_path, dir_, kLatest,
            std::string(named.message()));
  }
  return final_path;
}

absl::Status CheckpointIndex::NameLatest(const std::string& name) const {
  return WriteFileAtomically(dir_ + "/" + kLatest, name + "\n");
}

void CheckpointIndex::Abandon(int64_t step) {
  std::error_code ignored;
  fs::remove_all(fmt::format("{}/{}{}{}", dir_, kCheckpointPrefix, step, kTemporary), ignored);
}

std::vector<CheckpointEntry> CheckpointIndex::List() const {
  std::vector<CheckpointEntry> entries = Folders(dir_);
  std::erase_if(entries, [](const CheckpointEntry& entry) {
    std::error_code error;
    return !fs::exists(fs::path(entry.path) / kStateFile, error);
  });
  return entries;
}

FoundCheckpoint CheckpointIndex::FindNewest(const WholeCheck& whole) const {
  FoundCheckpoint found;
  std::vector<CheckpointEntry> entries = Folders(dir_);
  for (auto entry = entries.rbegin(); entry != entries.rend(); ++entry) {
    absl::Status status = ReadState(entry->path).status();
    if (status.ok() && whole) status = whole(entry->path);
    if (status.ok()) {
      found.newest = *entry;
      break;
    }
    found.left_out.push_back(fmt::format("{}: {}", entry->path, std::string(status.message())));
  }
  return found;
}

absl::StatusOr<ControllerState> CheckpointIndex::ReadState(const std::string& path) {
  const std::string file = path + "/" + kStateFile;
  std::error_code error;
  if (!fs::exists(file, error)) {
    return MakeStatus(absl::StatusCode::kNotFound, "{} is not a complete checkpoint: it has no {}",
                      path, kStateFile);
  }
  TANDEM_ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(file));
  TANDEM_ASSIGN_OR_RETURN(ControllerState state, FromJson(file, text));
  for (const auto& [name, bytes] : state.files) {
    const auto size = fs::file_size(path + "/" + name, error);
    if (error || static_cast<int64_t>(size) != bytes) {
      return MakeStatus(absl::StatusCode::kDataLoss, "{}/{}: {}, {} bytes were written", path, name,
                        error ? "missing" : fmt::format("{} bytes long", size), bytes);
    }
  }
  return state;
}

std::string CheckpointIndex::HfExport(const std::string& path) {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(path, error)) {
    if (fs::exists(entry.path() / "config.json", error)) return entry.path().string();
  }
  return fs::exists(path + "/config.json", error) ? path : "";
}

absl::Status CheckpointIndex::MarkFinished(int64_t step) {
  return WriteFileAtomically(dir_ + "/" + kFinishedMark, fmt::format("{}\n", step));
}

bool CheckpointIndex::HasAfter(int64_t step) const {
  const std::vector<CheckpointEntry> entries = Folders(dir_);
  return !entries.empty() && entries.back().step > step;
}

absl::Status CheckpointIndex::MoveAfter(int64_t step, const std::string& folder) {
  const auto move = [&](const fs::path& path) {
    return MoveAside(*renames_, path.string(), folder + "/" + path.filename().string());
  };
  for (const CheckpointEntry& entry : Folders(dir_)) {
    if (entry.step > step) TANDEM_RETURN_IF_ERROR(move(entry.path));
  }
  // Where `folder` has a `latest` already, an interrupted call has moved it, and the one that is
  // here names what remains.
  if (PathExists(dir_ + "/" + kLatest) && !PathExists(folder + "/" + kLatest)) {
    TANDEM_RETURN_IF_ERROR(move(fs::path(dir_) / kLatest));
  }
  if (const std::vector<CheckpointEntry> remaining = List(); !remaining.empty()) {
    TANDEM_RETURN_IF_ERROR(
        NameLatest(fmt::format("{}{}", kCheckpointPrefix, remaining.back().step)));
  }
  TANDEM_RETURN_IF_ERROR(SyncDirectory(folder));
  TANDEM_RETURN_IF_ERROR(SyncDirectory(dir_));
  if (!PathExists(dir_ + "/" + kFinishedMark)) return absl::OkStatus();
  TANDEM_RETURN_IF_ERROR(move(fs::path(dir_) / kFinishedMark));
  TANDEM_RETURN_IF_ERROR(SyncDirectory(folder));
  return SyncDirectory(dir_);
}

void CheckpointIndex::Prune() const {
  if (keep_ <= 0) return;
  std::vector<CheckpointEntry> good;
  for (CheckpointEntry& entry : List()) {
    if (ReadState(entry.path).ok()) good.push_back(std::move(entry));
  }
  std::error_code error;
  for (size_t i = 0; i + static_cast<size_t>(keep_) < good.size(); ++i) {
    // Renamed first, so that a kill during the removal leaves no incomplete checkpoint under the
    // name.
    const std::string doomed = good[i].path + kTemporary;
    fs::rename(good[i].path, doomed, error);
    fs::remove_all(doomed, error);
    if (error) LogWarn("cannot remove old checkpoint {}: {}", good[i].path, error.message());
  }
}

}  // namespace tandem
