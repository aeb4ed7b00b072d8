#include <nlohmann/json.hpp>

#include "common/base/status_macros.h"
#include "common/tensor_file/safetensors_writer.h"
#include "common/tensor_file/training_state.h"
#include "common/tensor_file/training_state_format.h"

namespace tandem {
namespace {

std::string HeaderJson(const TrainingStateHeader& header,
                       const std::vector<TrainingShard>& shards) {
  nlohmann::json json = {{"format", kTrainingStateFormat},
                         {"rank", header.rank},
                         {"world", header.world},
                         {"step", header.step},
                         {"optimizer_step", header.optimizer_step},
                         {"has_moments", header.has_moments},
                         {"extra", header.extra}};
  for (const TrainingShard& shard : shards) {
    json["tensors"][shard.name] = {
        {"shape", shard.shape}, {"row_begin", shard.row_begin}, {"rows", shard.rows}};
  }
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace

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
  TANDEM_ASSIGN_OR_RETURN(
      const auto writer,
      SafetensorsWriter::Create(dir + "/" + TrainingStateFileName(header.rank, header.world),
                                declarations, {{kTrainingStateKey, HeaderJson(header, shards)}}));
  for (const TrainingShard& shard : shards) {
    const float* values[] = {shard.master, shard.exp_avg, shard.exp_avg_sq};
    std::vector<int64_t> shape = shard.shape;
    shape[0] = shard.rows;
    const uint64_t bytes = static_cast<uint64_t>(NumElements(shape)) * sizeof(float);
    for (size_t part = 0; part < parts; ++part) {
      TANDEM_RETURN_IF_ERROR(
          writer->Write(shard.name + kTrainingStateParts[part], values[part], bytes));
    }
  }
  return writer->Finish();
}

}  // namespace tandem
