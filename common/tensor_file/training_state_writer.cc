#include <nlohmann/json.hpp>
#include <xxhash.h>

#include "common/base/status_macros.h"
#include "common/tensor_file/safetensors_writer.h"
#include "common/tensor_file/training_state.h"
#include "common/tensor_file/training_state_format.h"

namespace tandem {
namespace {

uint64_t PartBytes(const TrainingShard& shard) {
  std::vector<int64_t> shape = shard.shape;
  shape[0] = shard.rows;
  return static_cast<uint64_t>(NumElements(shape)) * sizeof(float);
}

std::string HeaderJson(const TrainingStateHeader& header,
                       const std::vector<TrainingShard>& shards) {
  const size_t parts = header.has_moments ? 3 : 1;
  nlohmann::json json = {{"format", kTrainingStateFormat},
                         {"rank", header.rank},
                         {"world", header.world},
                         {"step", header.step},
                         {"optimizer_step", header.optimizer_step},
                         {"has_moments", header.has_moments},
                         {"extra", header.extra}};
  for (const TrainingShard& shard : shards) {
    const float* values[] = {shard.master, shard.exp_avg, shard.exp_avg_sq};
    std::vector<std::string> digests;
    for (size_t part = 0; part < parts; ++part) {
      digests.push_back(TrainingStateDigest(values[part], PartBytes(shard)));
    }
    json["tensors"][shard.name] = {{"shape", shard.shape},
                                   {"row_begin", shard.row_begin},
                                   {"rows", shard.rows},
                                   {"xxh3", std::move(digests)}};
  }
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace

std::string TrainingStateDigest(const void* data, size_t bytes) {
  const XXH128_hash_t hash = XXH3_128bits(data, bytes);
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

std::string TrainingStateFileName(int64_t rank, int64_t world) {
  return fmt::format("{}{:05}-of-{:05}.safetensors", kTrainingStatePrefix, rank, world);
}

absl::Status WriteTrainingState(const std::string& dir,
                                const TrainingStateHeader& header,
                                const std::vector<TrainingShard>& shards) {
  const size_t parts = header.has_moments ? 3 : 1;
  std::vector<TensorDeclaration> declarations;
  for (const TrainingShard& shard : shards) {
    std::vector<int64_t> shape = shard.shape;
    shape[0] = shard.rows;
    for (size_t part = 0; part < parts; ++part) {
      declarations.push_back({shard.name + kTrainingStateParts[part], DType::kFloat32, shape});
    }
  }
  const std::string json = HeaderJson(header, shards);
  TANDEM_ASSIGN_OR_RETURN(
      const auto writer,
      SafetensorsWriter::Create(
          dir + "/" + TrainingStateFileName(header.rank, header.world), declarations,
          {{kTrainingStateKey, json},
           {kTrainingStateDigestKey, TrainingStateDigest(json.data(), json.size())}}));
  for (const TrainingShard& shard : shards) {
    const float* values[] = {shard.master, shard.exp_avg, shard.exp_avg_sq};
    for (size_t part = 0; part < parts; ++part) {
      TANDEM_RETURN_IF_ERROR(
          writer->Write(shard.name + kTrainingStateParts[part], values[part], PartBytes(shard)));
    }
  }
  return writer->Finish();
}

}  // namespace tandem
