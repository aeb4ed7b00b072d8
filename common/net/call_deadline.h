// Ends a call whose peer gives no sign of life for too long.
#pragma once

#include <memory>

#include <absl/time/time.h>

namespace grpc {
class ClientContext;
class Status;
}  // namespace grpc

namespace tandem {

// Cancels the call of `context` when its peer was silent for `limit`. gRPC's own deadlines would
// count the time during which this process was stopped, and would count the whole call where only
// silence is meant; this one asks RealClock(), and Renew() starts the limit anew. One thread serves
// all deadlines of the process. Thread-safe; the context must outlive it.
class CallDeadline {
 public:
  CallDeadline(grpc::ClientContext& context, absl::Duration limit);
  ~CallDeadline();
  CallDeadline(const CallDeadline&) = delete;
  CallDeadline& operator=(const CallDeadline&) = delete;

  // The peer has given a sign of life.
  void Renew();

  // The status of the ended call: DeadlineExceeded, with the limit, in place of Cancelled where it
  // was this deadline that cancelled it.
  grpc::Status Explain(const grpc::Status& status) const;

 private:
  struct Watched;
  class Watch;

  const absl::Duration limit_;
  const std::shared_ptr<Watched> watched_;
};

}  // namespace tandem
