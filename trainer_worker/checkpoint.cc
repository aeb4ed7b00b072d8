#include "trainer_worker/checkpoint.h"

#include <algorithm>
#include <cstring>
#include <filesystem>

#include <absl/strings/numbers.h>

#include "common/base/fault_point.h"
#include "common/base/status_macros.h"
#include "common/ops/cpu/adamw.h"
#include "common/tensor_file/checkpoint_dir.h"
#include "common/tensor_file/hf_export.h"
#include "common/tensor_file/training_state.h"
#include "trainer_worker/agreement.h"
#include "trainer_worker/shard_tensor_source.h"

namespace tandem {
namespace {

constexpr char kScheduleStep[] = "schedule_step";

// Full tensors for the export, from a collective source that is asked for every tensor once.
class ExportRows {
 public:
  ExportRows(const WeightLayout& layout, TensorSource& source) : layout_(layout), source_(source) {}

  absl::Status Read(const TensorSpec& tensor, int64_t row, int64_t rows, Bf16* out) {
    TANDEM_ASSIGN_OR_RETURN(const TensorPlace* place, layout_.Find(tensor.name));
    while (next_ <= static_cast<size_t>(place - layout_.places().data())) {
      TANDEM_RETURN_IF_ERROR(GatherNext());
    }
    const int64_t first = row * place->cols(), count = rows * place->cols();
    if (layout_.dtype() == DType::kBFloat16) {
      std::memcpy(out, static_cast<const Bf16*>(data_) + first,
                  static_cast<size_t>(count) * sizeof(Bf16));
      return absl::OkStatus();
    }
    ThreadPool caller(1);
    RoundToBf16(caller, static_cast<const float*>(data_) + first, out, count);
    return absl::OkStatus();
  }

  // What the export did not ask for, because it failed: the other ranks gather all tensors.
  absl::Status Drain() {
    while (next_ < layout_.places().size()) TANDEM_RETURN_IF_ERROR(GatherNext());
    return absl::OkStatus();
  }

 private:
  absl::Status GatherNext() {
    TANDEM_ASSIGN_OR_RETURN(data_, source_.Gather(layout_.places()[next_]));
    ++next_;
    return absl::OkStatus();
  }

