#include "common/formats/training_state.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include <nlohmann/json.hpp>

#include "common/base/progress.h"
#include "common/base/status.h"
#include "common/formats/safetensors.h"
#include "common/model_spec/row_ranges.h"
#include "common/types/xxh3.h"

namespace tandem {
namespace {

uint64_t PartBytes(const TrainingShard& shard) {
  std::vector<int64_t> shape = shard.shape;
  shape[0] = shard.rows;
  return static_cast<uint64_t>(NumElements(shape)) * sizeof(float);
}

// Calls `take` for every range of `bytes` at `values`, with its address in host memory; calls it
// once if there are no bytes.
absl::Status ForHostRanges(
    const float* values,
    uint64_t bytes,
    const HostValues& host_values,
    const std::function<absl::Status(const float*, uint64_t at, uint64_t some)>& take) {
  for (uint64_t at = 0; at == 0 || at < bytes; at += kRowRangeBytes) {
    const uint64_t some = std::min<uint64_t>(kRowRangeBytes, bytes - at);
    const float* first = values + at / sizeof(float);
    if (host_values != nullptr && some > 0) {
      TANDEM_ASSIGN_OR_RETURN(first,
                              host_values(first, static_cast<int64_t>(some / sizeof(float))));
    }
    TANDEM_RETURN_IF_ERROR(take(first, at, some));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> DigestOfPart(const float* values,
                                         uint64_t bytes,
                                         const HostValues& host_values) {
  Xxh3Stream hash;
  TANDEM_RETURN_IF_ERROR(
      ForHostRanges(values, bytes, host_values, [&](const float* first, uint64_t, uint64_t some) {
        hash.Append(first, some);
        NoteProgress();
        return absl::OkStatus();
      }));
  return hash.Finish().Hex();
}

absl::StatusOr<std::string> HeaderJson(const TrainingStateHeader& header,
                                       const std::vector<TrainingShard>& shards,
                                       const HostValues& host_values) {
  const size_t parts = header.has_moments ? 3 : 1;
  nlohmann::json json = {{"format", kTrainingStateFormat},
                         {"rank", header.rank},
                         {"world", header.world},
                         {"step", header.step},
                         {"optimizer_step", header.optimizer_step},
                         {"has_moments", header.has_moments},
                         {"has_masters", header.has_masters},
                         {"extra", header.extra}};
  for (const TrainingShard& shard : shards) {
    const float* values[] = {shard.master, shard.exp_avg, shard.exp_avg_sq};
    std::vector<std::string> digests;
    for (size_t part = 0; part < parts; ++part) {
      TANDEM_ASSIGN_OR_RETURN(std::string digest,
                              DigestOfPart(values[part], PartBytes(shard), host_values));
      digests.push_back(std::move(digest));
    }
    json["tensors"][shard.name] = {{"shape", shard.shape},
                                   {"row_begin", shard.row_begin},
                                   {"rows", shard.rows},
                                   {"xxh3", std::move(digests)}};
  }
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

absl::Status WritePart(const std::string& name,
                       const float* values,
                       uint64_t bytes,
                       const HostValues& host_values,
                       SafetensorsWriter& writer) {
  // Called even if there are no rows, because the part is then complete.
  return ForHostRanges(values, bytes, host_values,
                       [&](const float* first, uint64_t at, uint64_t some) {
                         return writer.Write(name, first, some, at);
                       });
}

}  // namespace

std::string TrainingStateDigest(const void* data,
                                size_t bytes,
                                const std::function<void(const void*, size_t)>& read) {
  Xxh3Stream hash;
  for (size_t at = 0; at < bytes; at += kRowRangeBytes) {
    const size_t some = std::min<size_t>(kRowRangeBytes, bytes - at);
    const void* first = static_cast<const char*>(data) + at;
    hash.Append(first, some);
    NoteProgress();
    if (read != nullptr) read(first, some);
  }
  return hash.Finish().Hex();
}

std::string TrainingStateFileName(int64_t rank, int64_t world) {
  return fmt::format("{}{:05}-of-{:05}.safetensors", kTrainingStatePrefix, rank, world);
}

absl::Status WriteTrainingState(const std::string& dir,
                                const TrainingStateHeader& header,
                                const std::vector<TrainingShard>& shards,
                                const HostValues& host_values) {
  if (!header.has_masters && header.has_moments) {
    return InvalidArgument("a training state has no moments without masters");
  }
  const size_t parts = !header.has_masters ? 0 : header.has_moments ? 3 : 1;
  std::vector<TensorDeclaration> declarations;
  for (const TrainingShard& shard : shards) {
    std::vector<int64_t> shape = shard.shape;
    shape[0] = shard.rows;
    for (size_t part = 0; part < parts; ++part) {
      declarations.push_back({shard.name + kTrainingStateParts[part], DType::kFloat32, shape});
    }
  }
  TANDEM_ASSIGN_OR_RETURN(const std::string json, HeaderJson(header, shards, host_values));
  TANDEM_ASSIGN_OR_RETURN(
      const auto writer,
      SafetensorsWriter::Create(
          dir + "/" + TrainingStateFileName(header.rank, header.world), declarations,
          {{kTrainingStateKey, json},
           {kTrainingStateDigestKey, TrainingStateDigest(json.data(), json.size())}}));
  for (const TrainingShard& shard : shards) {
    const float* values[] = {shard.master, shard.exp_avg, shard.exp_avg_sq};
    for (size_t part = 0; part < parts; ++part) {
      TANDEM_RETURN_IF_ERROR(WritePart(shard.name + kTrainingStateParts[part], values[part],
                                       PartBytes(shard), host_values, *writer));
    }
  }
  return writer->Finish();
}

}  // namespace tandem
