#include <algorithm>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include <nlohmann/json.hpp>

#include "common/base/json_integer.h"
#include "common/base/json_nesting.h"
#include "common/base/status.h"
#include "common/formats/training_state.h"

namespace tandem {
namespace {

using Json = nlohmann::json;

absl::StatusOr<Json> HeaderOf(const SafetensorsFile& file) {
  const auto found = file.metadata().find(kTrainingStateKey);
  if (found == file.metadata().end()) {
    return InvalidArgument("{} is not a training state: it lacks the metadata {}", file.path(),
                           kTrainingStateKey);
  }
  const auto digest = file.metadata().find(kTrainingStateDigestKey);
  const bool whole =
      digest != file.metadata().end() &&
      digest->second == TrainingStateDigest(found->second.data(), found->second.size());
  TANDEM_RETURN_IF_ERROR(Annotate(CheckJsonNesting(found->second), file.path()));
  Json json = Json::parse(found->second, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) {
    return absl::DataLossError(file.path() + ": its training-state header is not JSON");
  }
  const Json format = json.contains("format") ? json["format"] : Json(nullptr);
  if (format != kTrainingStateFormat) {
    return InvalidArgument("{} has training-state format {}, this program reads {}", file.path(),
                           format.dump(), kTrainingStateFormat);
  }
  if (!whole) {
    return absl::DataLossError(fmt::format(
        "{} is damaged: its header is not what was written; resume from another checkpoint",
        file.path()));
  }
  return json;
}

// nlohmann throws on a missing key or a wrong type; this function catches it for all readers.
absl::StatusOr<TrainingStateHeader> ParseStateHeader(const Json& json, const std::string& path) {
  try {
    TrainingStateHeader header;
    header.rank = IntegerOf<int64_t>(json.at("rank"));
    header.world = IntegerOf<int64_t>(json.at("world"));
    header.step = IntegerOf<int64_t>(json.at("step"));
    header.optimizer_step = IntegerOf<int64_t>(json.at("optimizer_step"));
    header.has_moments = json.at("has_moments").get<bool>();
    header.has_masters = json.value("has_masters", true);
    header.extra = json.at("extra").get<std::map<std::string, std::string>>();
    return header;
  } catch (const Json::exception& error) {
    return absl::DataLossError(fmt::format("{}: malformed header: {}", path, error.what()));
  }
}

// The number of ranks that wrote the state, from the name of any of the files.
absl::StatusOr<int64_t> FindWorld(const std::string& dir) {
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(dir, error)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with(kTrainingStatePrefix) && name.ends_with(".safetensors")) {
      names.push_back(name);
    }
  }
  if (names.empty()) {
    return MakeStatus(absl::StatusCode::kNotFound,
                      "{} holds no {}* files: it is not a complete checkpoint", dir,
                      kTrainingStatePrefix);
  }
  std::sort(names.begin(), names.end());
  int64_t first_world = 0;
  for (const std::string& name : names) {
    long long rank = 0;
    long long world = 0;
    std::sscanf(name.c_str() + std::strlen(kTrainingStatePrefix), "%lld-of-%lld", &rank, &world);
    if (first_world == 0) first_world = world;
    if (world != first_world || rank < 0 || rank >= world ||
        name != TrainingStateFileName(rank, world)) {
      return InvalidArgument("{} mixes files of different runs: {} and {}; remove the stale ones",
                             dir, names[0], name);
    }
  }
  return first_world;
}

}  // namespace

absl::StatusOr<std::unique_ptr<const TrainingStateReader>> TrainingStateReader::Open(
    const std::string& dir,
    const std::vector<TensorSpec>& tensors,
    const std::vector<SavedSetting>& settings) {
  TANDEM_ASSIGN_OR_RETURN(const int64_t world, FindWorld(dir));
  std::unique_ptr<TrainingStateReader> reader(new TrainingStateReader(dir));
  for (int64_t rank = 0; rank < world; ++rank) {
    const absl::Status status = reader->OpenRank(rank, world);
    if (!status.ok()) return Annotate(status, fmt::format("state of rank {} of {}", rank, world));
  }
  TANDEM_RETURN_IF_ERROR(reader->CheckHeaders());
  TANDEM_RETURN_IF_ERROR(reader->CheckSettings(settings));
  TANDEM_RETURN_IF_ERROR(reader->CheckCoverage(tensors));
  return std::unique_ptr<const TrainingStateReader>(std::move(reader));
}

