// EmulatedCuda's plain memory, and how other processes open it: a file in memory, behind a header
// that tells whether its owner has freed it.
#include <atomic>
#include <cstring>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/base/log.h"
#include "common/base/status.h"
#include "tests/emulator/emulated_cuda.h"

namespace tandem::emulator {
namespace {

constexpr int64_t kHeaderBytes = 4096;

// What a handle carries: whose descriptor the memory lies behind.
struct Owner {
  int32_t process = 0;  // as the two sides tell each other apart
  int32_t files_of = 0;
  int32_t descriptor = -1;
  int64_t bytes = 0;
};

}  // namespace

struct EmulatedCuda::Header {
  std::atomic<int32_t> opened;  // times by others
  std::atomic<int32_t> freed;
};

int32_t EmulatedCuda::process() const {
  return options_.process != 0 ? options_.process : static_cast<int32_t>(getpid());
}

absl::StatusOr<std::byte*> EmulatedCuda::MapShared(int fd, int64_t bytes, bool owner) {
  const auto map = [fd](int64_t size, off_t offset) {
    return mmap(nullptr, static_cast<size_t>(size), PROT_READ | PROT_WRITE, MAP_SHARED, fd, offset);
  };
  void* const header = map(kHeaderBytes, 0);
  void* const memory = header == MAP_FAILED ? MAP_FAILED : map(bytes, kHeaderBytes);
  if (memory == MAP_FAILED) {
    const std::string why = std::strerror(errno);
    if (header != MAP_FAILED) munmap(header, kHeaderBytes);
    close(fd);
    return Internal("mmap: {}", why);
  }
  const Mapping mapping = {fd, bytes, owner, static_cast<Header*>(header)};
  if (!owner) ++mapping.header->opened;
  const MutexLock lock(state_mutex_);
  auto* const address = static_cast<std::byte*>(memory);
  shared_[address] = mapping;
  return address;
}

absl::StatusOr<std::byte*> EmulatedCuda::CreateShared(int64_t bytes) {
  const int fd = memfd_create("emulated-cuda", MFD_CLOEXEC);
  if (fd < 0 || ftruncate(fd, kHeaderBytes + bytes) != 0) {
    return Internal("memfd: {}", std::strerror(errno));
  }
  return MapShared(fd, bytes, true);
}

absl::StatusOr<CudaIpcHandle> EmulatedCuda::HandleOf(std::byte* address) const {
  const MutexLock lock(state_mutex_);
  const auto found = shared_.find(address);
  if (found == shared_.end() || !found->second.owner) {
    return Internal(
        "CUDA_ERROR_INVALID_VALUE: only the start of what this process allocated has "
        "a handle");
  }
  Owner owner;
  owner.process = process();
  owner.files_of = static_cast<int32_t>(getpid());
  owner.descriptor = found->second.fd;
  owner.bytes = found->second.bytes;
  CudaIpcHandle handle;
  std::memcpy(handle.bytes.data(), &owner, sizeof(owner));
  return handle;
}

absl::StatusOr<std::byte*> EmulatedCuda::Open(const CudaIpcHandle& handle) {
  Owner owner;
  std::memcpy(&owner, handle.bytes.data(), sizeof(owner));
  if (owner.process == process()) {
    return Internal("cudaErrorDeviceUninitialized: the process that made a handle cannot open it");
  }
  const int fd = open(fmt::format("/proc/{}/fd/{}", owner.files_of, owner.descriptor).c_str(),
                      O_RDWR | O_CLOEXEC);
  if (fd < 0) return FailedPrecondition("CUDA_ERROR_INVALID_HANDLE: its owner is gone");
  return MapShared(fd, owner.bytes, false);
}

void EmulatedCuda::Close(std::byte* address, const Mapping& mapping) {
  if (!mapping.owner) --mapping.header->opened;
  munmap(address, static_cast<size_t>(mapping.bytes));
  munmap(mapping.header, kHeaderBytes);
  close(mapping.fd);
}

absl::Status EmulatedCuda::Unmap(std::byte* address, bool owner) {
  const MutexLock lock(state_mutex_);
  const auto found = shared_.find(address);
  if (found == shared_.end() || found->second.owner != owner) {
    return Internal("CUDA_ERROR_INVALID_VALUE: no such memory");
  }
  Close(address, found->second);
  shared_.erase(found);
  return absl::OkStatus();
}

void EmulatedCuda::ProtectFreed() {
  for (auto& [address, mapping] : shared_) {
    if (mapping.owner || mapping.gone || mapping.header->freed == 0) continue;
    mapping.gone = true;
    mprotect(address, static_cast<size_t>(mapping.bytes), PROT_NONE);
  }
}

absl::Status EmulatedCuda::CheckTouched(const void* address) {
  const MutexLock lock(state_mutex_);
  auto mapping = shared_.upper_bound(static_cast<std::byte*>(const_cast<void*>(address)));
  if (mapping == shared_.begin()) return absl::OkStatus();
  --mapping;
  const auto* const end = mapping->first + mapping->second.bytes;
  if (address >= end || !mapping->second.gone) return absl::OkStatus();
  Lose(WithDeviceLost(
      Internal("cudaErrorIllegalAddress: memory of another process that it has freed")));
  LogError("{}", std::string(lost_.message()));
  return lost_;
}

absl::StatusOr<std::byte*> EmulatedCuda::Malloc(int64_t bytes) {
  TANDEM_RETURN_IF_ERROR(Called("Malloc"));
  TANDEM_RETURN_IF_ERROR(NotWhileCapturing("cudaMalloc"));
  TANDEM_RETURN_IF_ERROR(TakeBytes(bytes));
  return CreateShared(bytes);
}

absl::Status EmulatedCuda::Free(std::byte* address) {
  TANDEM_RETURN_IF_ERROR(Called("Free"));
  TANDEM_RETURN_IF_ERROR(NotWhileCapturing("cudaFree"));
  FinishStreams();  // as the driver waits for the device
  int64_t bytes = 0;
  {
    const MutexLock lock(state_mutex_);
    const auto found = shared_.find(address);
    if (found != shared_.end() && found->second.owner) {
      bytes = found->second.bytes;
      found->second.header->freed = 1;
      if (found->second.header->opened > 0) {
        LogWarn("{} bytes are freed that another process has open", bytes);
      }
    }
  }
  TANDEM_RETURN_IF_ERROR(Unmap(address, true));
  const MutexLock lock(state_mutex_);
  used_ -= bytes;
  return absl::OkStatus();
}

absl::StatusOr<CudaIpcHandle> EmulatedCuda::ExportMemory(std::byte* address) {
  TANDEM_RETURN_IF_ERROR(Called("ExportMemory"));
  if (!options_.legacy_ipc) return FailedPrecondition("CUDA_ERROR_NOT_SUPPORTED: no legacy IPC");
  return HandleOf(address);
}

absl::StatusOr<std::byte*> EmulatedCuda::OpenMemory(const CudaIpcHandle& handle) {
  TANDEM_RETURN_IF_ERROR(Called("OpenMemory"));
  return Open(handle);
}

absl::Status EmulatedCuda::CloseMemory(std::byte* address) {
  TANDEM_RETURN_IF_ERROR(Called("CloseMemory"));
  return Unmap(address, false);
}

}  // namespace tandem::emulator
