// Where rounds ended that were cut by time or by groups, so that a step that is made again after a
// crash takes the same tokens.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "controller/partial_rollout/buffer/round_spec.h"

namespace tandem {

// One JSON line per round, in order of steps and rounds; the first line names the run. One
// thread at a time. A round that is appended once more with other cuts, or where later
// ones are known but not this one, begins another history: what was known from there on is
// dropped. Errors of the disk by IoErrorCode.
class CutJournal {
 public:
  // `run`: what the cuts belong to, as CutsIdentity and the settings that cut. A journal of another
  // run, or one that is none, is renamed to `path`.previous (or .previous-2 and so on), and note()
  // says so. A line that was being written when the process died is left out; a damaged one too,
  // with all that follow, and note() says so.
  static absl::StatusOr<std::unique_ptr<CutJournal>> Open(const std::string& path,
                                                          const std::string& run);
  ~CutJournal();
  CutJournal(const CutJournal&) = delete;
  CutJournal& operator=(const CutJournal&) = delete;

  // For the user; empty where nothing was left out.
  const std::string& note() const { return note_; }

  // Durable when it returns. Also of rounds that cut nothing: else they could be cut when they are
  // made again. What is there already is not written again.
  absl::Status Append(int64_t step, int64_t round, int64_t version, const RoundCuts& cuts);

  // nullopt: not made before, or by other weights.
  std::optional<RoundCuts> Find(int64_t step, int64_t round, int64_t version) const;
  // Whether a later round is known.
  bool KnowsAfter(int64_t step, int64_t round) const {
    return entries_.upper_bound(Place{step, round}) != entries_.end();
  }

  // Drops this round and all after it: they do not fit (SamplePool::CheckCuts).
  absl::Status ForgetFrom(int64_t step, int64_t round);
  // Drops the rounds of steps up to `step`, that of the oldest checkpoint that is kept: nobody goes
  // back behind it.
  absl::Status Prune(int64_t step);
  // Of a run that starts anew, or whose settings need no journal. Not of one that a recovery takes
  // back to the model: its steps are made again.
  absl::Status Clear();

 private:
  using Place = std::pair<int64_t, int64_t>;  // step, round
  struct Entry {
    int64_t version = 0;
    RoundCuts cuts;

    bool operator==(const Entry&) const = default;
  };

  CutJournal(std::string path, std::string run) : path_(std::move(path)), run_(std::move(run)) {}

  static std::string LineOf(const Place& place, const Entry& entry);
  static std::optional<std::pair<Place, Entry>> EntryOf(const std::string& line);
  absl::Status Read();
  // False: it is there already.
  bool Learn(const Place& place, Entry entry);
  // The file anew, of what is known.
  absl::Status Rewrite();
  absl::Status WriteLine(const std::string& line);

  const std::string path_;
  const std::string run_;
  std::string note_;
  std::map<Place, Entry> entries_;
  int fd_ = -1;
  int64_t end_ = 0;  // of the whole lines
};

}  // namespace tandem
