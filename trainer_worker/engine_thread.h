// The thread that owns a worker's state: other threads queue work for it and wait for the result.
#pragma once

#include <atomic>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <utility>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "common/base/bounded_queue.h"
#include "common/process/threads.h"

namespace tandem {

// Thread-safe. Work runs in the order of the calls.
class EngineThread {
 public:
  explicit EngineThread(const std::string& name)
      : queue_(kCapacity), thread_(name, [this] { Loop(); }) {}
  ~EngineThread() { Stop(); }
  EngineThread(const EngineThread&) = delete;
  EngineThread& operator=(const EngineThread&) = delete;

  // Runs `work` on the thread and returns its result. Unavailable after Stop.
  template <typename T>
  absl::StatusOr<T> Call(std::function<absl::StatusOr<T>()> work) {
    auto result = std::make_shared<std::promise<absl::StatusOr<T>>>();
    std::future<absl::StatusOr<T>> future = result->get_future();
    const bool queued = queue_.Push([this, result, work = std::move(work)] {
      result->set_value(stopping_ ? absl::StatusOr<T>(Stopping()) : work());
    });
    return queued ? future.get() : absl::StatusOr<T>(Stopping());
  }

  // Waits for the work in progress, refuses queued work, and joins the thread. Idempotent. Must not
  // be called by the thread itself.
  void Stop() {
    stopping_ = true;
    queue_.Close();
    thread_.Join();
  }

 private:
  static constexpr size_t kCapacity = 64;
  static absl::Status Stopping() { return absl::UnavailableError("this worker is shutting down"); }
  void Loop() {
    while (auto work = queue_.Pop()) (*work)();
  }

  BoundedQueue<std::function<void()>> queue_;
  std::atomic<bool> stopping_ = false;
  NamedThread thread_;
};

}  // namespace tandem
