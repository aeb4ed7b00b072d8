#include "controller/store/batch_file.h"

#include <cstring>
#include <string>
#include <utility>

#include <xxhash.h>

#include "common/base/status.h"
#include "common/formats/files.h"
#include "common/types/xxh3.h"
#include "controller/store/saved_batch.h"

namespace tandem {
namespace {

constexpr char kSaveAgain[] =
    "take another copy, or save the step again with trainer.save_batch_freq";

// A hint for the user, who may have named another kind of file.
std::string NotThis(const std::string& path) {
  if (path.ends_with(kSamplesSuffix)) {
    return "a .samples file has an index from the moment that its step is recorded, unless a build "
           "before wrote it; give another one, or one that trainer.save_batch_freq has saved in "
           "RUN_DIR/batches";
  }
  return "give a file that a run has saved: RUN_DIR/batches/step_N.batch or "
         "RUN_DIR/failed_steps/step_N/step.batch";
}

bool HasMagic(const uint8_t* data, const char* magic) {
  return std::memcmp(data, magic, sizeof(BatchPreamble::magic)) == 0;
}

// The preamble of a .samples file is its end.
bool EndsAsSamples(const MappedFile& file) {
  return file.size() >= sizeof(BatchPreamble) &&
         HasMagic(file.data() + file.size() - sizeof(BatchPreamble), kSamplesMagic);
}

absl::Status CheckVersion(const MappedFile& file, const BatchPreamble& preamble) {
  if (preamble.version <= kBatchVersion) return absl::OkStatus();
  return MakeStatus(absl::StatusCode::kUnimplemented,
                    "{} has version {} of the format, and this build reads up to {}: use the "
                    "tandemctl of the build that wrote it, or a newer one",
                    file.path(), preamble.version, kBatchVersion);
}

absl::StatusOr<BatchPreamble> ReadSamplesEnd(const MappedFile& file) {
  BatchPreamble end;
  const uint64_t before = file.size() - sizeof(end);
  std::memcpy(&end, file.data() + before, sizeof(end));
  TANDEM_RETURN_IF_ERROR(CheckVersion(file, end));
  const bool good = end.check == XXH3_64bits(&end, offsetof(BatchPreamble, check)) &&
                    end.file_bytes == file.size() && end.header_offset <= before &&
                    end.header_bytes == before - end.header_offset;
  if (good) return end;
  return MakeStatus(absl::StatusCode::kDataLoss, "{}: its index is damaged; {}", file.path(),
                    NotThis(file.path()));
}

// Checks that the file is a complete batch of a known version.
absl::StatusOr<BatchPreamble> ReadPreamble(const MappedFile& file) {
  BatchPreamble preamble;
  const size_t magic = preamble.magic.size();
  if (file.size() < magic || !HasMagic(file.data(), kBatchMagic)) {
    if (EndsAsSamples(file)) return ReadSamplesEnd(file);
    return InvalidArgument("{} is not a saved batch: {}; {}", file.path(),
                           file.size() == 0 ? "it is empty" : "it does not begin as one",
                           NotThis(file.path()));
  }
  const auto cut = [&](uint64_t wanted) {
    return MakeStatus(absl::StatusCode::kDataLoss,
                      "{} was cut short: it has {} bytes, {} were written; {}", file.path(),
                      file.size(), wanted, kSaveAgain);
  };
  if (file.size() < sizeof(preamble)) return cut(sizeof(preamble));
  std::memcpy(&preamble, file.data(), sizeof(preamble));
  TANDEM_RETURN_IF_ERROR(CheckVersion(file, preamble));
  if (preamble.check != XXH3_64bits(&preamble, offsetof(BatchPreamble, check))) {
    return MakeStatus(absl::StatusCode::kDataLoss, "{}: the first 64 bytes are damaged; {}",
                      file.path(), kSaveAgain);
  }
  if (file.size() < preamble.file_bytes) return cut(preamble.file_bytes);
  const bool fits = preamble.file_bytes == file.size() &&
                    preamble.header_offset >= sizeof(preamble) &&
                    preamble.header_offset <= file.size() &&
                    preamble.header_bytes == file.size() - preamble.header_offset;
  if (fits) return preamble;
  return MakeStatus(absl::StatusCode::kDataLoss, "{} has {} bytes, {} were written; {}",
                    file.path(), file.size(), preamble.file_bytes, kSaveAgain);
}

bool IsSamples(const BatchPreamble& preamble) {
  return std::memcmp(preamble.magic.data(), kSamplesMagic, preamble.magic.size()) == 0;
}

absl::Status CheckDigest(const MappedFile& file, const BatchPreamble& preamble) {
  const uint64_t begin = IsSamples(preamble) ? preamble.header_offset : sizeof(preamble);
  const uint64_t bytes =
      IsSamples(preamble) ? preamble.header_bytes : file.size() - sizeof(preamble);
  const Xxh3Hash digest = HashXxh3(file.data() + begin, bytes);
  if (digest.low == preamble.digest_low && digest.high == preamble.digest_high) {
    return absl::OkStatus();
  }
  return MakeStatus(absl::StatusCode::kDataLoss,
                    "{}: the digest of its bytes is not the one that was written: it was damaged "
                    "or changed; {}",
                    file.path(), kSaveAgain);
}

}  // namespace

absl::StatusOr<std::unique_ptr<const BatchReader>> BatchReader::Open(const std::string& path) {
  absl::StatusOr<std::shared_ptr<const MappedFile>> file = MappedFile::Open(path);
  if (!file.ok()) {
    return MakeStatus(file.status().code(), "{}; {}", std::string(file.status().message()),
                      NotThis(path));
  }
  TANDEM_ASSIGN_OR_RETURN(const BatchPreamble preamble, ReadPreamble(**file));
  TANDEM_RETURN_IF_ERROR(CheckDigest(**file, preamble));
  TANDEM_RETURN_IF_ERROR((*file)->CheckWhole());
  std::unique_ptr<BatchReader> reader(new BatchReader(*std::move(file)));
  reader->version_ = preamble.version;
  const auto* header = reinterpret_cast<const char*>(reader->file_->data());
  absl::StatusOr<BatchHeader> parsed =
      BatchHeaderFromJson(header + preamble.header_offset, preamble.header_bytes);
  TANDEM_RETURN_IF_ERROR(Annotate(parsed.status(), path));
  reader->header_ = *std::move(parsed);
  const uint64_t arrays_begin = IsSamples(preamble) ? 0 : sizeof(preamble);
  for (const BatchEntry& entry : reader->header_.entries) {
    TANDEM_RETURN_IF_ERROR(
        Annotate(reader->CheckPlaces(entry, arrays_begin, preamble.header_offset),
                 fmt::format("{}: sample {:#x}", path, entry.meta.sample_id)));
  }
  return reader;
}

absl::Status BatchReader::CheckPlaces(const BatchEntry& entry,
                                      uint64_t arrays_begin,
                                      uint64_t arrays_end) const {
  const auto count = [&](const char* name) -> uint64_t {
    const auto found = entry.arrays.find(name);
    return found == entry.arrays.end() ? 0 : found->second.count;
  };
  const auto lies_inside = [&](const char* name, size_t width) {
    const auto found = entry.arrays.find(name);
    if (found == entry.arrays.end()) return true;
    const auto& [offset, values] = found->second;
    return offset >= arrays_begin && offset <= arrays_end &&
           values <= (arrays_end - offset) / width;
  };
  const uint64_t tokens = count(kBatchTokens);
  const auto prompt = static_cast<uint64_t>(entry.meta.prompt_tokens);
  bool good = prompt <= tokens && count(kBatchVersions) == tokens - prompt &&
              lies_inside(kBatchTokens, 4) && lies_inside(kBatchVersions, 8);
  for (const SavedArray& array : kSavedArrays) {
    const uint64_t values = count(array.name);
    good = good && (values == 0 || values == tokens - prompt) && lies_inside(array.name, 4);
  }
  if (good) return absl::OkStatus();
  return MakeStatus(absl::StatusCode::kDataLoss, "its arrays do not fit each other or the file; {}",
                    kSaveAgain);
}

template <typename T>
void BatchReader::ReadArray(const BatchEntry& entry,
                            const char* name,
                            std::vector<T>& values) const {
  const auto found = entry.arrays.find(name);
  if (found == entry.arrays.end() || found->second.count == 0) return;
  values.resize(found->second.count);
  std::memcpy(values.data(), file_->data() + found->second.offset, values.size() * sizeof(T));
}

SavedSample BatchReader::Read(size_t i) const {
  const BatchEntry& entry = header_.entries[i];
  SavedSample sample = entry.meta;
  ReadArray(entry, kBatchTokens, sample.tokens);
  ReadArray(entry, kBatchVersions, sample.versions);
  for (const SavedArray& array : kSavedArrays) {
    ReadArray(entry, array.name, sample.*array.values);
  }
  if (sample.advantages.empty()) {
    sample.advantages.assign(sample.versions.size(), static_cast<float>(sample.advantage));
  }
  return sample;
}

std::string SamplesEnd(const std::string& header, uint64_t offset) {
  BatchPreamble end;
  std::memcpy(end.magic.data(), kSamplesMagic, end.magic.size());
  end.version = kBatchVersion;
  end.header_offset = offset;
  end.header_bytes = header.size();
  end.file_bytes = offset + header.size() + sizeof(end);
  const Xxh3Hash digest = HashXxh3(header.data(), header.size());
  end.digest_low = digest.low;
  end.digest_high = digest.high;
  end.check = XXH3_64bits(&end, offsetof(BatchPreamble, check));
  return header + std::string(reinterpret_cast<const char*>(&end), sizeof(end));
}

struct BatchWriter::State {
  explicit State(std::unique_ptr<AtomicFile> atomic) : file(std::move(atomic)) {}

