// Records where rounds that end by time or by complete groups interrupted their samples, so that a
// step that is repeated after a crash trains on the same tokens.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "common/formats/file_io.h"
#include "controller/partial_rollout/buffer/round_spec.h"

namespace tandem {

// A file with one JSON line per round, ordered by step and round; the first line names the run.
// Used by one thread at a time. Appending a round again with other interruption points, or a round
// before others that are known, begins another history: the entries from that round on are dropped.
// Errors of the disk by IoErrorCode.
class RoundJournal {
 public:
  // Writes a line to the end of a file, `end`, and to the disk; as AppendOrCutBack.
  using Writer = std::function<AppendResult(int fd, const std::string& line, int64_t end)>;

  // `run` identifies the runs that may share the journal: RoundJournalIdentity and the settings
  // that end rounds. A journal of another run, or a file that is not a journal, is renamed to
  // `path`.previous (or .previous-2 and so on), with a note(). A last line that the process did not
  // finish writing is ignored; a damaged line is ignored together with all that follow it, with a
  // note(). `writer`: for tests, of lines that are added.
  static absl::StatusOr<std::unique_ptr<RoundJournal>> Open(const std::string& path,
                                                            const std::string& run,
                                                            Writer writer = AppendDurably);
  // For a run that begins anew: knows no rounds and leaves the file alone until Clear, which must
  // be called before the first Append.
  static std::unique_ptr<RoundJournal> OpenUnread(const std::string& path, const std::string& run);
  ~RoundJournal();
  RoundJournal(const RoundJournal&) = delete;
  RoundJournal& operator=(const RoundJournal&) = delete;

  // A message for the user about lines that Open ignored; empty where it ignored none.
  const std::string& note() const { return note_; }

  // Durable when it returns. Rounds that interrupted nothing are recorded too: without an entry
  // they could be interrupted when they are repeated. An entry that is known already is not written
  // again.
  absl::Status Append(int64_t step,
                      int64_t round,
                      int64_t version,
                      const InterruptionPoints& points);

  // nullopt: the round is not known, or other weights sampled it.
  std::optional<InterruptionPoints> Find(int64_t step, int64_t round, int64_t version) const;
  // Whether a later round is known.
  bool KnowsAfter(int64_t step, int64_t round) const {
    return entries_.upper_bound(Place{step, round}) != entries_.end();
  }

  // Drops this round and all later ones, as they do not fit the buffer
  // (Round::CheckInterruptionPoints). Leaves the file alone, where the next line overrules them.
  void ForgetFrom(int64_t step, int64_t round);
  // Drops the rounds of steps up to `step`, that of the oldest checkpoint that is kept: no recovery
  // goes back behind it.
  absl::Status Prune(int64_t step);
  // Begins an empty file, for a run that begins anew, or whose settings need no journal. Not for a
  // recovery that goes back to the model: the run's steps are repeated then.
  absl::Status Clear();

 private:
  using Place = std::pair<int64_t, int64_t>;  // step, round
  struct Entry {
    int64_t version = 0;
    InterruptionPoints points;

    bool operator==(const Entry&) const = default;
  };

  RoundJournal(std::string path, std::string run, Writer writer)
      : path_(std::move(path)), run_(std::move(run)), writer_(std::move(writer)) {}
  static AppendResult AppendDurably(int fd, const std::string& line, int64_t end);

  static std::string ToLine(const Place& place, const Entry& entry);
  static std::optional<std::pair<Place, Entry>> ParseLine(const std::string& line);
  absl::Status Read();
  // Drops what was known of this round and all later ones.
  void Learn(const Place& place, Entry entry);
  // Replaces the file by the known entries.
  absl::Status Rewrite();
  absl::Status WriteLine(const std::string& line);

  const std::string path_;
  const std::string run_;
  const Writer writer_;
  std::string note_;
  std::map<Place, Entry> entries_;
  int fd_ = -1;
  int64_t end_ = 0;  // bytes of the complete lines
};

}  // namespace tandem
