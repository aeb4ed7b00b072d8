// A thread with a name, and a pool of compute threads.
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

// Runs `body` in a thread whose name gdb and top show. The destructor joins the thread, so the
// owner must first make `body` return.
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

// The fewest rows of an elementwise op that are worth a task.
inline constexpr int64_t kRowGrain = 4;

// The compute threads of a process, shared by its ops, optimizer and digests. Work is divided into
// tasks. Every thread first runs the tasks of its own share, which covers the same part of the work
// in every call, so that the data is in its caches, and then tasks that are left of other shares.
// The result does not depend on which thread runs a task. An idle thread spins for a few
// microseconds, because ops follow each other closely, and then sleeps, because the processes of a
// pair take turns on the same cores.
//
// Every task runs with denormals flushed to zero (DAZ and FTZ), including those that the caller
// runs; a task that needs denormals turns this off itself (ScopedDenormals).
//
// A second concurrent caller, or a call from within a task, fails a TANDEM_CHECK. The destructor
// joins the threads.
class ThreadPool {
 public:
  // `threads` includes the caller; 1 starts no thread. `cores` has one core for every thread. The
  // first belongs to the caller, which pins itself (PinThisThread); the started threads are pinned
  // to the others. If `cores` is empty, no thread is pinned.
  explicit ThreadPool(int threads, std::vector<int> cores = {});
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return threads_; }

  // Calls body(task, thread) for every task in [0, tasks), with thread in [0, threads()). Returns
  // when all tasks are done.
  template <typename Body>
  void ParallelFor(int64_t tasks, Body&& body) {
    using Function = std::remove_reference_t<Body>;
    Run(tasks, const_cast<void*>(static_cast<const void*>(&body)),
        [](void* context, int64_t task, int thread) {
          (*static_cast<Function*>(context))(task, thread);
        });
  }

  // Divides rows [0, rows) into runs of at least `grain` and calls body(first, last, thread) for
  // each.
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
  // Runs the tasks on all threads.
  void Spread(int64_t tasks, void* context, TaskFunction function);
  void Work(int thread);
  void DrawTasks(int thread);
  void DrawShare(int share, int thread);
  void AwaitJob(uint32_t seen);

  const int threads_;
  const std::vector<int> cores_;
  std::atomic<uint32_t> jobs_{0};    // incremented for every job and to stop
  std::atomic<uint32_t> inside_{0};  // started threads that use the job's fields
  std::atomic<bool> open_{false};    // the job's fields may be used
  std::atomic<bool> stopping_{false};
  struct alignas(64) Share {
    std::atomic<int64_t> next{0};
    int64_t end = 0;
  };
  const std::unique_ptr<Share[]> shares_;  // one per thread
  void* context_ = nullptr;
  TaskFunction function_ = nullptr;
  std::atomic<bool> called_{false};  // a call of Run is active
  std::vector<NamedThread> workers_;
};

}  // namespace tandem
