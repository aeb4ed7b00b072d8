#include <atomic>
#include <thread>
#include <vector>

#include <catch2/catch.hpp>
#include <unistd.h>

#include "common/base/status.h"
#include "common/comm/shared_memory_group.h"
#include "common/device/shared_region.h"

namespace tandem {
namespace {

constexpr int kRanks = 3;

std::vector<std::unique_ptr<SharedSegment>> MapForAllRanks() {
  const int64_t bytes = SharedSegment::Bytes(kRanks, 4096);
  const auto memory = CreateSharedMemory("shared-segment-test", bytes);
  REQUIRE(memory.ok());
  std::vector<std::unique_ptr<SharedSegment>> segments;
  for (int rank = 0; rank < kRanks; ++rank) {
    auto segment = SharedSegment::Map(UniqueFd(dup(memory->get())), rank, kRanks, 4096);
    REQUIRE(segment.ok());
    segments.push_back(*std::move(segment));
  }
  return segments;
}

absl::Status ReasonOf(int rank) {
  return WithOrigin(MakeStatus(absl::StatusCode::kUnavailable, "rank {} says why {}", rank,
                               std::string(300, static_cast<char>('a' + rank))),
                    FailureOrigin::kAnotherRank);
}

}  // namespace

TEST_CASE("ranks that give up at once see one whole reason from the first moment on") {
  for (int round = 0; round < 200; ++round) {
    const auto segments = MapForAllRanks();
    std::atomic<int> ready{0};
    std::vector<absl::Status> seen(kRanks);
    std::vector<std::thread> ranks;
    for (int rank = 0; rank < kRanks; ++rank) {
      ranks.emplace_back([&, rank] {
        ++ready;
        while (ready < kRanks) std::this_thread::yield();
        // The last one only looks: it must not see an abort whose reason is still being written.
        if (rank + 1 < kRanks) segments[rank]->Abort(ReasonOf(rank));
        while (seen[rank].ok()) seen[rank] = segments[rank]->status();
      });
    }
    for (std::thread& rank : ranks) rank.join();
    REQUIRE((seen[0] == ReasonOf(0) || seen[0] == ReasonOf(1)));
    for (int rank = 0; rank < kRanks; ++rank) {
      REQUIRE(seen[rank] == seen[0]);
      REQUIRE(segments[rank]->status() == seen[0]);
    }
  }
}

TEST_CASE("a later reason does not replace the first, whichever rank gives it") {
  const auto segments = MapForAllRanks();
  segments[1]->Abort(ReasonOf(1));
  segments[1]->Abort(Internal("again"));
  segments[0]->Abort(Internal("after the fact"));
  for (const auto& segment : segments) REQUIRE(segment->status() == ReasonOf(1));
}

}  // namespace tandem
