// Faults in memory that the host cannot touch.
#include <cstdlib>
#include <filesystem>
#include <string>

#include <catch2/catch.hpp>
#include <sys/wait.h>
#include <unistd.h>

#include "common/device/device_memory.h"
#include "common/process/fault_injection.h"
#include "tests/fakes/guarded_device.h"
#include "tests/support/temp_dir.h"

namespace tandem {
namespace {

// What a byte of `device` that was 6 holds after two visits of `point`.
int AfterTwoVisits(Device* device, const char* point) {
  const auto region = device->Reserve("weights", 64, nullptr);
  if (!region.ok() || !(*region)->Map().ok()) return -1;
  unsigned char byte = 6;
  device->Copy((*region)->data() + 5, &byte, 1);
  InjectBitFlip(device, point, (*region)->data() + 5);
  InjectBitFlip(device, point, (*region)->data() + 5);
  device->Copy(&byte, (*region)->data() + 5, 1);
  return device->Synchronize().ok() ? byte : -1;
}

}  // namespace

TEST_CASE("a bit flips in a device's memory by the device, and at its point alone") {
  const testing::TempDir dir;
  const std::string fault = "rollout:0:weights:2:flip:" + (dir.path() / "fired").string();
  const auto visited = [&fault](bool guarded, const char* point) {
    const pid_t child = fork();
    if (child == 0) {
      setenv("TANDEM_FAULT", fault.c_str(), 1);
      InitFaultPoints("rollout", 0);
      testing::GuardedDevice device;
      _exit(AfterTwoVisits(guarded ? &device : HostDevice(), point));
    }
    int status = -1;
    REQUIRE(waitpid(child, &status, 0) == child);
    REQUIRE(WIFEXITED(status));
    return WEXITSTATUS(status);
  };
  REQUIRE(visited(true, "hidden state") == 6);
  REQUIRE(visited(true, "weights") == 7);
  std::filesystem::remove(dir.path() / "fired");
  REQUIRE(visited(false, "weights") == 7);
}

}  // namespace tandem
