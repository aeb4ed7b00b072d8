#include "controller/store/batch_writer.h"

#include <cstring>
#include <string>
#include <utility>

#include <xxhash.h>

#include "common/base/status_macros.h"
#include "common/formats/atomic_file.h"
#include "controller/store/batch_format.h"
#include "controller/store/batch_header.h"

namespace tandem {

struct BatchWriter::State {
  explicit State(std::unique_ptr<AtomicFile> atomic)
      : file(std::move(atomic)), hash(XXH3_createState(), XXH3_freeState) {
    XXH3_128bits_reset(hash.get());
  }

  absl::Status Append(const void* data, size_t bytes) {
    XXH3_128bits_update(hash.get(), data, bytes);
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
  std::unique_ptr<XXH3_state_t, XXH_errorcode (*)(XXH3_state_t*)> hash;
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
  const XXH128_hash_t digest = XXH3_128bits_digest(state_->hash.get());
  preamble.digest_low = digest.low64;
  preamble.digest_high = digest.high64;
  preamble.check = XXH3_64bits(&preamble, offsetof(BatchPreamble, check));
  TANDEM_RETURN_IF_ERROR(state_->file->WriteAt(0, &preamble, sizeof(preamble)));
  return state_->file->Commit();
}

}  // namespace tandem
