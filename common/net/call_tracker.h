// Keeps a client's running calls, so that another thread can cancel them.
#pragma once

#include <set>

#include <absl/base/thread_annotations.h>
#include <absl/status/status.h>
#include <absl/time/time.h>
#include <grpcpp/client_context.h>
#include <grpcpp/support/status.h>

#include "common/base/mutex.h"
#include "common/base/progress.h"
#include "common/net/call_deadline.h"
#include "common/net/grpc_status.h"

namespace tandem {

// Thread-safe. Contexts must be removed before they are destroyed.
class CallTracker {
 public:
  void Add(grpc::ClientContext* context) {
    const MutexLock lock(calls_mutex_);
    calls_.insert(context);
  }
  void Remove(grpc::ClientContext* context) {
    const MutexLock lock(calls_mutex_);
    calls_.erase(context);
  }
  // Running calls end with Cancelled; later ones are not affected.
  void CancelAll() {
    const MutexLock lock(calls_mutex_);
    for (grpc::ClientContext* call : calls_) call->TryCancel();
  }

  // Runs `rpc(grpc::ClientContext*) -> grpc::Status` within `timeout` (CallDeadline); CancelAll
  // can cancel it.
  template <typename Rpc>
  absl::Status Run(absl::Duration timeout, const Rpc& rpc) {
    grpc::ClientContext context;
    const CallDeadline deadline(context, timeout);
    const OutsideWait wait;
    Add(&context);
    const grpc::Status status = rpc(&context);
    Remove(&context);
    return FromGrpcStatus(deadline.Explain(status));
  }

 private:
  Mutex calls_mutex_;
  std::set<grpc::ClientContext*> calls_ ABSL_GUARDED_BY(calls_mutex_);
};

}  // namespace tandem
