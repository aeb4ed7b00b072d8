// A rank's shard from and to disk. A checkpoint directory holds one training-state file per rank
// (fp32 masters, moments) and, written by rank 0, the bf16 HF export of the whole model. Everything
// goes by ranges of rows (row_ranges.h): offloaded arrays are in memory by a range, and no rank has
// more of the others' rows than one.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "common/comm/communicator.h"
#include "common/formats/training_state.h"
#include "common/model_spec/model_spec.h"
#include "trainer_worker/shard/optimizer.h"
#include "trainer_worker/shard/parameter_shard.h"

namespace tandem {

// Fills the masters with this rank's rows of the HF checkpoint in `model_dir` and rounds them. Only
// those rows are read from disk. NotFound, InvalidArgument or DataLoss name file and tensor.
absl::Status LoadModel(const std::string& model_dir, const ModelSpec& spec, ParameterShard& shard);

using OpenMasters = std::function<absl::StatusOr<MasterRowsReader>()>;

// Fills masters, moments and the optimizer's counters from a checkpoint of any number of ranks.
// Returns the weight version that was saved. `settings`: what the run must agree on with it.
// `masters` opens `masters_file`, which has the masters that a state without them is of. Errors as
// TrainingStateReader, and those of `masters`; InvalidArgument where a state without masters is
// loaded without it.
absl::StatusOr<int64_t> LoadState(const std::string& directory,
                                  ParameterShard& shard,
                                  Optimizer& optimizer,
                                  const std::vector<SavedSetting>& settings = {},
                                  const std::string& masters_file = "",
                                  const OpenMasters& masters = nullptr);

// DataLoss where a checkpoint holds another weight version than it was loaded for.
absl::Status CheckSavedVersion(const std::string& directory, int64_t saved, int64_t expected);

struct SaveOptions {
  std::string directory;      // exists
  std::string tokenizer_dir;  // its tokenizer is copied next to the HF export
  int64_t version = 0;
  bool optimizer = true;               // with moments
  bool masters = true;                 // false: digests alone, where nothing is saved of moments
  bool hf_model = true;                // with the HF export
  std::vector<SavedSetting> settings;  // that a run which resumes from it must agree on
};

// Collective; files are synced. Every rank learns whether all succeeded. ResourceExhausted: the
// disk is full. Returns the bytes that this rank wrote. `policy` is what the HF export holds.
absl::StatusOr<int64_t> SaveState(const SaveOptions& options,
                                  const ModelSpec& spec,
                                  ParameterShard& shard,
                                  WeightRows& policy,
                                  const Optimizer& optimizer,
                                  Communicator& communicator,
                                  Ledger* ledger);

}  // namespace tandem
