// Streams that work late: work that waits is in order, work that does not wait is not.
#include "tests/emulator/late_streams.h"

#include <cstring>
#include <functional>
#include <future>
#include <thread>
#include <vector>

#include <catch2/catch.hpp>

#include "tests/emulator/emulated_cuda.h"

namespace tandem {
namespace {

using emulator::EmulatedCuda;

struct LateStreamsRig {
  LateStreamsRig() {
    first = *cuda.CreateStream();
    second = *cuda.CreateStream();
    event = *cuda.CreateEvent(false);
    device = *cuda.Malloc(16);
    pinned = *cuda.AllocateHost(16);
  }
  ~LateStreamsRig() {
    for (const CudaStream stream : {first, second}) cuda.DestroyStream(stream).IgnoreError();
  }
  int at(const std::byte* address) const { return static_cast<int>(*address); }

  EmulatedCuda cuda{{.late_streams = 3}};
  CudaStream first = nullptr, second = nullptr;
  CudaEvent event = nullptr;
  std::byte* device = nullptr;
  std::byte* pinned = nullptr;
};

}  // namespace

TEST_CASE("a late stream does its work when it is waited for") {
  LateStreamsRig rig;
  REQUIRE(rig.cuda.Fill(rig.device, 7, 16, rig.first).ok());
  REQUIRE(rig.at(rig.device) != 7);
  REQUIRE(rig.cuda.Synchronize(rig.second).ok());
  REQUIRE(rig.at(rig.device) != 7);
  REQUIRE(rig.cuda.Synchronize(rig.first).ok());
  REQUIRE(rig.at(rig.device) == 7);
}

TEST_CASE("a stream that waits for an event sees what was before it, and nothing later") {
  LateStreamsRig rig;
  const bool waits = GENERATE(true, false);
  REQUIRE(rig.cuda.Fill(rig.device, 1, 16, rig.first).ok());
  REQUIRE(rig.cuda.Record(rig.event, rig.first).ok());
  REQUIRE(rig.cuda.Fill(rig.device, 2, 16, rig.first).ok());
  if (waits) REQUIRE(rig.cuda.WaitEvent(rig.second, rig.event).ok());
  REQUIRE(rig.cuda.Record(rig.event, rig.first).ok());  // another record changes no earlier wait
  REQUIRE(rig.cuda.Copy(rig.pinned, rig.device, 16, rig.second).ok());
  REQUIRE(rig.cuda.Synchronize(rig.second).ok());
  REQUIRE((rig.at(rig.pinned) == 1) == waits);
  REQUIRE(rig.cuda.Synchronize(rig.event).ok());
  REQUIRE(rig.at(rig.device) == 2);
}

TEST_CASE("an event has happened once its work is done; asking is waiting a little") {
  LateStreamsRig rig;
  REQUIRE(*rig.cuda.HasHappened(rig.event));
  REQUIRE(rig.cuda.Fill(rig.device, 3, 16, rig.first).ok());
  REQUIRE(rig.cuda.Record(rig.event, rig.first).ok());
  REQUIRE(!*rig.cuda.HasHappened(rig.event));
  REQUIRE(*rig.cuda.HasHappened(rig.event));
  REQUIRE(rig.at(rig.device) == 3);
}

TEST_CASE("a stream that is not late does the work that it waits for") {
  const uint64_t late = GENERATE(1, 2);
  EmulatedCuda cuda({.late_streams = late});
  const CudaStream first = *cuda.CreateStream(), second = *cuda.CreateStream();
  const CudaEvent event = *cuda.CreateEvent(false);
  std::byte* const device = *cuda.Malloc(16);
  REQUIRE(cuda.Fill(device, 1, 16, first).ok());
  REQUIRE((static_cast<int>(*device) == 1) == (late == 2));
  REQUIRE(cuda.Record(event, first).ok());
  REQUIRE(cuda.WaitEvent(second, event).ok());
  REQUIRE(static_cast<int>(*device) == 1);
  REQUIRE(cuda.Fill(device, 2, 16, second).ok());
  REQUIRE((static_cast<int>(*device) == 2) == (late == 1));
  REQUIRE(cuda.Record(event, second).ok());
  REQUIRE(*cuda.HasHappened(event) == (late == 1));
  REQUIRE(cuda.Synchronize(event).ok());
  REQUIRE(static_cast<int>(*device) == 2);
  for (const CudaStream stream : {first, second}) REQUIRE(cuda.DestroyStream(stream).ok());
}

TEST_CASE("pinned memory is read late, other host memory at once") {
  LateStreamsRig rig;
  std::vector<std::byte> pageable(16, std::byte{4});
  std::memset(rig.pinned, 5, 16);
  REQUIRE(rig.cuda.Copy(rig.device, pageable.data(), 8, rig.first).ok());
  REQUIRE(rig.cuda.Copy(rig.device + 8, rig.pinned, 8, rig.first).ok());
  pageable.assign(16, std::byte{6});
  std::memset(rig.pinned, 7, 16);
  REQUIRE(rig.cuda.Copy(pageable.data(), rig.device, 16, rig.first).ok());
  REQUIRE(rig.at(&pageable[0]) == 4);
  REQUIRE(rig.at(&pageable[8]) == 7);
}

TEST_CASE("freeing memory waits for the device") {
  LateStreamsRig rig;
  REQUIRE(rig.cuda.Fill(rig.device, 8, 16, rig.first).ok());
  REQUIRE(rig.cuda.Copy(rig.pinned, rig.device, 16, rig.first).ok());
  REQUIRE(rig.cuda.Free(rig.device).ok());
  REQUIRE(rig.at(rig.pinned) == 8);
}

TEST_CASE("two threads that wait for a late stream do its work in order, and both to its end") {
  LateStreamsRig rig;
  std::promise<void> begun, go;
  std::vector<int> order;
  std::function<void()> piece = [&] {
    begun.set_value();
    go.get_future().wait();
    order.push_back(1);
  };
  REQUIRE(emulator::KeepLate(rig.first, piece));
  REQUIRE(rig.cuda.Record(rig.event, rig.first).ok());
  piece = [&] { order.push_back(2); };
  REQUIRE(emulator::KeepLate(rig.first, piece));
  std::thread one([&] { emulator::DoLate(rig.first); });
  begun.get_future().wait();
  // What is being done has not happened.
  REQUIRE_FALSE(emulator::HasHappenedLate(rig.event));
  std::thread other([&] { emulator::DoLate(rig.first); });
  go.set_value();
  other.join();
  REQUIRE(order == std::vector<int>{1, 2});
  one.join();
}

TEST_CASE("a record that happens late does not undo that a newer one has") {
  EmulatedCuda owner({.late_streams = 3, .late_events = true}), other({.process = -1});
  const CudaStream early = *owner.CreateStream(), late = *owner.CreateStream();
  const CudaEvent event = *owner.CreateEvent(true);
  const CudaEvent opened = *other.OpenEvent(*owner.ExportEvent(event));
  std::byte* const memory = *owner.Malloc(16);
  for (const CudaStream stream : {late, early}) {
    REQUIRE(owner.Fill(memory, 1, 16, stream).ok());
    REQUIRE(owner.Record(event, stream).ok());
  }
  REQUIRE(owner.Synchronize(early).ok());
  REQUIRE(*other.HasHappened(opened));
  REQUIRE(owner.Synchronize(late).ok());
  REQUIRE(*other.HasHappened(opened));
  REQUIRE(other.DestroyEvent(opened).ok());
  REQUIRE(owner.DestroyEvent(event).ok());
  for (const CudaStream stream : {late, early}) REQUIRE(owner.DestroyStream(stream).ok());
}

TEST_CASE("what precedes another process's event is done when that process asks for it") {
  EmulatedCuda owner({.late_streams = 1, .late_events = true}), other({.process = -1});
  const CudaStream stream = *owner.CreateStream(), reading = *other.CreateStream();
  const CudaEvent event = *owner.CreateEvent(true);
  const CudaEvent opened = *other.OpenEvent(*owner.ExportEvent(event));
  std::byte* const memory = *owner.Malloc(16);
  const std::byte* const seen = *other.OpenMemory(*owner.ExportMemory(memory));
  std::byte* const copied = *other.AllocateHost(16);
  const auto fill = [&](unsigned char value) {
    REQUIRE(owner.Fill(memory, value, 16, stream).ok());
    REQUIRE(owner.Record(event, stream).ok());
    REQUIRE(seen[0] != std::byte{value});  // nobody has asked
  };
  fill(1);
  REQUIRE(other.Synchronize(opened).ok());
  REQUIRE(seen[0] == std::byte{1});
  REQUIRE(*other.HasHappened(opened));
  fill(2);
  REQUIRE_FALSE(*other.HasHappened(opened));
  while (!*other.HasHappened(opened)) std::this_thread::yield();
  REQUIRE(seen[0] == std::byte{2});
  fill(3);
  REQUIRE(other.WaitEvent(reading, opened).ok());
  REQUIRE(other.Copy(copied, seen, 16, reading).ok());
  REQUIRE(copied[0] == std::byte{3});
  fill(4);
  REQUIRE(owner.Synchronize(stream).ok());  // what was waited for otherwise has happened, too
  REQUIRE(*other.HasHappened(opened));
  fill(5);
  REQUIRE(other.DestroyEvent(opened).ok());
  REQUIRE(owner.DestroyEvent(event).ok());  // and is no longer looked at
  REQUIRE(owner.DestroyStream(stream).ok());
  REQUIRE(memory[0] == std::byte{5});
  REQUIRE(other.DestroyStream(reading).ok());
}

}  // namespace tandem
