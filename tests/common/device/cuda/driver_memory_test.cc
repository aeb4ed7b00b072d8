#include "common/device/cuda/driver_memory.h"

#include <string>
#include <vector>

#include <catch2/catch.hpp>

namespace tandem {
namespace {

constexpr size_t kDriverMiB = 1 << 20;

// What the functions below were asked, and what they are to answer.
struct Driver {
  std::vector<std::string> calls;
  std::string failing;  // answers CUDA_ERROR_OUT_OF_MEMORY
  int device = 3;
  int has_descriptors = 1;
  CUmemAllocationProp properties = {};
  CUmemAccessDesc access = {};
};
Driver driver;

CUresult Answer(const std::string& name, const std::string& arguments = "") {
  driver.calls.push_back(arguments.empty() ? name : name + " " + arguments);
  return driver.failing == name ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}
std::string Text(CUdeviceptr pointer, size_t bytes) {
  return std::to_string(pointer) + " " + std::to_string(bytes);
}

DriverTable FakeTable() {
  driver = Driver();
  DriverTable table;
  table.GetErrorName = [](CUresult, const char** name) {
    *name = "CUDA_ERROR_OUT_OF_MEMORY";
    return CUDA_SUCCESS;
  };
  table.GetErrorString = table.GetErrorName;
  table.CtxGetDevice = [](CUdevice* device) {
    *device = driver.device;
    return driver.failing == "device" ? CUDA_ERROR_INVALID_CONTEXT : CUDA_SUCCESS;
  };
  table.DeviceGetAttribute = [](int* value, CUdevice_attribute, CUdevice) {
    *value = driver.has_descriptors;
    return CUDA_SUCCESS;
  };
  table.MemGetAllocationGranularity = [](size_t* bytes, const CUmemAllocationProp*,
                                         CUmemAllocationGranularity_flags) {
    *bytes = 2 * kDriverMiB;
    return CUDA_SUCCESS;
  };
  table.MemAddressReserve = [](CUdeviceptr* address, size_t bytes, size_t, CUdeviceptr,
                               unsigned long long) {
    *address = 4096;
    return Answer("reserve", std::to_string(bytes));
  };
  table.MemAddressFree = [](CUdeviceptr address, size_t bytes) {
    return Answer("free", Text(address, bytes));
  };
  table.MemCreate = [](CUmemGenericAllocationHandle* pages, size_t bytes,
                       const CUmemAllocationProp* properties, unsigned long long) {
    *pages = 77;
    driver.properties = *properties;
    return Answer("create", std::to_string(bytes));
  };
  table.MemRelease = [](CUmemGenericAllocationHandle pages) {
    return Answer("release", std::to_string(pages));
  };
  table.MemMap = [](CUdeviceptr address, size_t bytes, size_t offset,
                    CUmemGenericAllocationHandle pages, unsigned long long) {
    return Answer("map", Text(address + offset, bytes) + " " + std::to_string(pages));
  };
  table.MemUnmap = [](CUdeviceptr address, size_t bytes) {
    return Answer("unmap", Text(address, bytes));
  };
  table.MemSetAccess = [](CUdeviceptr address, size_t bytes, const CUmemAccessDesc* access,
                          size_t) {
    driver.access = *access;
    return Answer("access", Text(address, bytes));
  };
  return table;
}

}  // namespace

TEST_CASE("pages are made on the thread's device, and mapped for it") {
  const VirtualMemoryApi memory(FakeTable());
  REQUIRE(*memory.Granularity() == 2 * kDriverMiB);
  std::byte* const address = *memory.ReserveAddresses(8192);
  REQUIRE(reinterpret_cast<uintptr_t>(address) == 4096);
  const CudaPages pages = *memory.CreatePages(8192);
  REQUIRE(memory.MapPages(address, 8192, pages).ok());
  REQUIRE(memory.UnmapPages(address, 8192).ok());
  REQUIRE(memory.ReleasePages(pages).ok());
  REQUIRE(memory.FreeAddresses(address, 8192).ok());
  REQUIRE(driver.calls == std::vector<std::string>{
                              "reserve 8192", "create 8192", "map 4096 8192 77", "access 4096 8192",
                              "unmap 4096 8192", "release 77", "free 4096 8192"});
  REQUIRE(driver.properties.location.id == 3);
  REQUIRE(driver.properties.location.type == CU_MEM_LOCATION_TYPE_DEVICE);
  REQUIRE(driver.properties.requestedHandleTypes == CU_MEM_HANDLE_TYPE_NONE);
  REQUIRE(driver.access.location.id == 3);
  REQUIRE(driver.access.flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
}

TEST_CASE("pages that cannot be made accessible are unmapped again") {
  const VirtualMemoryApi memory(FakeTable());
  driver.failing = "access";
  const absl::Status status = memory.MapPages(nullptr, 8192, 77);
  REQUIRE(status.code() == absl::StatusCode::kResourceExhausted);
  REQUIRE(std::string(status.message()).find("cuMemSetAccess of 8192 bytes") == 0);
  REQUIRE(driver.calls ==
          std::vector<std::string>{"map 0 8192 77", "access 0 8192", "unmap 0 8192"});
}

TEST_CASE("errors of the driver come through, and nothing is asked after them") {
  const VirtualMemoryApi memory(FakeTable());
  driver.failing = "create";
  REQUIRE(memory.CreatePages(8192).status().code() == absl::StatusCode::kResourceExhausted);
  driver.failing = "reserve";
  REQUIRE(!memory.ReserveAddresses(8192).ok());
  driver.failing = "map";
  REQUIRE(!memory.MapPages(nullptr, 8192, 77).ok());
  driver.failing = "unmap";
  REQUIRE(!memory.UnmapPages(nullptr, 8192).ok());
  driver.failing = "release";
  REQUIRE(!memory.ReleasePages(77).ok());
  REQUIRE(driver.calls == std::vector<std::string>{"create 8192", "reserve 8192", "map 0 8192 77",
                                                   "unmap 0 8192", "release 77"});
  driver.calls.clear();
  driver.failing = "device";
  REQUIRE(memory.CreatePages(8192).status().code() == absl::StatusCode::kInternal);
  REQUIRE(memory.MapPages(nullptr, 8192, 77).code() == absl::StatusCode::kInternal);
  REQUIRE(driver.calls.empty());
}

}  // namespace tandem
