// Runs the ranks of a group as threads or as forked processes.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <sys/wait.h>
#include <unistd.h>

#include "common/comm/shared_memory_communicator.h"
#include "tests/common/comm/test_rank.h"
#include "tests/fakes/fake_clock.h"
#include "tests/support/patience.h"
#include "tests/support/text.h"

namespace tandem::testing {

// Known to ranks that are forked processes too. Programs that run beside this one have another.
inline const pid_t kTestProgram = getpid();

inline SharedMemoryGroupOptions GroupOptions(int rank, int world_size) {
  SharedMemoryGroupOptions options;
  options.rank = rank;
  options.world_size = world_size;
  options.rendezvous = "/tmp/tandem-comm-" + std::to_string(kTestProgram) + "-" +
                       std::to_string(world_size) + ".sock";
  options.generation = 1;
  options.deadline = kPatience;
  options.staging_bytes = 8192;
  return options;
}

// A group's clock, one for each rank that a test asks about. Stands still but for Advance, and
// knows how often it was looked at: a rank that waits for others looks again and again.
class GroupClock : public FakeClock {
 public:
  Instant Now() override {
    ++looks_;
    return FakeClock::Now();
  }
  int64_t looks() const { return looks_; }

 private:
  std::atomic<int64_t> looks_{0};
};

// The status of every rank's `body`, or of its Join.
inline std::vector<absl::Status> RunThreads(
    int world_size,
    const std::function<absl::Status(Communicator&)>& body,
    const std::function<void(SharedMemoryGroupOptions&)>& adjust = [](auto&) {},
    Way way = Way::kHost) {
  FakeNccl nccl;
  std::vector<absl::Status> results(world_size);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world_size; ++rank) {
    threads.emplace_back([&, rank] {
      SharedMemoryGroupOptions options = GroupOptions(rank, world_size);
      options.rendezvous += ".threads";
      adjust(options);
      auto joined = TestRank::Join(way, options, &nccl);
      results[rank] = joined.ok() ? body((*joined)->group()) : joined.status();
    });
  }
  for (std::thread& thread : threads) thread.join();
  return results;
}
inline std::vector<absl::Status> RunThreads(
    Way way,
    int world_size,
    const std::function<absl::Status(Communicator&)>& body,
    const std::function<void(SharedMemoryGroupOptions&)>& adjust = [](auto&) {}) {
  return RunThreads(world_size, body, adjust, way);
}

// Forks a child that joins as `rank` and runs `body`; the child's exit code is its result.
inline pid_t ForkRank(const SharedMemoryGroupOptions& options,
                      const std::function<int(Communicator&)>& body,
                      Way way = Way::kHost) {
  const pid_t child = fork();
  if (child != 0) return child;
  int code = 99;
  {
    auto joined = TestRank::Join(way, options, nullptr);
    if (joined.ok()) code = body((*joined)->group());
  }
  _exit(code);
}

// Exit code, or -signal.
inline int WaitForExit(pid_t child) {
  int status = 0;
  if (waitpid(child, &status, 0) != child) return -1000;
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

}  // namespace tandem::testing
