// What the controller asks of one rollout worker.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "common/types/ledger_snapshot.h"
#include "common/types/sample.h"

namespace tandem {

// The samples wanted of one prompt.
struct GroupRequest {
  std::string request_id;
  int64_t version = -1;  // weight version that must sample; -1: whatever is served
  std::vector<int32_t> prompt;
  std::vector<uint64_t> sample_ids;
  SamplingParams params;
  int64_t group = 0;       // echoed in the samples
  int rank = -1;           // of the only rollout that may generate it; -1: any
  bool log_probs = false;  // with every token, also if rollout.calculate_log_probs is false
  // Empty, or one for each of sample_ids: they go on from there.
  std::vector<Continuation> continued;
  // Instead of `continued`, unless empty: one for each of `sample_ids`, which are some of those
  // above. RolloutDispatcher asks right before it sends them, and again before it sends them again,
  // so that the arrays are held no longer than that takes.
  std::function<absl::StatusOr<std::vector<Continuation>>(const std::vector<uint64_t>& sample_ids)>
      load_continued;
  // A round that ends early (RolloutDispatcher::Options::cut) leaves it where it is; false: it runs
  // to its end even so.
  bool may_be_cut = false;

  // Replicas that were lost while they generated it, and how often it was all they had to do.
  int losses = 0;
  int losses_alone = 0;
};

enum class SleepMode {
  kDrainOnly,  // finish what runs, void the caches, keep the memory
  kLevel1,     // drop the KV cache, keep weights in host memory
  kLevel2,     // drop both
};

// What a rollout reports when it is sent to sleep.
struct SleepReports {
  PhaseReport generate;  // of the time since its last report
  PhaseReport sleep;
};

// Thread-safe. Errors: Unavailable, DeadlineExceeded: the worker is gone or late; Aborted: another
// incarnation serves there; Cancelled: CancelAll; FailedPrecondition: its state does not allow it.
class RolloutClient {
 public:
  virtual ~RolloutClient() = default;

  // Returns at once. `on_sample` is called for every finished sample, then `on_done` exactly once,
  // from a thread of the client, never while this call runs on the same thread with a lock held.
  virtual void Generate(const GroupRequest& request,
                        std::function<void(Sample)> on_sample,
                        std::function<void(absl::Status)> on_done) = 0;

  // Aborts the named requests at the worker (all when empty): their samples come with what they
  // have so far, as kAborted. Idempotent.
  virtual absl::Status Abort(const std::vector<std::string>& request_ids) = 0;
  virtual absl::StatusOr<SleepReports> Sleep(SleepMode mode) = 0;
  // `tags`: "weights", "kv_cache"; empty: both.
  virtual absl::StatusOr<PhaseReport> Wake(const std::vector<std::string>& tags) = 0;
  // Whether the rollout still holds every byte of `version` as it was accepted. DataLoss names the
  // first tensor that differs.
  virtual absl::StatusOr<PhaseReport> VerifyWeights(int64_t version) = 0;
  // Tokens of prompts and of what continued samples came with that the process has computed since
  // it began, those that it computed again after a preemption included.
  virtual absl::StatusOr<int64_t> PrefilledTokens() = 0;
  // Ends an update that a lost trainer left open, whatever its version. Idempotent; nothing happens
  // when none is open.
  virtual absl::Status AbortUpdate(const std::string& reason) = 0;
  virtual absl::Status Shutdown() = 0;

  // Ends every call under way with Cancelled.
  virtual void CancelAll() = 0;

  virtual std::string address() const = 0;
  virtual int64_t incarnation() const = 0;
};

}  // namespace tandem
