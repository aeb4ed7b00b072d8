// The calls that the controller makes to one rollout worker, and their implementation over gRPC.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/time/time.h>

#include "common/types/ledger_snapshot.h"
#include "common/types/sample.h"
#include "controller/workers/done.h"
#include "controller/workers/trainer_group.h"

namespace tandem {

class CallObserver;

struct RpcSecurity;  // common/net/security/rpc_security.h

// Asks for samples of one prompt.
struct GroupRequest {
  std::string request_id;
  int64_t version = -1;  // weight version that must sample; -1: the one that is served
  std::vector<int32_t> prompt;
  std::vector<uint64_t> sample_ids;
  SamplingParams params;
  int64_t group = 0;       // echoed in the samples
  int rank = -1;           // the only rollout that may generate the group; -1: any
  bool log_probs = false;  // return them even if rollout.calculate_log_probs is false
  // Empty, or for each of sample_ids the tokens after which its generation continues.
  std::vector<Continuation> continued;
  // Unless empty, used instead of `continued`: returns one Continuation for each of `sample_ids`,
  // which are a subset of those above. RolloutDispatcher calls it right before it sends the
  // samples, and again before it sends them again, so that the arrays are in memory only during the
  // send.
  std::function<absl::StatusOr<std::vector<Continuation>>(const std::vector<uint64_t>& sample_ids)>
      load_continued;
  // Whether a round that ends early (RolloutDispatcher::Options::end_round) may interrupt the
  // group; false: the group is generated to its end.
  bool interruptible = false;

  // How many replicas were lost while they generated the group, and how many of these generated
  // nothing else.
  int losses = 0;
  int losses_alone = 0;
};

enum class SleepMode {
  kDrainOnly,  // finish what runs, close admission until Wake, release no memory
  kLevel1,     // drop the KV cache, keep weights in host memory
  kLevel2,     // drop both
};

// A rollout's reports when it goes to sleep.
struct SleepReports {
  PhaseReport generate;  // covers the time since its last report
  PhaseReport sleep;
};

// The calls to one rollout. None waits: each returns at once, and `done` hears of its end. A call
// that an implementation does not override ends with Unimplemented, so that a fake implements only
// the calls that its tests make. Thread-safe. Errors: Unavailable, DeadlineExceeded: the worker is
// lost or late; Aborted: another incarnation serves at the address; Cancelled: CancelAll;
// FailedPrecondition: its state does not allow it.
class RolloutClient {
 public:
  virtual ~RolloutClient() = default;

  // `on_sample` is called for every finished sample, then `on_done` exactly once, from a thread of
  // the client, never while this call runs on the same thread with a lock held.
  virtual void Generate(const GroupRequest& /*request*/,
                        std::function<void(Sample)> /*on_sample*/,
                        StatusDone on_done) {
    on_done(Unimplemented("Generate"));
  }

  // Aborts the named requests at the worker (all when empty). Their samples arrive with the tokens
  // generated so far, as kAborted. Idempotent.
  virtual void Abort(const std::vector<std::string>& /*request_ids*/, StatusDone done) {
    done(Unimplemented("Abort"));
  }
  virtual void Sleep(SleepMode /*mode*/, Done<SleepReports> done) { done(Unimplemented("Sleep")); }
  // `tags`: "weights", "kv_cache"; empty: both.
  virtual void Wake(const std::vector<std::string>& /*tags*/, Done<PhaseReport> done) {
    done(Unimplemented("Wake"));
  }
  // Checks that the rollout still holds every byte of `version` as it was accepted. DataLoss names
  // the first tensor that differs.
  virtual void VerifyWeights(int64_t /*version*/, Done<PhaseReport> done) {
    done(Unimplemented("VerifyWeights"));
  }
  // Tokens that the process has prefilled since it started: of prompts, of continued samples, and
  // those computed again after a preemption.
  virtual void PrefilledTokens(Done<int64_t> done) { done(Unimplemented("PrefilledTokens")); }
  // Ends an update of any version that a lost trainer left open. Without effect if none is open.
  virtual void AbortUpdate(const std::string& /*reason*/, StatusDone done) {
    done(Unimplemented("AbortUpdate"));
  }
  virtual void Shutdown(StatusDone done) { done(Unimplemented("Shutdown")); }

  // Ends all calls that are under way with Cancelled.
  virtual void CancelAll() = 0;

  virtual std::string address() const = 0;
  virtual int64_t incarnation() const = 0;

 private:
  static absl::Status Unimplemented(const char* call);
};

// A client over gRPC. `timeout` bounds every call that does a phase's work
// (cluster.rpc_timeout_seconds). Without `group` the rollout is told of no group of trainers.
absl::StatusOr<std::shared_ptr<RolloutClient>> MakeGrpcRolloutClient(
    const std::string& address,
    int64_t incarnation,
    absl::Duration timeout,
    const RpcSecurity& security,
    std::shared_ptr<CallObserver> observer = nullptr,
    std::shared_ptr<TrainerGroup> group = nullptr);

}  // namespace tandem
