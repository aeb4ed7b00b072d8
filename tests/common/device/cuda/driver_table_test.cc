#include <map>
#include <string>

#include <catch2/catch.hpp>

#include "common/device/cuda/driver_memory.h"

namespace tandem {
namespace {

void Function() {}

CUresult Name(CUresult error, const char** name) {
  *name = error == CUDA_ERROR_OUT_OF_MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY" : nullptr;
  return *name == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}
CUresult Text(CUresult error, const char** text) {
  *text = error == CUDA_ERROR_OUT_OF_MEMORY ? "out of memory" : nullptr;
  return CUDA_SUCCESS;
}

}  // namespace

TEST_CASE("every function of the driver is asked for once, in the version that its type means") {
  std::map<std::string, int> asked;
  const auto table = DriverTable::Load([&](const std::string& name, int version) {
    REQUIRE(asked.emplace(name, version).second);
    return reinterpret_cast<void*>(Function);
  });
  REQUIRE(table.ok());
  REQUIRE(asked.size() == sizeof(DriverTable) / sizeof(void*));
  REQUIRE(asked.at("cuMemCreate") == 10020);
  REQUIRE(asked.at("cuDeviceGetUuid") == 11040);
  REQUIRE(reinterpret_cast<void*>(table->MemUnmap) == reinterpret_cast<void*>(Function));
}

TEST_CASE("functions that a driver lacks are named, all of them") {
  const auto table = DriverTable::Load([&](const std::string& name, int) {
    const bool there = name != "cuMemMap" && name != "cuMemCreate";
    return there ? reinterpret_cast<void*>(Function) : nullptr;
  });
  REQUIRE(table.status().code() == absl::StatusCode::kFailedPrecondition);
  const std::string message(table.status().message());
  REQUIRE(message.find("cuMemCreate (CUDA 10.2), cuMemMap (CUDA 10.2)") != std::string::npos);
  REQUIRE(message.find("cuMemUnmap") == std::string::npos);
}

TEST_CASE("a driver's error carries the driver's name of it") {
  DriverTable table;
  table.GetErrorName = Name;
  table.GetErrorString = Text;
  REQUIRE(table.Check(CUDA_SUCCESS, "cuMemMap").ok());
  const absl::Status status = table.Check(CUDA_ERROR_OUT_OF_MEMORY, "cuMemCreate of 5 bytes");
  REQUIRE(status.code() == absl::StatusCode::kResourceExhausted);
  REQUIRE(std::string(status.message()) ==
          "cuMemCreate of 5 bytes: CUDA_ERROR_OUT_OF_MEMORY (2): out of memory");
  const std::string unknown(table.Check(static_cast<CUresult>(4711), "cuMemMap").message());
  REQUIRE(unknown.find("4711") != std::string::npos);
}

TEST_CASE("a name that no driver has is not found, with or without a driver") {
  REQUIRE(LookUpInDriver("cuNoSuchFunction", 10020) == nullptr);
}

}  // namespace tandem
