#include "common/net/call_deadline.h"

#include <algorithm>
#include <chrono>
#include <set>
#include <utility>

#include <absl/base/thread_annotations.h>
#include <fmt/format.h>
#include <grpcpp/client_context.h>
#include <grpcpp/support/status.h>

#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/process/threads.h"

namespace tandem {

struct CallDeadline::Watched {
  grpc::ClientContext* context = nullptr;
  Instant deadline;
  bool passed = false;
};

namespace {

// A pause of the process moves every deadline without a notification, so the clock is read at least
// this often while calls run.
constexpr absl::Duration kLookEvery = absl::Seconds(1);

}  // namespace

// The calls that run now and the thread that cancels those whose deadline passes.
class CallDeadline::Watch {
 public:
  // Lives to the end of the process, because calls of static objects may end late.
  static Watch& OfProcess() {
    static Watch& watch = *new Watch();
    return watch;
  }

  void Add(const std::shared_ptr<Watched>& call) {
    const MutexLock lock(calls_mutex_);
    calls_.insert(call);
    if (call->deadline < next_look_) changed_.NotifyOne();
  }

  void Remove(const std::shared_ptr<Watched>& call) {
    const MutexLock lock(calls_mutex_);
    calls_.erase(call);
  }

  void Renew(const std::shared_ptr<Watched>& call, Instant deadline) {
    const MutexLock lock(calls_mutex_);
    call->deadline = deadline;
  }

  bool Passed(const std::shared_ptr<Watched>& call) {
    const MutexLock lock(calls_mutex_);
    return call->passed;
  }

 private:
  Watch() : canceller_("call deadlines", [this] { CancelSilentCalls(); }) {}

  void CancelSilentCalls() {
    const MutexLock lock(calls_mutex_);
    while (true) {
      const Instant now = RealClock().Now();
      next_look_ = calls_.empty() ? Instant::InfiniteFuture() : now + kLookEvery;
      for (const std::shared_ptr<Watched>& call : calls_) {
        if (call->passed) continue;
        if (call->deadline <= now) {
          call->passed = true;
          call->context->TryCancel();
        } else {
          next_look_ = std::min(next_look_, call->deadline);
        }
      }
      if (calls_.empty()) {
        changed_.Wait(calls_mutex_);
      } else {
        (void)changed_.WaitUntil(calls_mutex_, std::chrono::steady_clock::now() +
                                                   absl::ToChronoNanoseconds(next_look_ - now));
      }
    }
  }

  Mutex calls_mutex_;
  ConditionVariable changed_;
  std::set<std::shared_ptr<Watched>> calls_ ABSL_GUARDED_BY(calls_mutex_);
  Instant next_look_ ABSL_GUARDED_BY(calls_mutex_) = Instant::InfiniteFuture();
  NamedThread canceller_;
};

CallDeadline::CallDeadline(grpc::ClientContext& context, absl::Duration limit)
    : limit_(limit), watched_(std::make_shared<Watched>()) {
  watched_->context = &context;
  watched_->deadline = RealClock().Now() + limit;
  Watch::OfProcess().Add(watched_);
}

CallDeadline::~CallDeadline() { Watch::OfProcess().Remove(watched_); }

void CallDeadline::Renew() { Watch::OfProcess().Renew(watched_, RealClock().Now() + limit_); }

grpc::Status CallDeadline::Explain(const grpc::Status& status) const {
  const bool cancelled = status.error_code() == grpc::StatusCode::CANCELLED;
  if (!cancelled || !Watch::OfProcess().Passed(watched_)) return status;
  return {grpc::StatusCode::DEADLINE_EXCEEDED,
          fmt::format("no answer within {}", absl::FormatDuration(limit_))};
}

}  // namespace tandem