absl::Status TrainingStateReader::OpenRank(int64_t rank, int64_t world) {
  TANDEM_ASSIGN_OR_RETURN(auto file,
                          SafetensorsFile::Open(dir_ + "/" + TrainingStateFileName(rank, world)));
  TANDEM_ASSIGN_OR_RETURN(const Json json, HeaderOf(*file));
  TANDEM_ASSIGN_OR_RETURN(TrainingStateHeader header, ParseStateHeader(json, file->path()));
  if (header.rank != rank || header.world != world) {
    return InvalidArgument("{} was written by rank {} of {}: it was renamed or mixed up",
                           file->path(), header.rank, header.world);
  }
  const size_t parts = header.has_moments ? 3 : 1;
  const Json tensors = json.value("tensors", Json::object());
  for (const auto& [name, entry] : tensors.items()) {
    Piece piece;
    std::vector<int64_t> shape;
    try {
      piece = {IntegerOf<int64_t>(entry.at("row_begin")), IntegerOf<int64_t>(entry.at("rows")),
               files_.size(), entry.at("xxh3").get<std::vector<std::string>>()};
      shape = IntegersOf<int64_t>(entry.at("shape"));
    } catch (const Json::exception& error) {
      return absl::DataLossError(
          fmt::format("{}: tensor {}: {}", file->path(), name, error.what()));
    }
    Entry& known = entries_[name];
    if (known.shape.empty()) known.shape = shape;
    if (shape.empty() || shape != known.shape) {
      return InvalidArgument("{}: tensor {} has shape {}, in another rank {}", file->path(), name,
                             ShapeText(shape), ShapeText(known.shape));
    }
    shape[0] = piece.rows;
    if (piece.digests.size() != parts) {
      return absl::DataLossError(fmt::format("{}: tensor {} has {} digests, and needs {}",
                                             file->path(), name, piece.digests.size(), parts));
    }
    for (size_t part = 0; header.has_masters && part < parts; ++part) {
      const SafetensorsTensor* stored = file->Find(name + kTrainingStateParts[part]);
      if (stored == nullptr || stored->dtype != DType::kFloat32 || stored->shape != shape) {
        return absl::DataLossError(fmt::format("{}: {}{} is missing or not F32 {}", file->path(),
                                               name, kTrainingStateParts[part], ShapeText(shape)));
      }
    }
    if (piece.rows > 0) known.pieces.push_back(piece);
  }
  files_.push_back(std::move(file));
  headers_.push_back(std::move(header));
  return absl::OkStatus();
}

absl::Status TrainingStateReader::CheckHeaders() const {
  const TrainingStateHeader& first = headers_[0];
  for (const TrainingStateHeader& other : headers_) {
    if (other.step == first.step && other.optimizer_step == first.optimizer_step &&
        other.has_moments == first.has_moments && other.has_masters == first.has_masters) {
      continue;
    }
    return InvalidArgument(
        "{}: rank {} saved step {} (optimizer step {}), rank 0 step {} (optimizer step {}): the "
        "checkpoint is torn, resume from another",
        dir_, other.rank, other.step, other.optimizer_step, first.step, first.optimizer_step);
  }
  return absl::OkStatus();
}

absl::Status TrainingStateReader::CheckSettings(const std::vector<SavedSetting>& settings) const {
  for (const SavedSetting& setting : settings) {
    const auto found = headers_[0].extra.find(setting.key);
    const std::string& saved = found == headers_[0].extra.end() ? setting.absent : found->second;
    if (saved == setting.value) continue;
    if (!setting.remedy.empty()) {
      return InvalidArgument("{}: was saved with {} {}, and the run has {}: {}", dir_, setting.key,
                             saved, setting.value, setting.remedy);
    }
    return InvalidArgument(
        "{}: was saved with {}={}, and the run has {}: set it to {}, or start over with "
        "trainer.resume_mode=disable and another trainer.default_local_dir",
        dir_, setting.key, saved, setting.value, saved);
  }
  return absl::OkStatus();
}

