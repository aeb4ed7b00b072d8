// The sharded training state of a checkpoint: one safetensors file per rank with the rows of fp32
// masters and AdamW moments that the rank owns. The file says which rows they are, so that any
// number of ranks can resume from the files of any other number.
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

// Called for values before they are read, at most kRowRangeBytes at a time; returns their address
// in host memory, valid until the next call. Values that were read before are not needed again
// soon, so offloaded ones may be evicted.
using HostValues = std::function<absl::StatusOr<const float*>(const float* values, int64_t count)>;

// Writes dir/TrainingStateFileName(rank, world), complete or not at all. Reads the values twice, in
// order: once for the digests, which come first in the file, and once to write them. If
// `host_values` is null, the values are in host memory and are read in place. Errors as
// SafetensorsWriter and host_values; InvalidArgument: moments without masters.
absl::Status WriteTrainingState(const std::string& dir,
                                const TrainingStateHeader& header,
                                const std::vector<TrainingShard>& shards,
                                const HostValues& host_values = nullptr);

// A setting in which a run must agree with the checkpoint that it resumes from: a name in
// TrainingStateHeader::extra, which is also the name of the config key.
struct SavedSetting {
  std::string key;
  std::string value;   // the run's
  std::string absent;  // the value of a file that does not have the name
  std::string remedy;  // what to do if setting the key is no remedy; empty: set the key
};

// Reads rows of dim 0 of a tensor's masters that are stored outside the training state.
using MasterRowsReader = std::function<absl::Status(
    const std::string& name, int64_t row_begin, int64_t rows, float* out)>;

// The files of all ranks, read as one. Thread-safe. Values are mapped, and checked when they are
// first read.
class TrainingStateReader {
 public:
  enum class Part { kMaster, kExpAvg, kExpAvgSq };

  // NotFound names the missing file of a rank. InvalidArgument: ranks disagree (world, step,
  // moments), a setting differs from the run's, or one of `tensors` is absent, has another shape,
  // or has rows that no rank or two ranks own. DataLoss names a file with a corrupt header.
  static absl::StatusOr<std::unique_ptr<const TrainingStateReader>> Open(
      const std::string& dir,
      const std::vector<TensorSpec>& tensors,
      const std::vector<SavedSetting>& settings = {});

  // Rank 0's header; `world` is the number of ranks that wrote the state.
  const TrainingStateHeader& header() const { return headers_[0]; }
  // Reads rows of dim 0 into `out`. InvalidArgument: rows outside the tensor. FailedPrecondition:
  // masters or moments were not saved. DataLoss names a file whose bytes are not those that were
  // written.
  absl::Status ReadRows(
      const std::string& name, Part part, int64_t row_begin, int64_t rows, float* out) const;
  // Checks masters that `read` reads from elsewhere. DataLoss names `source` if they do not have
  // the digests that were saved. InvalidArgument: the tensor was not saved. Errors of `read` are
  // returned.
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
  // The rows of one part that a rank saved; their digest is checked at the first call.
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

// Names inside training-state files, used by their writer and reader.

// Increased when a reader of the old format could misread new files.
inline constexpr int64_t kTrainingStateFormat = 2;
inline constexpr char kTrainingStatePrefix[] = "training_state-";
// Key of the header's JSON in the safetensors metadata.
inline constexpr char kTrainingStateKey[] = "tandem_training_state";
// Key of TrainingStateDigest of that JSON.
inline constexpr char kTrainingStateDigestKey[] = "tandem_training_state_xxh3";
// Suffixes of a tensor's parts, in the order of TrainingStateReader::Part.
inline constexpr std::array<const char*, 3> kTrainingStateParts = {"/master", "/exp_avg",
                                                                   "/exp_avg_sq"};

// The 128-bit XXH3, as 32 hexadecimal digits, of a part's rows in the order of the file. If `read`
// is not null, it is called for every range of at most kRowRangeBytes after the range was read.
std::string TrainingStateDigest(const void* data,
                                size_t bytes,
                                const std::function<void(const void*, size_t)>& read = nullptr);

}  // namespace tandem