  const WeightLayout& layout_;
  TensorSource& source_;
  size_t next_ = 0;
  const void* data_ = nullptr;
};

absl::Status ExportModel(const SaveOptions& options,
                         const ModelSpec& spec,
                         const ParameterShard& shard,
                         Communicator& communicator,
                         Ledger* ledger) {
  TANDEM_ASSIGN_OR_RETURN(auto source, ShardTensorSource::Create(&shard, &communicator, ledger));
  ExportRows rows(shard.plan().layout(), *source);
  absl::Status written;
  if (communicator.rank() == 0) {
    written = WriteHfFiles(spec, options.tokenizer_dir, options.directory,
                           [&rows](const TensorSpec& tensor, int64_t row, int64_t count,
                                   Bf16* out) { return rows.Read(tensor, row, count, out); });
  }
  TANDEM_RETURN_IF_ERROR(rows.Drain());
  return written;
}

absl::Status WriteShard(const SaveOptions& options,
                        ParameterShard& shard,
                        const Optimizer& optimizer) {
  const ShardPlan& plan = shard.plan();
  TrainingStateHeader header;
  header.rank = plan.rank();
  header.world = plan.world_size();
  header.step = options.version;
  header.has_moments = options.optimizer && shard.has_moments();
  header.optimizer_step = header.has_moments ? optimizer.updates() : 0;
  header.extra[kScheduleStep] = std::to_string(optimizer.schedule_step());
  std::vector<TrainingShard> shards;
  for (size_t tensor = 0; tensor < plan.tensors().size(); ++tensor) {
    const ShardPlan::Piece& piece = plan.mine(tensor);
    TrainingShard entry{.name = plan.tensors()[tensor]->name,
                        .shape = plan.tensors()[tensor]->shape,
                        .row_begin = piece.row,
                        .rows = piece.rows,
                        .master = shard.master() + piece.offset};
    if (header.has_moments) {
      entry.exp_avg = shard.exp_avg() + piece.offset;
      entry.exp_avg_sq = shard.exp_avg_sq() + piece.offset;
    }
    shards.push_back(std::move(entry));
  }
  return WriteTrainingState(options.directory, header, shards);
}

int64_t FileBytes(const std::string& path) {
  std::error_code error;
  const auto bytes = std::filesystem::file_size(path, error);
  return error ? 0 : static_cast<int64_t>(bytes);
}

}  // namespace

absl::Status LoadModel(const std::string& model_dir, const ModelSpec& spec, ParameterShard& shard) {
  TANDEM_ASSIGN_OR_RETURN(const auto checkpoint, HfCheckpoint::Open(model_dir, spec));
  const ShardPlan& plan = shard.plan();
  for (size_t tensor = 0; tensor < plan.tensors().size(); ++tensor) {
    const ShardPlan::Piece& piece = plan.mine(tensor);
    if (piece.rows == 0) continue;
    TANDEM_RETURN_IF_ERROR(checkpoint->ReadRows(plan.tensors()[tensor]->name, piece.row, piece.rows,
                                                DType::kFloat32, shard.master() + piece.offset));
  }
  shard.RoundMaster();
  return absl::OkStatus();
}

absl::StatusOr<int64_t> LoadState(const std::string& directory,
                                  const ModelSpec& spec,
                                  ParameterShard& shard,
                                  Optimizer& optimizer) {
  using Part = TrainingStateReader::Part;
  TANDEM_ASSIGN_OR_RETURN(const auto reader, TrainingStateReader::Open(directory, spec));
  const TrainingStateHeader& header = reader->header();
  std::vector<std::pair<Part, float*>> parts = {{Part::kMaster, shard.master()}};
  if (header.has_moments) {
    TANDEM_RETURN_IF_ERROR(shard.MapMoments());
    parts.push_back({Part::kExpAvg, shard.exp_avg()});
    parts.push_back({Part::kExpAvgSq, shard.exp_avg_sq()});
  }
  const ShardPlan& plan = shard.plan();
  for (size_t tensor = 0; tensor < plan.tensors().size(); ++tensor) {
    const ShardPlan::Piece& piece = plan.mine(tensor);
    if (piece.rows == 0) continue;
    for (const auto& [part, values] : parts) {
      TANDEM_RETURN_IF_ERROR(reader->ReadRows(plan.tensors()[tensor]->name, part, piece.row,
                                              piece.rows, values + piece.offset));
    }
  }
  const auto schedule = header.extra.find(kScheduleStep);
  int64_t schedule_step = 0;
  if (schedule == header.extra.end() || !absl::SimpleAtoi(schedule->second, &schedule_step)) {
    return MakeStatus(absl::StatusCode::kDataLoss, "the training state in {} lacks a readable {}",
                      directory, kScheduleStep);
  }
  optimizer.Restore(header.optimizer_step, schedule_step);
  shard.RoundMaster();
  return header.step;
}

absl::StatusOr<int64_t> SaveState(const SaveOptions& options,
                                  const ModelSpec& spec,
                                  ParameterShard& shard,
                                  const Optimizer& optimizer,
                                  Communicator& communicator,
                                  Ledger* ledger) {
  TANDEM_RETURN_IF_ERROR(
      Agree(communicator, WriteShard(options, shard, optimizer), "writing the training state")
          .status());
  const ShardPlan& plan = shard.plan();
  int64_t bytes =
      FileBytes(options.directory + "/" + TrainingStateFileName(plan.rank(), plan.world_size()));
  if (!options.hf_model) return bytes;
  FaultPoint("save.export");
  const absl::Status exported = ExportModel(options, spec, shard, communicator, ledger);
  TANDEM_RETURN_IF_ERROR(Agree(communicator, exported, "exporting the model").status());
  if (plan.rank() == 0) bytes += FileBytes(options.directory + "/model.safetensors");
  return bytes;
}

}  // namespace tandem
