// A joining thread whose name shows up in gdb, top and the log.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

namespace tandem {

// Starts `body` at once. The destructor joins: whoever owns it must first make `body` return.
class NamedThread {
 public:
  NamedThread() = default;
  NamedThread(const std::string& name, std::function<void()> body);
  NamedThread(NamedThread&&) = default;
  NamedThread& operator=(NamedThread&&) = default;
  void Join() {
    if (thread_.joinable()) thread_.join();
  }

 private:
  std::jthread thread_;
};

// The compute threads of a process: its ops, its optimizer and its digests share them. Work is cut
// into tasks; every thread first draws those of its own share, which lies at the same place from
// call to call and so in its caches, then what others have left. Which thread runs a task never
// shows in the result. Threads that find nothing to do spin for a few microseconds, because ops
// follow each other closely, and then sleep, because the processes of a pair take turns on the same
// cores.
//
// Every task runs with denormals flushed to zero (DAZ and FTZ), the caller's tasks included; a task
// that must keep them says so itself (adamw.cc).

// Rows of an elementwise op worth a task of their own.
inline constexpr int64_t kRowGrain = 4;

// One caller at a time, and no call from a task: that is checked. The destructor joins the threads.
class ThreadPool {
 public:
  // `threads` counts the caller; 1 starts no thread. `cores` has a core for every thread, on which
  // those that it starts stay; the first is the caller's, who sees to that itself (PinThisThread).
  // Empty: they run anywhere.
  explicit ThreadPool(int threads, std::vector<int> cores = {});
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return threads_; }

  // Calls body(task, thread) for every task in [0, tasks), thread in [0, threads()). Returns when
  // all are done.
  template <typename Body>
  void ParallelFor(int64_t tasks, Body&& body) {
    using Function = std::remove_reference_t<Body>;
    Run(tasks, const_cast<void*>(static_cast<const void*>(&body)),
        [](void* context, int64_t task, int thread) {
          (*static_cast<Function*>(context))(task, thread);
        });
  }

  // The same for rows in [0, rows), by runs of at least `grain`: body(first, last, thread).
  template <typename Body>
  void ParallelRows(int64_t rows, int64_t grain, Body&& body) {
    if (rows <= 0) return;
    const int64_t pieces = threads_ == 1 ? 1 : threads_ * int64_t{4};
    const int64_t run = std::max(grain, (rows + pieces - 1) / pieces);
    ParallelFor((rows + run - 1) / run, [&](int64_t task, int thread) {
      body(task * run, std::min(rows, (task + 1) * run), thread);
    });
  }

 private:
  using TaskFunction = void (*)(void* context, int64_t task, int thread);

  void Run(int64_t tasks, void* context, TaskFunction function);
  // With the other threads.
  void Spread(int64_t tasks, void* context, TaskFunction function);
  void Work(int thread);
  void DrawTasks(int thread);
  void DrawShare(int share, int thread);
  void AwaitJob(uint32_t seen);

  const int threads_;
  const std::vector<int> cores_;
  std::atomic<uint32_t> jobs_{0};    // bumped for every job and to stop
  std::atomic<uint32_t> inside_{0};  // pool threads that look at the job's fields
  std::atomic<bool> open_{false};    // the job's fields may be used
  std::atomic<bool> stopping_{false};
  struct alignas(64) Share {
    std::atomic<int64_t> next{0};
    int64_t end = 0;
  };
  const std::unique_ptr<Share[]> shares_;  // one per thread
  void* context_ = nullptr;
  TaskFunction function_ = nullptr;
  std::atomic<bool> called_{false};  // somebody is in Run; not where waiting threads look
  std::vector<NamedThread> workers_;
};

}  // namespace tandem