absl::Status TrainingStateReader::CheckCoverage(const std::vector<TensorSpec>& tensors) {
  for (const TensorSpec& tensor : tensors) {
    const auto found = entries_.find(tensor.name);
    if (found == entries_.end()) {
      return InvalidArgument("{}: no rank saved tensor {}: is it the checkpoint of another model?",
                             dir_, tensor.name);
    }
    Entry& entry = found->second;
    if (entry.shape != tensor.shape) {
      return InvalidArgument("{}: tensor {} has shape {}, the model needs {}", dir_, tensor.name,
                             ShapeText(entry.shape), ShapeText(tensor.shape));
    }
    std::sort(entry.pieces.begin(), entry.pieces.end(),
              [](const Piece& a, const Piece& b) { return a.row_begin < b.row_begin; });
    int64_t next = 0;
    for (const Piece& piece : entry.pieces) {
      if (piece.row_begin != next) {
        return InvalidArgument("{}: rows [{}, {}) of tensor {} are saved {}", dir_,
                               std::min(piece.row_begin, next), std::max(piece.row_begin, next),
                               tensor.name, piece.row_begin > next ? "by no rank" : "twice");
      }
      next += piece.rows;
    }
    if (next != tensor.shape[0]) {
      return InvalidArgument("{}: tensor {} has {} rows, the ranks saved {}", dir_, tensor.name,
                             tensor.shape[0], next);
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<TensorView> TrainingStateReader::CheckedView(const std::string& name,
                                                            Part part,
                                                            const Piece& piece) const {
  const auto index = static_cast<size_t>(part);
  const std::string stored = name + kTrainingStateParts[index];
  const SafetensorsFile& file = *files_[piece.rank];
  TANDEM_ASSIGN_OR_RETURN(TensorView view, file.View(stored));
  {
    const MutexLock lock(checked_mutex_);
    if (checked_.contains({piece.rank, stored})) return view;
  }
  const SafetensorsTensor& tensor = *file.Find(stored);
  const std::string digest =
      TrainingStateDigest(view.as<const char>(), tensor.end - tensor.begin,
                          [&](const void* first, size_t bytes) { file.LetGo(first, bytes); });
  if (digest != piece.digests[index]) {
    return absl::DataLossError(fmt::format(
        "{} is damaged: the digest of {} is {}, written was {}; resume from another checkpoint",
        file.path(), stored, digest, piece.digests[index]));
  }
  const MutexLock lock(checked_mutex_);
  checked_.insert({piece.rank, stored});
  return view;
}

absl::Status TrainingStateReader::ReadRows(
    const std::string& name, Part part, int64_t row_begin, int64_t rows, float* out) const {
  const auto found = entries_.find(name);
  if (found == entries_.end()) return InvalidArgument("{} has no tensor {}", dir_, name);
  if (!header().has_masters) {
    return FailedPrecondition("{} has the digests of its masters, which are in another file", dir_);
  }
  if (part != Part::kMaster && !header().has_moments) {
    return FailedPrecondition("{} was saved before the first optimizer step: there are no moments",
                              dir_);
  }
  const Entry& entry = found->second;
  if (row_begin < 0 || rows < 0 || row_begin > entry.shape[0] ||
      rows > entry.shape[0] - row_begin) {
    return InvalidArgument("{}: rows [{}, {}) of tensor {} {} do not exist", dir_, row_begin,
                           row_begin + rows, name, ShapeText(entry.shape));
  }
  const int64_t row_elements = NumElements(entry.shape) / entry.shape[0];
  const size_t row_bytes = static_cast<size_t>(row_elements) * sizeof(float);
  for (const Piece& piece : entry.pieces) {
    const int64_t begin = std::max(row_begin, piece.row_begin);
    const int64_t end = std::min(row_begin + rows, piece.row_begin + piece.rows);
    if (begin >= end) continue;
    TANDEM_ASSIGN_OR_RETURN(const TensorView view, CheckedView(name, part, piece));
    const char* from =
        view.as<const char>() + static_cast<size_t>(begin - piece.row_begin) * row_bytes;
    const size_t bytes = static_cast<size_t>(end - begin) * row_bytes;
    std::memcpy(out + (begin - row_begin) * row_elements, from, bytes);
    files_[piece.rank]->LetGo(from, bytes);
    TANDEM_RETURN_IF_ERROR(files_[piece.rank]->CheckWhole());
  }
  return absl::OkStatus();
}

absl::Status TrainingStateReader::CheckMasters(const std::string& name,
                                               const std::string& source,
                                               const MasterRowsReader& read) const {
  const auto found = entries_.find(name);
  if (found == entries_.end()) return InvalidArgument("{} has no tensor {}", dir_, name);
  for (const Piece& piece : found->second.pieces) {
    std::vector<int64_t> shape = found->second.shape;
    shape[0] = piece.rows;
    std::vector<float> values(static_cast<size_t>(NumElements(shape)));
    TANDEM_RETURN_IF_ERROR(read(name, piece.row_begin, piece.rows, values.data()));
    const std::string digest =
        TrainingStateDigest(values.data(), values.size() * sizeof(float), nullptr);
    if (digest == piece.digests[0]) continue;
    return absl::DataLossError(fmt::format(
        "{} is damaged: the digest of {}, rows [{}, {}), is {}, written was {}; resume from "
        "another checkpoint",
        source, name, piece.row_begin, piece.row_begin + piece.rows, digest, piece.digests[0]));
  }
  return absl::OkStatus();
}

}  // namespace tandem