  absl::Status Append(const void* data, size_t bytes) {
    hash.Append(data, bytes);
    end += bytes;
    return file->Append(data, bytes);
  }

  template <typename T>
  absl::Status AppendArray(const char* name, const std::vector<T>& values, BatchEntry& entry) {
    if (values.empty()) return absl::OkStatus();
    entry.arrays[name] = {.offset = end, .count = values.size()};
    return Append(values.data(), values.size() * sizeof(T));
  }

  std::unique_ptr<AtomicFile> file;
  Xxh3Stream hash;
  uint64_t end = sizeof(BatchPreamble);
  std::vector<BatchEntry> entries;
};

BatchWriter::BatchWriter(std::unique_ptr<State> state) : state_(std::move(state)) {}
BatchWriter::~BatchWriter() = default;

absl::StatusOr<std::unique_ptr<BatchWriter>> BatchWriter::Create(const std::string& path) {
  TANDEM_ASSIGN_OR_RETURN(auto file, AtomicFile::Create(path));
  const BatchPreamble nothing;
  TANDEM_RETURN_IF_ERROR(file->Append(&nothing, sizeof(nothing)));
  return std::unique_ptr<BatchWriter>(new BatchWriter(std::make_unique<State>(std::move(file))));
}

absl::Status BatchWriter::Add(const SavedSample& sample) {
  const auto responses = static_cast<size_t>(sample.response_tokens());
  for (const SavedArray& array : kSavedArrays) {
    const size_t values = (sample.*array.values).size();
    if (values == 0 || values == responses) continue;
    return InvalidArgument("sample {:#x}: {} {} for {} response tokens", sample.sample_id, values,
                           array.name, responses);
  }
  if (sample.prompt_tokens < 0 || sample.response_tokens() < 0 ||
      sample.versions.size() != responses) {
    return InvalidArgument("sample {:#x}: {} tokens, {} of the prompt, and {} versions do not fit",
                           sample.sample_id, sample.tokens.size(), sample.prompt_tokens,
                           sample.versions.size());
  }
  BatchEntry entry;
  TANDEM_RETURN_IF_ERROR(state_->AppendArray(kBatchTokens, sample.tokens, entry));
  TANDEM_RETURN_IF_ERROR(state_->AppendArray(kBatchVersions, sample.versions, entry));
  for (const SavedArray& array : kSavedArrays) {
    TANDEM_RETURN_IF_ERROR(state_->AppendArray(array.name, sample.*array.values, entry));
  }
  entry.meta = WithoutArrays(sample);
  state_->entries.push_back(std::move(entry));
  return absl::OkStatus();
}

absl::Status BatchWriter::Commit(const SavedBatchInfo& info) {
  const std::string header = BatchHeaderToJson(info, state_->entries);
  BatchPreamble preamble;
  std::memcpy(preamble.magic.data(), kBatchMagic, preamble.magic.size());
  preamble.version = kBatchVersion;
  preamble.header_offset = state_->end;
  preamble.header_bytes = header.size();
  TANDEM_RETURN_IF_ERROR(state_->Append(header.data(), header.size()));
  preamble.file_bytes = state_->end;
  const Xxh3Hash digest = state_->hash.Finish();
  preamble.digest_low = digest.low;
  preamble.digest_high = digest.high;
  preamble.check = XXH3_64bits(&preamble, offsetof(BatchPreamble, check));
  TANDEM_RETURN_IF_ERROR(state_->file->WriteAt(0, &preamble, sizeof(preamble)));
  return state_->file->Commit();
}

}  // namespace tandem
