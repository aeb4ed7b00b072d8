#include "trainer_worker/trained_weights/checkpoint.h"

#include <algorithm>
#include <filesystem>
#include <functional>

#include <absl/strings/numbers.h>

#include "common/base/progress.h"
#include "common/base/status.h"
#include "common/comm/communicator.h"
#include "common/formats/hf_checkpoint.h"
#include "common/formats/training_state.h"
#include "common/memory/memory_formulas.h"
#include "common/model_spec/row_ranges.h"
#include "common/process/fault_injection.h"
#include "trainer_worker/weight_sync/expected_weights.h"

namespace tandem {
namespace {

constexpr char kScheduleStep[] = "schedule_step";

// All ranges of the model in the order of an export. This order alone determines the sequence of
// gathers: rank 0 reads ranges for its writer, while the other ranks, and rank 0 after its writer
// has failed, drain the list.
class ExportRows {
 public:
  ExportRows(const WeightLayout& layout, MasterWeights& source) : source_(source) {
    for (const TensorPlace& place : layout.places()) {
      const int64_t row_bytes = place.cols() * static_cast<int64_t>(sizeof(Bf16));
      const int64_t step = RowsPerRange(row_bytes);
      for (int64_t row = 0; row < place.rows(); row += step) {
        ranges_.push_back({&place, row, std::min(step, place.rows() - row), row_bytes});
      }
    }
  }

  absl::StatusOr<const Bf16*> Read(const TensorSpec& tensor, int64_t row, int64_t rows) {
    if (next_ == ranges_.size() || ranges_[next_].place->name != tensor.name ||
        ranges_[next_].row != row || ranges_[next_].rows != rows) {
      return Internal("the export asks for rows [{}, {}) of {} out of turn", row, row + rows,
                      tensor.name);
    }
    TANDEM_ASSIGN_OR_RETURN(const void* values, source_.Rows(ranges_[next_++]));
    return static_cast<const Bf16*>(values);
  }

  absl::Status Drain() {
    while (next_ < ranges_.size()) {
      TANDEM_RETURN_IF_ERROR(source_.Rows(ranges_[next_++]).status());
    }
    return absl::OkStatus();
  }

