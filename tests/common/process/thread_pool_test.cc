#include <csignal>
#include <thread>

#include <catch2/catch.hpp>
#include <sys/wait.h>
#include <unistd.h>
#include <xmmintrin.h>

#include "common/process/threads.h"
#include "tests/support/own_progress.h"

namespace tandem {
namespace {

// How a process ends that calls `misuse` on a pool.
int EndOf(void (*misuse)(ThreadPool& pool)) {
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    std::signal(SIGABRT, SIG_DFL);  // not the test's own handler
    close(STDERR_FILENO);
    ThreadPool pool(2);
    misuse(pool);
    _exit(0);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

}  // namespace

TEST_CASE("ThreadPool runs every task once, whatever the number of threads", "[ops][pool]") {
  for (const int threads : {1, 2, 5}) {
    ThreadPool pool(threads);
    for (int job = 0; job < 300; ++job) {
      std::vector<std::atomic<int>> runs(static_cast<size_t>(job % 50));
      pool.ParallelFor(static_cast<int64_t>(runs.size()), [&](int64_t task, int thread) {
        if (thread >= 0 && thread < threads) ++runs[static_cast<size_t>(task)];
      });
      for (const std::atomic<int>& count : runs) REQUIRE(count == 1);
    }
  }
}

TEST_CASE("Every task that the caller of a ThreadPool runs is progress", "[ops][pool]") {
  for (const int threads : {1, 3}) {
    ThreadPool pool(threads);
    const int64_t before = testing::OwnProgress().moves;
    const std::thread::id caller = std::this_thread::get_id();
    int64_t own = 0;
    pool.ParallelFor(50, [&](int64_t, int) {
      if (std::this_thread::get_id() == caller) ++own;
    });
    REQUIRE(testing::OwnProgress().moves == before + own);
  }
}

TEST_CASE("ThreadPool flushes denormals in tasks and restores the caller's mode", "[ops][pool]") {
  const unsigned before = _mm_getcsr();
  ThreadPool pool(2);
  std::atomic<int> flushing = 0;
  pool.ParallelFor(64, [&](int64_t, int) { flushing += (_mm_getcsr() & 0x8040u) == 0x8040u; });
  REQUIRE(flushing == 64);
  REQUIRE(_mm_getcsr() == before);
}

TEST_CASE("ParallelRows covers all rows in runs", "[ops][pool]") {
  for (const int threads : {1, 3}) {
    ThreadPool pool(threads);
    for (const int64_t rows : {0, 1, 7, 100}) {
      std::vector<std::atomic<int>> seen(static_cast<size_t>(rows));
      pool.ParallelRows(rows, 4, [&](int64_t first, int64_t last, int) {
        for (int64_t row = first; row < last; ++row) ++seen[static_cast<size_t>(row)];
      });
      for (const std::atomic<int>& count : seen) REQUIRE(count == 1);
    }
  }
}

TEST_CASE("ThreadPool refuses work from a task and from a second thread", "[ops][pool]") {
  REQUIRE(EndOf([](ThreadPool& pool) {
            pool.ParallelFor(1, [&](int64_t, int) { pool.ParallelFor(1, [](int64_t, int) {}); });
          }) == SIGABRT);
  REQUIRE(EndOf([](ThreadPool& pool) {
            pool.ParallelFor(1, [&](int64_t, int) {
              std::jthread([&] { pool.ParallelFor(4, [](int64_t, int) {}); });
            });
          }) == SIGABRT);
  REQUIRE(EndOf([](ThreadPool& pool) { pool.ParallelFor(4, [](int64_t, int) {}); }) == 0);
}

}  // namespace tandem
