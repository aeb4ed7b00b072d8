#include "common/process/threads.h"

#include <algorithm>
#include <string>
#include <utility>

#include <immintrin.h>
#include <pthread.h>

#include "common/base/check.h"
#include "common/base/progress.h"
#include "common/process/cores.h"

namespace tandem {

NamedThread::NamedThread(const std::string& name, std::function<void()> body)
    : thread_([name, body = std::move(body)] {
        pthread_setname_np(pthread_self(), name.substr(0, 15).c_str());
        body();
      }) {}

namespace {

// About 20 microseconds of pauses on Intel CPUs, less on others. The next op of a layer usually
// starts within this time.
constexpr int kSpins = 400;

class ScopedFlushDenormals {
 public:
  ScopedFlushDenormals() : saved_(_mm_getcsr()) { _mm_setcsr(saved_ | 0x8040u); }
  ~ScopedFlushDenormals() { _mm_setcsr(saved_); }
  ScopedFlushDenormals(const ScopedFlushDenormals&) = delete;
  ScopedFlushDenormals& operator=(const ScopedFlushDenormals&) = delete;

 private:
  unsigned saved_;
};

}  // namespace

ThreadPool::ThreadPool(int threads, std::vector<int> cores)
    : threads_(std::max(threads, 1)),
      cores_(std::move(cores)),
      shares_(new Share[static_cast<size_t>(threads_)]) {
  TANDEM_CHECK(cores_.empty() || std::ssize(cores_) >= threads_, "a thread has no core");
  for (int thread = 1; thread < threads_; ++thread) {
    workers_.emplace_back("ops-" + std::to_string(thread), [this, thread] { Work(thread); });
  }
}

ThreadPool::~ThreadPool() {
  stopping_ = true;
  jobs_.fetch_add(1);
  jobs_.notify_all();
  for (NamedThread& worker : workers_) worker.Join();
}

void ThreadPool::Run(int64_t tasks, void* context, TaskFunction function) {
  if (tasks <= 0) return;
  TANDEM_CHECK(!called_.exchange(true, std::memory_order_acquire),
               "ThreadPool::Run was called by a second thread or from a task");
  const ScopedFlushDenormals flush;
  if (threads_ == 1 || tasks == 1) {
    for (int64_t task = 0; task < tasks; ++task) {
      function(context, task, 0);
      NoteProgress();
    }
  } else {
    Spread(tasks, context, function);
  }
  called_.store(false, std::memory_order_release);
}

void ThreadPool::Spread(int64_t tasks, void* context, TaskFunction function) {
  context_ = context;
  function_ = function;
  for (int thread = 0; thread < threads_; ++thread) {
    Share& share = shares_[static_cast<size_t>(thread)];
    share.end = tasks * (thread + 1) / threads_;
    share.next.store(tasks * thread / threads_, std::memory_order_relaxed);
  }
  open_.store(true);
  jobs_.fetch_add(1);
  jobs_.notify_all();
  DrawTasks(0);
  // Threads that have not joined by now find the job closed, so that the caller waits for none that
  // sleeps.
  open_.store(false);
  for (int spin = 0;; ++spin) {
    const uint32_t inside = inside_.load();
    if (inside == 0) return;
    if (spin < kSpins) {
      _mm_pause();
    } else {
      inside_.wait(inside);
    }
  }
}

void ThreadPool::DrawTasks(int thread) {
  for (int i = 0; i < threads_; ++i) DrawShare((thread + i) % threads_, thread);
}

void ThreadPool::DrawShare(int share, int thread) {
  Share& tasks = shares_[static_cast<size_t>(share)];
  for (;;) {
    const int64_t task = tasks.next.fetch_add(1, std::memory_order_relaxed);
    if (task >= tasks.end) return;
    function_(context_, task, thread);
    NoteProgress();  // of the caller alone: no other thread has a WorkStep
  }
}

void ThreadPool::AwaitJob(uint32_t seen) {
  for (int spin = 0; spin < kSpins; ++spin) {
    if (jobs_.load(std::memory_order_acquire) != seen) return;
    _mm_pause();
  }
  jobs_.wait(seen);
}

void ThreadPool::Work(int thread) {
  if (!cores_.empty()) PinThisThread(cores_[static_cast<size_t>(thread)]);
  const ScopedFlushDenormals flush;
  for (uint32_t seen = 0;;) {
    AwaitJob(seen);
    seen = jobs_.load();           // missed jobs are finished
    if (stopping_.load()) return;  // set before the last increment
    // The order matters: the caller closes the job, then waits for `inside_` to become zero.
    inside_.fetch_add(1);
    if (open_.load()) DrawTasks(thread);
    if (inside_.fetch_sub(1) == 1) inside_.notify_one();
  }
}

}  // namespace tandem
