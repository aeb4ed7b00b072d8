#include "common/comm/cuda/collective_stream.h"

#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "common/base/status.h"
#include "common/comm/ordered_communicator.h"
#include "tests/common/comm/comm_test_group.h"
#include "tests/emulator/emulated_cuda.h"
#include "tests/support/text.h"

namespace tandem {
namespace {

using testing::CountOf;
using Calls = std::vector<std::string>;

struct Stream {
  Stream() : compute(*cuda.CreateStream()) {
    auto made = CollectiveStream::Create(&cuda, 0, compute);
    REQUIRE(made.ok());
    stream = *std::move(made);
    cuda.ForgetCalls();
  }
  ~Stream() {
    stream.reset();
    (void)cuda.DestroyStream(compute);
  }
  emulator::EmulatedCuda cuda;
  CudaStream compute;
  std::unique_ptr<CollectiveStream> stream;
};

}  // namespace

TEST_CASE("a collective waits for what the compute stream has when it begins") {
  Stream s;
  REQUIRE(s.stream->Begin().ok());
  REQUIRE(s.stream->End().ok());
  // On the compute stream, for it, that it is reached, the end.
  REQUIRE(s.cuda.calls() == Calls{"Record", "WaitEvent", "Record", "Record"});
  REQUIRE(*s.stream->Finished());
}

TEST_CASE("collectives go before what the device computes") {
  Stream s;
  REQUIRE(s.cuda.urgent_streams() == 1);
}

TEST_CASE("a marked collective waits for the mark and records nothing on the compute stream") {
  Stream s;
  const uint64_t mark = s.stream->Mark();
  REQUIRE(mark != 0);
  REQUIRE(s.cuda.calls() == Calls{"Record"});
  s.cuda.ForgetCalls();
  s.stream->StartAt(mark);
  REQUIRE(s.stream->Begin().ok());
  REQUIRE(s.cuda.calls() == Calls{"WaitEvent", "Record"});
  s.stream->StartAt(0);
  s.cuda.ForgetCalls();
  REQUIRE(s.stream->Begin().ok());
  REQUIRE(s.cuda.calls() == Calls{"Record", "WaitEvent", "Record"});
}

TEST_CASE("a mark that cannot be taken waits for everything") {
  Stream s;
  s.cuda.FailCall("Record", Internal("the device is lost"));
  REQUIRE(s.stream->Mark() == 0);
  REQUIRE(s.stream->Mark() != 0);
}

TEST_CASE("a stream that cannot be made leaves no event behind") {
  emulator::EmulatedCuda cuda;
  cuda.FailCall("CreateEvent", Internal("no more events"), 5);
  REQUIRE(!CollectiveStream::Create(&cuda, 0, nullptr).ok());
  REQUIRE(CountOf(cuda.calls(), "DestroyEvent") == 5);
  REQUIRE(CountOf(cuda.calls(), "DestroyStream") == 1);
}

TEST_CASE("submitted work waits for the device's work at the time of its submission") {
  emulator::EmulatedCuda cuda;
  auto solo = testing::TestRank::Join(testing::Way::kStaged, testing::GroupOptions(0, 1), nullptr);
  REQUIRE(solo.ok());
  Calls at_submission, after;
  {
    OrderedCommunicator ordered(&(*solo)->group());
    (*solo)->cuda().ForgetCalls();
    std::promise<void> go;
    const auto result = ordered.Submit([&, ready = go.get_future().share()](Communicator& group) {
      ready.wait();
      float one = 1, sum = 0;
      return group.ReduceScatterSum(&one, {1}, &sum, Accumulate::kReplace);
    });
    at_submission = (*solo)->cuda().calls();
    go.set_value();
    REQUIRE(result.get().ok());
    after = (*solo)->cuda().calls();
  }
  REQUIRE(at_submission == Calls{"Record"});
  REQUIRE(after[1] == "WaitEvent");
}

}  // namespace tandem