 private:
  MasterWeights& source_;
  std::vector<TensorRows> ranges_;
  size_t next_ = 0;
};

absl::Status ExportModel(const SaveOptions& options,
                         const ModelSpec& spec,
                         WeightRows& policy,
                         Communicator& communicator,
                         Ledger* ledger) {
  constexpr int kWriter = 0;
  TANDEM_ASSIGN_OR_RETURN(
      const auto source,
      MasterWeights::Create(&policy, &communicator, ledger,
                            {.dtype = DType::kBFloat16,
                             .scratch_bytes = RowScratchBytes(spec, sizeof(Bf16)),
                             .receiver = kWriter}));
  ExportRows rows(policy.plan().layout(), *source);
  absl::Status written;
  if (communicator.rank() == kWriter) {
    written = WriteHfFiles(spec, options.tokenizer_dir, options.directory,
                           [&rows](const TensorSpec& tensor, int64_t row, int64_t count) {
                             return rows.Read(tensor, row, count);
                           });
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
  header.has_masters = options.masters || header.has_moments;
  header.optimizer_step = header.has_moments ? optimizer.updates() : 0;
  header.extra[kScheduleStep] = std::to_string(optimizer.schedule_step());
  for (const SavedSetting& setting : options.settings) header.extra[setting.key] = setting.value;
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
  const absl::Status written = WriteTrainingState(
      options.directory, header, shards,
      [&shard](const float* values, int64_t n) { return shard.HostValues(values, n); });
  shard.Evict();  // also evicts pages that two ranges share
  return written;
}

// Reads a range of a tensor's rows that this rank owns; `offset` is where they begin in its shard,
// in elements.
using RangeReader =
    std::function<absl::Status(const TensorPlace& place, const RowRange& rows, int64_t offset)>;

// Calls `read` for all of this rank's rows in the order of its shard, in ranges small enough that
// offloaded arrays are in memory one range at a time. At the end also evicts the pages that ranges
// share.
absl::Status ForMyRanges(ParameterShard& shard, const RangeReader& read) {
  const ShardPlan& plan = shard.plan();
  for (size_t tensor = 0; tensor < plan.tensors().size(); ++tensor) {
    const TensorPlace& place = *plan.tensors()[tensor];
    const ShardPlan::Piece& piece = plan.mine(tensor);
    const int64_t step = RowsPerRange(place.cols() * static_cast<int64_t>(sizeof(float)));
    for (int64_t row = 0; row < piece.rows; row += step) {
      const int64_t first = piece.row + row;
      const RowRange rows{first, first + std::min(step, piece.rows - row)};
      NoteProgress();
      TANDEM_RETURN_IF_ERROR(read(place, rows, piece.offset + row * place.cols()));
    }
  }
  shard.Evict();
  return absl::OkStatus();
}

std::vector<TensorSpec> TensorsOf(const ShardPlan& plan) {
  std::vector<TensorSpec> tensors;
  for (const TensorPlace& place : plan.layout().places()) {
    tensors.push_back({.name = place.name, .shape = place.shape, .layer = place.layer});
  }
  return tensors;
}

// Opens a reader of masters that the state holds only digests of, and compares the digests: each
// rank compares the tensors that it owns rows of.
absl::StatusOr<MasterRowsReader> MastersElsewhere(const TrainingStateReader& reader,
                                                  const std::string& directory,
                                                  const ShardPlan& plan,
                                                  const std::string& file,
                                                  const OpenMasters& open) {
  if (!open) {
    return InvalidArgument("{}: saved without masters, as adapters, but no adapters are trained",
                           directory);
  }
  TANDEM_ASSIGN_OR_RETURN(MasterRowsReader rows, open());
  for (size_t tensor = 0; tensor < plan.tensors().size(); ++tensor) {
    if (plan.mine(tensor).rows == 0) continue;
    TANDEM_RETURN_IF_ERROR(reader.CheckMasters(plan.tensors()[tensor]->name, file, rows));
  }
  return rows;
}

int64_t FileBytes(const std::string& path) {
  std::error_code error;
  const auto bytes = std::filesystem::file_size(path, error);
  return error ? 0 : static_cast<int64_t>(bytes);
}

}  // namespace

absl::Status LoadModel(const std::string& model_dir, const ModelSpec& spec, ParameterShard& shard) {
  TANDEM_ASSIGN_OR_RETURN(const auto checkpoint, HfCheckpoint::Open(model_dir, spec));
  return ForMyRanges(shard, [&](const TensorPlace& place, const RowRange& rows, int64_t offset) {
    return shard.WriteMasters(offset, rows.rows() * place.cols(), [&](float* values) {
      return checkpoint->ReadRows(place.name, rows.begin, rows.rows(), DType::kFloat32, values);
    });
  });
}

absl::StatusOr<int64_t> LoadState(const std::string& directory,
                                  ParameterShard& shard,
                                  Optimizer& optimizer,
                                  const std::vector<SavedSetting>& settings,
                                  const std::string& masters_file,
                                  const OpenMasters& masters) {
  using Part = TrainingStateReader::Part;
  TANDEM_ASSIGN_OR_RETURN(const auto reader,
                          TrainingStateReader::Open(directory, TensorsOf(shard.plan()), settings));
  const TrainingStateHeader& header = reader->header();
  std::vector<std::pair<Part, float*>> moments;
  if (header.has_moments) {
    TANDEM_RETURN_IF_ERROR(shard.MapMoments());
    moments = {{Part::kExpAvg, shard.exp_avg()}, {Part::kExpAvgSq, shard.exp_avg_sq()}};
  }
  MasterRowsReader elsewhere;
  if (!header.has_masters) {
    TANDEM_ASSIGN_OR_RETURN(
        elsewhere, MastersElsewhere(*reader, directory, shard.plan(), masters_file, masters));
  }
  const RangeReader read_range = [&](const TensorPlace& place, const RowRange& rows,
                                     int64_t offset) -> absl::Status {
    const int64_t count = rows.rows() * place.cols();
    const auto fill = [&](Part part) -> ParameterShard::Fill {
      return [&, part](float* values) -> absl::Status {
        if (elsewhere) return elsewhere(place.name, rows.begin, rows.rows(), values);
        return reader->ReadRows(place.name, part, rows.begin, rows.rows(), values);
      };
    };
    TANDEM_RETURN_IF_ERROR(shard.WriteMasters(offset, count, fill(Part::kMaster)));
    for (const auto& [part, values] : moments) {
      TANDEM_RETURN_IF_ERROR(shard.WriteMoments(values + offset, count, fill(part)));
    }
    return absl::OkStatus();
  };
  TANDEM_RETURN_IF_ERROR(ForMyRanges(shard, read_range));
  const auto schedule = header.extra.find(kScheduleStep);
  int64_t schedule_step = 0;
  if (schedule == header.extra.end() || !absl::SimpleAtoi(schedule->second, &schedule_step)) {
    return MakeStatus(absl::StatusCode::kDataLoss, "the training state in {} lacks a readable {}",
                      directory, kScheduleStep);
  }
  optimizer.Restore(header.optimizer_step, schedule_step);
  return header.step;
}

absl::Status CheckSavedVersion(const std::string& directory, int64_t saved, int64_t expected) {
  if (saved == expected) return absl::OkStatus();
  return MakeStatus(absl::StatusCode::kDataLoss,
                    "the checkpoint {} holds weight version {}, but {} was expected", directory,
                    saved, expected);
}

absl::StatusOr<int64_t> SaveState(const SaveOptions& options,
                                  const ModelSpec& spec,
                                  ParameterShard& shard,
                                  WeightRows& policy,
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
  const absl::Status exported = ExportModel(options, spec, policy, communicator, ledger);
  TANDEM_RETURN_IF_ERROR(Agree(communicator, exported, "exporting the model").status());
  if (plan.rank() == 0) bytes += FileBytes(options.directory + "/model.safetensors");
  return bytes;
}

}  // namespace tandem
