#include "common/comm/ordered_communicator.h"

#include <chrono>
#include <filesystem>
#include <optional>

#include <catch2/catch.hpp>

#include "common/base/status.h"
#include "tests/common/comm/comm_test_group.h"

namespace tandem {
namespace {

using testing::RunThreads;

int64_t Threads() {
  const std::filesystem::directory_iterator tasks("/proc/self/task");
  return std::distance(begin(tasks), end(tasks));
}

bool Done(const OrderedCommunicator::Result& result) {
  return result.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
}

}  // namespace

TEST_CASE("submitted collectives and those of the caller run in the order of the calls") {
  for (const int world : {1, 2, 3}) {
    const auto results = RunThreads(world, [world](Communicator& group) -> absl::Status {
      OrderedCommunicator ordered(&group);
      std::vector<int> order;  // the queue hands it from thread to thread
      std::vector<OrderedCommunicator::Result> pending;
      for (int round = 0; round < 50; ++round) {
        for (int i = 0; i < 3; ++i) {
          pending.push_back(ordered.Submit([&order, i](Communicator& below) -> absl::Status {
            double one = 1;
            TANDEM_RETURN_IF_ERROR(below.AllReduceSum(&one, 1));
            order.push_back(i);
            return below.Barrier();
          }));
        }
        float values[2] = {1, 2};
        TANDEM_RETURN_IF_ERROR(ordered.AllReduceSum(values, 2));
        if (values[1] != 2.0f * static_cast<float>(world)) return Internal("{}", values[1]);
        order.push_back(3);
        TANDEM_RETURN_IF_ERROR(ordered.Run([&order](Communicator& below) {
          order.push_back(4);
          return below.Barrier();
        }));
      }
      for (const auto& result : pending) TANDEM_RETURN_IF_ERROR(result.get());
      for (size_t i = 0; i < order.size(); ++i) {
        if (order[i] != static_cast<int>(i % 5)) return Internal("call {} was {}", i, order[i]);
      }
      return order.size() == 250 ? absl::OkStatus() : Internal("{} calls", order.size());
    });
    for (const absl::Status& status : results) {
      INFO(status.ToString());
      REQUIRE(status.ok());
    }
  }
}

TEST_CASE("without Submit there is no second thread, and none is left behind after it") {
  const auto results = RunThreads(1, [](Communicator& group) -> absl::Status {
    const int64_t before = Threads();
    {
      OrderedCommunicator ordered(&group);
      TANDEM_RETURN_IF_ERROR(ordered.Barrier());
      if (Threads() != before) return Internal("a thread nobody needs");
      const auto result = ordered.Submit([](Communicator& below) { return below.Barrier(); });
      TANDEM_RETURN_IF_ERROR(result.get());
      if (Threads() != before + 1) return Internal("{} threads", Threads());
    }
    return Threads() == before ? absl::OkStatus() : Internal("{} threads stay", Threads());
  });
  REQUIRE(results[0].ok());
}

TEST_CASE("an abort reaches submitted work, those who wait for it and later calls") {
  const auto results = RunThreads(2, [](Communicator& group) -> absl::Status {
    TANDEM_RETURN_IF_ERROR(group.Barrier());
    OrderedCommunicator ordered(&group);
    if (group.rank() == 1) {
      ordered.Abort("a newer group is being formed");
      return ordered.Barrier();
    }
    const auto waits = ordered.Submit([](Communicator& below) { return below.Barrier(); });
    const absl::Status first = waits.get();
    const absl::Status later = ordered.Barrier();
    return first == later ? later : Internal("{} and {}", first.ToString(), later.ToString());
  });
  for (const absl::Status& status : results) {
    INFO(status.ToString());
    REQUIRE(absl::IsAborted(status));
    REQUIRE(std::string(status.message()).find("newer group") != std::string::npos);
  }
}

TEST_CASE("a rank that ends with work under way fails the others instead of waiting for them") {
  std::atomic<bool> ended = false;
  const auto results = RunThreads(2, [&ended](Communicator& group) -> absl::Status {
    TANDEM_RETURN_IF_ERROR(group.Barrier());
    if (group.rank() == 1) {
      while (!ended) std::this_thread::yield();
      return group.Barrier();
    }
    std::optional<OrderedCommunicator> ordered(&group);
    const auto waits = ordered->Submit([](Communicator& below) { return below.Barrier(); });
    ordered.reset();
    ended = true;
    return Done(waits) ? waits.get() : Internal("nobody carried it out");
  });
  for (const absl::Status& status : results) {
    INFO(status.ToString());
    REQUIRE(absl::IsAborted(status));
    REQUIRE(std::string(status.message()).find("rank 0 ended") != std::string::npos);
  }
}

TEST_CASE("a rank that does not come fails submitted work at the deadline, by name") {
  testing::FakeClock clock;
  std::atomic<bool> done = false;
  const auto results = RunThreads(
      2,
      [&](Communicator& group) -> absl::Status {
        TANDEM_RETURN_IF_ERROR(group.Barrier());
        if (group.rank() == 1) {
          while (!done) clock.Advance(testing::kPatience);  // stays connected, as a hung rank does
          return absl::OkStatus();
        }
        OrderedCommunicator ordered(&group);
        const auto late = ordered.Submit([](Communicator& below) { return below.Barrier(); });
        const absl::Status status = late.get();
        done = true;
        return status;
      },
      [&clock](SharedMemoryGroupOptions& options) { options.clock = &clock; });
  REQUIRE(absl::IsDeadlineExceeded(results[0]));
  REQUIRE(std::string(results[0].message()).find("rank 1 of 2 did not come") != std::string::npos);
}

}  // namespace tandem
