// RUN_DIR/blackbox: what a controller did last, also where it was killed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "controller/store/run_store.h"

namespace tandem {

inline constexpr size_t kBlackboxBytes = 64 << 10;

enum class BlackboxKind : uint8_t {
  kStart = 1,  // of a controller; text: the run's id, worker: a digest of all of it (IsStartOf)
  kPhase,      // text: its name; "": between two phases
  kEnd,        // of a controller, not killed; code: RunOutcome, text: the error
  kCall,       // to a worker; text: the method
  kAnswer      // of a worker; text: the method, code: absl::StatusCode
};

struct BlackboxRecord {
  uint64_t seq = 0;  // ascending over all records
  int64_t time_us = 0;
  int64_t step = 0;
  BlackboxKind kind = BlackboxKind::kStart;
  int code = 0;
  std::string worker;  // "trainer 0"; "": of none
  std::string text;    // cut to 64 bytes
};

// Whether the run with this id, which may be longer than a record's text, began with this record.
bool IsStartOf(const BlackboxRecord& record, const std::string& run_id);

// Writes a ring of records into a mapped file of kBlackboxBytes: the kernel keeps what was written
// however the process ends, and nothing is ever synced to the disk, so a note costs no more than a
// copy. Calls are frequent and have a ring of their own, so that they never push out phases;
// nothing pushes out the newest start. A next controller goes on in the ring. Thread-safe.
class Blackbox {
 public:
  // Makes the file with mode 0600, its blocks allocated, and notes the start. A file that is none
  // of ours is written anew. Errors by IoErrorCode.
  static absl::StatusOr<std::unique_ptr<Blackbox>> Open(const std::string& path,
                                                        const std::string& run_id,
                                                        Clock& clock);
  // Notes an end of unknown outcome, unless one was noted.
  ~Blackbox();
  Blackbox(const Blackbox&) = delete;
  Blackbox& operator=(const Blackbox&) = delete;

  void NotePhase(int64_t step, std::string_view phase);
  void NoteCall(std::string_view worker, std::string_view method);
  void NoteAnswer(std::string_view worker, std::string_view method, absl::StatusCode code);
  void NoteEnd(RunOutcome outcome, std::string_view error);

 private:
  Blackbox(char* bytes, Clock& clock);
  void Note(BlackboxRecord record, std::string_view worker, std::string_view text);
  void Write(BlackboxRecord record, std::string_view worker, std::string_view text)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(ring_mutex_);

  Clock& clock_;
  Mutex ring_mutex_;
  char* const bytes_;  // what it points to is guarded by ring_mutex_
  uint64_t seq_ ABSL_GUARDED_BY(ring_mutex_) = 0;
  size_t next_mark_ ABSL_GUARDED_BY(ring_mutex_) = 0;
  size_t next_call_ ABSL_GUARDED_BY(ring_mutex_) = 0;
  int64_t step_ ABSL_GUARDED_BY(ring_mutex_) = 0;
  bool ended_ ABSL_GUARDED_BY(ring_mutex_) = false;
};

// All whole records, in order. A record that was being written when its process died is left out.
// NotFound: no file; DataLoss: no blackbox.
absl::StatusOr<std::vector<BlackboxRecord>> ReadBlackbox(const std::string& path);

}  // namespace tandem
