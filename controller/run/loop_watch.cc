#include "controller/run/loop_watch.h"

#include <unistd.h>

#include "common/base/log.h"
#include "common/process/thread_stacks.h"

namespace tandem {
namespace {

constexpr absl::Duration kLookEvery = absl::Milliseconds(200);

}  // namespace

void LoopWatch::Poll(const std::vector<ThreadProgress>& threads) {
  const auto still = meter_.Look(threads, clock_.Now());
  if (still && still->time >= notifier_.interval()) {
    TellOnce(*still);
    return;
  }
  told_ = false;
  notifier_.KeepAlive();
}

void LoopWatch::TellOnce(const Standstill& still) {
  if (told_) return;
  told_ = true;
  WriteThreadStacks(STDERR_FILENO);
  LogWarn(
      "the train loop has made no progress for {}, {}; the stacks of all threads are above. "
      "Keep-alives stop until it continues, so the supervisor may restart the controller "
      "(cluster.watchdog_seconds)",
      absl::FormatDuration(still.time), still.progress.Text());
}

SignsOfLife::SignsOfLife() : loop_(notifier_, RealClock()) {
  thread_ = NamedThread("signs of life", [this] {
    while (!over_) {
      loop_.Poll();
      RealClock().Sleep(kLookEvery);
    }
  });
}

SignsOfLife::~SignsOfLife() {
  over_ = true;
  thread_.Join();
}

}  // namespace tandem
