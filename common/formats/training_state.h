// The sharded training state of a checkpoint: one safetensors file per rank with the fp32 master
// rows and AdamW's moments it owns. Rows say where they belong, so that any number of ranks can
// resume from the files of any other number.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "common/base/mutex.h"
#include "common/formats/safetensors.h"
#include "common/model_spec/model_spec.h"

namespace tandem {

struct TrainingStateHeader {
  int64_t rank = 0;
  int64_t world = 1;
  int64_t step = 0;            // training steps done; equal in all ranks
  int64_t optimizer_step = 0;  // AdamW's own counter (bias correction); equal in all ranks
  bool has_moments = false;    // false before the first optimizer step: moments are made lazily
  std::map<std::string, std::string> extra;  // the rank's own: random state, positions, ...
  // false: the file has rows and digests of the masters, whose values are in another file of the
  // checkpoint. Not with moments.
  bool has_masters = true;
};

// What one rank owns of one tensor: rows [row_begin, row_begin + rows) of dim 0, none included.
struct TrainingShard {
  std::string name;            // HF spelling
  std::vector<int64_t> shape;  // of the whole tensor
  int64_t row_begin = 0;
  int64_t rows = 0;
  const float* master = nullptr;   // rows * row elements each
  const float* exp_avg = nullptr;  // ignored without has_moments
  const float* exp_avg_sq = nullptr;
};

// "training_state-00001-of-00002.safetensors"
std::string TrainingStateFileName(int64_t rank, int64_t world);

// Asked for values before they are read, at most kRowRangeBytes of them at a time: where the host
// has them until the next call. What was read before is not looked at again soon: offloaded values
// may leave the memory.
using HostValues = std::function<absl::StatusOr<const float*>(const float* values, int64_t count)>;

// Writes dir/TrainingStateFileName(rank, world), whole or not at all. Reads the values twice, in
// order: for the digests, which come first in the file, and to write them. A null `host_values`:
// the values are in host memory and are read in place. Errors as SafetensorsWriter, and
// host_values' own; InvalidArgument for moments without masters.
absl::Status WriteTrainingState(const std::string& dir,
                                const TrainingStateHeader& header,
                                const std::vector<TrainingShard>& shards,
                                const HostValues& host_values = nullptr);

// What a run has to agree on with a checkpoint that it goes on from: a name in
// TrainingStateHeader::extra, also that of a config key.
struct SavedSetting {
  std::string key;
  std::string value;   // the run's
  std::string absent;  // what a file without the name stands for
  std::string remedy;  // where setting the key is none; empty: it is
};

// Rows of dim 0 of a tensor from where the masters are that a training state leaves out.
using MasterRowsReader = std::function<absl::Status(
    const std::string& name, int64_t row_begin, int64_t rows, float* out)>;

// The files of all ranks as one. Thread-safe; values are mapped, and checked when they are first
// read.
class TrainingStateReader {
 public:
  enum class Part { kMaster, kExpAvg, kExpAvgSq };

  // NotFound names the file of a rank that is missing; InvalidArgument ranks that disagree (world,
  // step, moments), a setting with another value than the run's, and one of `tensors` that is
  // absent, has another shape, has rows that nobody or two ranks own; DataLoss a file whose header
  // is corrupt.
  static absl::StatusOr<std::unique_ptr<const TrainingStateReader>> Open(
      const std::string& dir,
      const std::vector<TensorSpec>& tensors,
      const std::vector<SavedSetting>& settings = {});

  // Rank 0's; `world` is the number of ranks that wrote.
  const TrainingStateHeader& header() const { return headers_[0]; }
  // Rows of dim 0 into `out`. InvalidArgument for rows outside the tensor; FailedPrecondition for
  // masters or moments that were not saved; DataLoss names a file whose bytes are not those that
  // were written.
  absl::Status ReadRows(
      const std::string& name, Part part, int64_t row_begin, int64_t rows, float* out) const;
  // Reads a tensor's masters from elsewhere. DataLoss names `source` where they do not have the
  // digests of those that were saved; InvalidArgument for a tensor that was not; read's own errors.
  absl::Status CheckMasters(const std::string& name,
                            const std::string& source,
                            const MasterRowsReader& read) const;

 private:
  struct Piece {
    int64_t row_begin = 0;
    int64_t rows = 0;
    size_t rank = 0;
    std::vector<std::string> digests;  // by Part
  };
  struct Entry {
    std::vector<int64_t> shape;
    std::vector<Piece> pieces;  // ascending, without gaps; empty shards left out
  };
  explicit TrainingStateReader(std::string dir) : dir_(std::move(dir)) {}
  absl::Status OpenRank(int64_t rank, int64_t world);
  absl::Status CheckHeaders() const;
  // The rows that a rank saved of one part; their digest is compared the first time.
  absl::StatusOr<TensorView> CheckedView(const std::string& name,
                                         Part part,
                                         const Piece& piece) const;
  absl::Status CheckSettings(const std::vector<SavedSetting>& settings) const;
  absl::Status CheckCoverage(const std::vector<TensorSpec>& tensors);

  std::string dir_;
  std::vector<std::shared_ptr<const SafetensorsFile>> files_;  // by rank
  std::vector<TrainingStateHeader> headers_;
  std::map<std::string, Entry> entries_;
  mutable Mutex checked_mutex_;
  // Rank and name of the tensors whose digest has been compared.
  mutable std::set<std::pair<size_t, std::string>> checked_ ABSL_GUARDED_BY(checked_mutex_);
};

// Names inside training-state files, shared by their writer and reader.

// Raised when a reader of the old number could misread the new files.
inline constexpr int64_t kTrainingStateFormat = 2;
inline constexpr char kTrainingStatePrefix[] = "training_state-";
// Key of the header's JSON in the safetensors metadata.
inline constexpr char kTrainingStateKey[] = "tandem_training_state";
// Key of TrainingStateDigest of that JSON.
inline constexpr char kTrainingStateDigestKey[] = "tandem_training_state_xxh3";
// Suffixes of a tensor's parts, in the order of TrainingStateReader::Part.
inline constexpr std::array<const char*, 3> kTrainingStateParts = {"/master", "/exp_avg",
                                                                   "/exp_avg_sq"};

// XXH3 of 128 bits, as 32 hexadecimal digits. Of a part: its rows in the order of the file. `read`
// (may be null) is told of every range of at most kRowRangeBytes once it was read.
std::string TrainingStateDigest(const void* data,
                                size_t bytes,
                                const std::function<void(const void*, size_t)>& read = nullptr);

}  // namespace tandem
