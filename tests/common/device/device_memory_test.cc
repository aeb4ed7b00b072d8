#include "common/device/device_memory.h"

#include <catch2/catch.hpp>

namespace tandem {

TEST_CASE("the device of a CPU worker is the memory limit divided by the pairs") {
  const int64_t limit = MemoryLimitBytes();
  REQUIRE(limit > (int64_t{64} << 20));
  REQUIRE(CpuDeviceMemoryBytes(1) == limit);
  REQUIRE(CpuDeviceMemoryBytes(2) == limit / 2);
  REQUIRE(CpuDeviceMemoryBytes(0) == limit);
}

TEST_CASE("available memory stays within the limit") {
  const int64_t available = AvailableMemoryBytes();
  REQUIRE(available > 0);
  REQUIRE(available <= MemoryLimitBytes());
}

TEST_CASE("the process reports its resident memory") {
  const ProcessMemory memory = ReadProcessMemory();
  REQUIRE(memory.resident > 0);
  REQUIRE(memory.peak_resident >= memory.resident - (1 << 20));
}

}  // namespace tandem
