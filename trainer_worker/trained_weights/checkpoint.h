// Reads and writes a rank's shard. A checkpoint directory holds one training-state file per rank
// (fp32 masters, moments) and, written by rank 0, the bf16 HF export of the complete model. All
// data is moved in ranges of rows (row_ranges.h): offloaded arrays are in memory one range at a
// time, and no rank holds more than one range of the other ranks' rows.
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

// Fills the masters with this rank's rows of the HF checkpoint in `model_dir` and rounds them.
// Reads only those rows from disk. NotFound, InvalidArgument or DataLoss name the file and the
// tensor.
absl::Status LoadModel(const std::string& model_dir, const ModelSpec& spec, ParameterShard& shard);

using OpenMasters = std::function<absl::StatusOr<MasterRowsReader>()>;

// Fills masters, moments and the optimizer's counters from a checkpoint of any number of ranks.
// Returns the saved weight version. `settings` must match those in the checkpoint. If the state was
// saved without masters, `masters` opens `masters_file`, which holds them. Errors as
// TrainingStateReader, and those of `masters`; InvalidArgument: the state has no masters, and
// `masters` is null.
absl::StatusOr<int64_t> LoadState(const std::string& directory,
                                  ParameterShard& shard,
                                  Optimizer& optimizer,
                                  const std::vector<SavedSetting>& settings = {},
                                  const std::string& masters_file = "",
                                  const OpenMasters& masters = nullptr);

// DataLoss: a checkpoint holds another weight version than expected.
absl::Status CheckSavedVersion(const std::string& directory, int64_t saved, int64_t expected);

struct SaveOptions {
  std::string directory;      // must exist
  std::string tokenizer_dir;  // the folder of the tokenizer that is copied next to the HF export
  int64_t version = 0;
  bool optimizer = true;  // save moments
  // Save masters, not only their digests; always saved together with moments.
  bool masters = true;
  bool hf_model = true;                // write the HF export
  std::vector<SavedSetting> settings;  // which a run that resumes from it must share
};

// Collective; files are synced to disk. Every rank learns whether all ranks succeeded. `policy`
// holds the rows of the HF export. Returns the bytes that this rank wrote. ResourceExhausted: the
// disk is full.
absl::StatusOr<int64_t> SaveState(const SaveOptions& options,
                                  const ModelSpec& spec,
                                  ParameterShard& shard,
                                  WeightRows& policy,
                                  const Optimizer& optimizer,
                                  Communicator& communicator,
                                  Ledger* ledger);

}  // namespace tandem
