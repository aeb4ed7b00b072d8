#include <filesystem>
#include <fstream>

#include <catch2/catch.hpp>
#include <sys/stat.h>

#include "common/base/status.h"
#include "common/process/local_socket.h"
#include "tests/common/comm/comm_test_group.h"

namespace tandem {
namespace {

using testing::GroupOptions;
using testing::RunThreads;
using testing::Says;

int OpenDescriptors() {
  int count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    ++count;
  }
  return count;
}

// Other programs have files there too.
int64_t SharedMemoryOfTandem() {
  int64_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm")) {
    if (entry.path().filename().string().find("tandem") != std::string::npos) ++count;
  }
  return count;
}

}  // namespace

TEST_CASE("ranks that do not join are named") {
  SharedMemoryGroupOptions options = GroupOptions(0, 3);
  options.deadline = absl::Milliseconds(50);
  const absl::Status host = JoinSharedMemoryGroup(options).status();
  REQUIRE(host.code() == absl::StatusCode::kDeadlineExceeded);
  REQUIRE(Says(host, "rank 1, 2 of 3"));
  options.rank = 1;
  const absl::Status visitor = JoinSharedMemoryGroup(options).status();
  REQUIRE(visitor.code() == absl::StatusCode::kDeadlineExceeded);
  REQUIRE(Says(visitor, "rank 0"));
}

TEST_CASE("a group of more ranks than a host can hold is refused") {
  // 64 bytes for each of these ranks do not fit into 32 bits: a request may say any number.
  const absl::Status status = JoinSharedMemoryGroup(GroupOptions(0, 537141507)).status();
  REQUIRE(status.code() == absl::StatusCode::kInvalidArgument);
  REQUIRE(Says(status, "537141507 ranks"));
}

TEST_CASE("a rank of an older generation is refused and the group still forms") {
  std::atomic<bool> refused{false};
  std::thread old_rank([&refused] {
    SharedMemoryGroupOptions options = GroupOptions(1, 2);
    options.generation = 4;
    const absl::Status status = JoinSharedMemoryGroup(options).status();
    refused = absl::IsAborted(status) && Says(status, "generation 4") && Says(status, "5");
  });
  std::thread host([] {
    SharedMemoryGroupOptions options = GroupOptions(0, 2);
    options.generation = 5;
    (void)JoinSharedMemoryGroup(options);
  });
  old_rank.join();
  SharedMemoryGroupOptions options = GroupOptions(1, 2);
  options.generation = 5;
  const bool formed = JoinSharedMemoryGroup(options).ok();
  host.join();
  REQUIRE(refused);
  REQUIRE(formed);
}

TEST_CASE("ranks with other options are refused") {
  std::atomic<bool> cancelled{false};
  std::thread host([&cancelled] {
    SharedMemoryGroupOptions options = GroupOptions(0, 2);
    options.cancelled = &cancelled;
    (void)JoinSharedMemoryGroup(options);
  });
  SharedMemoryGroupOptions options = GroupOptions(1, 2);
  options.staging_bytes *= 2;
  const absl::Status status = JoinSharedMemoryGroup(options).status();
  cancelled = true;
  host.join();
  REQUIRE(status.code() == absl::StatusCode::kInvalidArgument);
}

TEST_CASE("joining can be cancelled on either side") {
  std::atomic<bool> cancelled{true};
  for (const int rank : {0, 1}) {
    SharedMemoryGroupOptions options = GroupOptions(rank, 2);
    options.cancelled = &cancelled;
    REQUIRE(JoinSharedMemoryGroup(options).status().code() == absl::StatusCode::kAborted);
  }
}

TEST_CASE("a stale socket file is no obstacle and nothing is left behind") {
  const std::string path = GroupOptions(0, 2).rendezvous + ".threads";
  REQUIRE(ListenLocal(path).ok());  // what a killed rank 0 leaves
  REQUIRE(std::filesystem::is_socket(path));
  const int before = OpenDescriptors();
  const int64_t links = SharedMemoryOfTandem();
  for (int round = 0; round < 5; ++round) {
    const auto results = RunThreads(2, [](Communicator& group) { return group.Barrier(); });
    for (const absl::Status& status : results) REQUIRE(status.ok());
  }
  REQUIRE(!std::filesystem::exists(path));
  REQUIRE(OpenDescriptors() == before);
  REQUIRE(SharedMemoryOfTandem() == links);
}

TEST_CASE("a file that is not a socket is not replaced by one") {
  const SharedMemoryGroupOptions options = GroupOptions(0, 2);
  std::ofstream(options.rendezvous) << "somebody's";
  REQUIRE(JoinSharedMemoryGroup(options).status().code() == absl::StatusCode::kFailedPrecondition);
  REQUIRE(std::filesystem::is_regular_file(options.rendezvous));
  std::filesystem::remove(options.rendezvous);
}

TEST_CASE("impossible groups are refused") {
  REQUIRE(JoinSharedMemoryGroup(GroupOptions(2, 2)).status().code() ==
          absl::StatusCode::kInvalidArgument);
  SharedMemoryGroupOptions options = GroupOptions(0, 2);
  options.staging_bytes = 16;
  REQUIRE(JoinSharedMemoryGroup(options).status().code() == absl::StatusCode::kInvalidArgument);
  options = GroupOptions(0, 2);
  options.rendezvous = "/tmp/" + std::string(120, 'x');
  REQUIRE(JoinSharedMemoryGroup(options).status().code() == absl::StatusCode::kInvalidArgument);
}

}  // namespace tandem
