// Keeps a client's running calls, so that another thread can cancel them.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <type_traits>
#include <utility>

#include <absl/base/thread_annotations.h>
#include <absl/status/status.h>
#include <absl/status/statusor.h>
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
  // can cancel it. Errors as FromServiceStatus.
  template <typename Rpc>
  absl::Status Run(absl::Duration timeout, const Rpc& rpc) {
    grpc::ClientContext context;
    const CallDeadline deadline(context, timeout);
    const OutsideWait wait;
    Add(&context);
    const grpc::Status status = rpc(&context);
    Remove(&context);
    return FromServiceStatus(deadline.Explain(status));
  }

 private:
  Mutex calls_mutex_;
  std::set<grpc::ClientContext*> calls_ ABSL_GUARDED_BY(calls_mutex_);
};

// Starts `method` of a stub's asynchronous interface: a call that occupies no thread while it runs,
// and that `calls` can cancel. `done(absl::StatusOr<Response>)` is called exactly once, by a thread
// of gRPC's. Ends within `timeout` (CallDeadline). Errors as FromServiceStatus.
template <typename Async, typename Request, typename Response, typename Done>
void StartCall(std::shared_ptr<CallTracker> calls,
               absl::Duration timeout,
               std::type_identity_t<Async>* async,
               void (Async::*method)(grpc::ClientContext*,
                                     const Request*,
                                     Response*,
                                     std::function<void(grpc::Status)>),
               Request request,
               Done done) {
  struct Running {
    grpc::ClientContext context;
    std::optional<CallDeadline> deadline;
    Request request;
    Response response;
  };
  auto running = std::make_shared<Running>();
  running->request = std::move(request);
  running->deadline.emplace(running->context, timeout);
  calls->Add(&running->context);
  (async->*method)(&running->context, &running->request, &running->response,
                   [calls, running, done = std::move(done)](const grpc::Status& ended) {
                     calls->Remove(&running->context);
                     const absl::Status status =
                         FromServiceStatus(running->deadline->Explain(ended));
                     done(status.ok() ? absl::StatusOr<Response>(std::move(running->response))
                                      : absl::StatusOr<Response>(status));
                   });
}

}  // namespace tandem
