#include "tests/emulator/emulated_cuda.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <utility>

#include <sys/mman.h>
#include <unistd.h>

#include "common/base/status.h"
#include "tests/emulator/capture.h"
#include "tests/emulator/current_device.h"
#include "tests/emulator/late_streams.h"

namespace tandem::emulator {
namespace {

constexpr int64_t kGranularity = int64_t{2} << 20;
constexpr int kFirstUuid = 0xe0;

void* MapAnonymous(int64_t bytes, int protection) {
  void* const memory = mmap(nullptr, static_cast<size_t>(bytes), protection,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return memory == MAP_FAILED ? nullptr : memory;
}

}  // namespace

EmulatedCudaOptions OptionsFromEnvironment() {
  EmulatedCudaOptions options;
  const char* const late = std::getenv("TANDEM_EMULATED_LATE");
  if (late != nullptr) options.late_streams = std::strtoull(late, nullptr, 0);
  return options;
}

EmulatedCuda::EmulatedCuda(EmulatedCudaOptions options) : options_(options), driver_(NewDriver()) {}

EmulatedCuda::~EmulatedCuda() {
  *closing_ = true;
  for (const CudaStream stream : streams_) {
    late_events_.Close(stream);
    CloseLate(stream);
    UnbindStream(stream);
  }
  for (const auto& [address, mapping] : shared_) Close(address, mapping);
  for (const auto& [address, bytes] : reserved_) munmap(address, static_cast<size_t>(bytes));
  for (const auto& [address, bytes] : host_) munmap(address, static_cast<size_t>(bytes));
}

void EmulatedCuda::FailCall(const std::string& name, absl::Status status, int skipped) {
  const MutexLock lock(state_mutex_);
  failures_.push_back({name, std::move(status), skipped});
}

void EmulatedCuda::LoseDevice() {
  const MutexLock lock(state_mutex_);
  Lose(WithDeviceLost(Internal("cudaErrorIllegalAddress (700): the device was lost on purpose")));
}

void EmulatedCuda::Lose(const absl::Status& why) {
  lost_ = why;
  MarkLost(driver_, why);
}

std::vector<std::string> EmulatedCuda::calls() const {
  const MutexLock lock(state_mutex_);
  return calls_;
}

void EmulatedCuda::ForgetCalls() {
  const MutexLock lock(state_mutex_);
  calls_.clear();
}

int EmulatedCuda::urgent_streams() const {
  const MutexLock lock(state_mutex_);
  return urgent_streams_;
}

int64_t EmulatedCuda::used_bytes() const {
  const MutexLock lock(state_mutex_);
  return used_;
}

int64_t EmulatedCuda::peak_bytes() const {
  const MutexLock lock(state_mutex_);
  return peak_;
}

void EmulatedCuda::ResetPeak() {
  const MutexLock lock(state_mutex_);
  peak_ = used_;
}

void EmulatedCuda::HoldReleasedPages(int64_t bytes) {
  const MutexLock lock(state_mutex_);
  to_hold_ = bytes;
  used_ -= std::exchange(held_, 0);
}

absl::Status EmulatedCuda::CheckThread(const char* name) const {
  const MutexLock lock(state_mutex_);
  if (!lost_.ok()) return lost_;
  if (!chose_other_device_ || HasChosenDevice(driver_)) return absl::OkStatus();
  return Internal(
      "{} by a thread that never chose a device, in a process that uses another one than device 0: "
      "UseDevice comes first",
      name);
}

absl::Status EmulatedCuda::NotWhileCapturing(const char* call) const {
  if (!SpoilCapture()) return absl::OkStatus();
  return Internal("cudaErrorStreamCaptureUnsupported: {} while this thread captures a stream",
                  call);
}

absl::Status EmulatedCuda::Called(const char* name) {
  TANDEM_RETURN_IF_ERROR(CheckThread(name));
  {
    const MutexLock lock(state_mutex_);
    ProtectFreed();
    calls_.emplace_back(name);
  }
  return Injected(name);
}

absl::Status EmulatedCuda::Injected(const char* name) {
  const MutexLock lock(state_mutex_);
  for (auto failure = failures_.begin(); failure != failures_.end(); ++failure) {
    if (failure->call != name || failure->skipped-- > 0) continue;
    const absl::Status status = failure->status;
    failures_.erase(failure);
    if (IsDeviceLost(status)) Lose(status);
    return status;
  }
  return absl::OkStatus();
}

absl::StatusOr<int> EmulatedCuda::DeviceCount() { return options_.devices; }

absl::StatusOr<CudaDeviceInfo> EmulatedCuda::Describe(int device) {
  if (device < 0 || device >= options_.devices) {
    return FailedPrecondition("there is no emulated device {}", device);
  }
  return CudaDeviceInfo{
      .name = "emulated",
      .uuid = fmt::format("{:032x}", kFirstUuid + options_.first_device + device),
      .compute_major = options_.compute_major,
      .compute_minor = options_.compute_minor,
      .multiprocessors = 4,
      .total_bytes = options_.total_bytes,
      .shared_bytes_per_block = SharedLimitOf(options_.compute_major, options_.compute_minor).bytes,
      .virtual_memory = options_.virtual_memory,
      .legacy_ipc = options_.legacy_ipc};
}

absl::Status EmulatedCuda::UseDevice(int device) {
  TANDEM_RETURN_IF_ERROR(Describe(device).status());
  ChooseDevice(driver_, device);
  const MutexLock lock(state_mutex_);
  chose_other_device_ = chose_other_device_ || device != 0;
  return lost_;
}

absl::StatusOr<int64_t> EmulatedCuda::FreeBytes() {
  TANDEM_RETURN_IF_ERROR(CheckThread("cudaMemGetInfo"));
  TANDEM_RETURN_IF_ERROR(Injected("FreeBytes"));
  const MutexLock lock(state_mutex_);
  return options_.total_bytes - used_;
}

absl::StatusOr<int64_t> EmulatedCuda::Granularity() { return kGranularity; }

absl::Status EmulatedCuda::TakeBytes(int64_t bytes) {
  const MutexLock lock(state_mutex_);
  if (bytes > options_.total_bytes - used_) {
    return MakeStatus(absl::StatusCode::kResourceExhausted,
                      "CUDA_ERROR_OUT_OF_MEMORY: {} bytes of {} are free",
                      options_.total_bytes - used_, options_.total_bytes);
  }
  used_ += bytes;
  peak_ = std::max(peak_, used_);
  return absl::OkStatus();
}

absl::StatusOr<std::byte*> EmulatedCuda::ReserveAddresses(int64_t bytes) {
  TANDEM_RETURN_IF_ERROR(Called("ReserveAddresses"));
  auto* const address = static_cast<std::byte*>(MapAnonymous(bytes, PROT_NONE));
  if (address == nullptr) return Internal("no addresses for {} bytes", bytes);
  const MutexLock lock(state_mutex_);
  reserved_[address] = bytes;
  return address;
}

absl::Status EmulatedCuda::FreeAddresses(std::byte* address, int64_t bytes) {
  TANDEM_RETURN_IF_ERROR(Called("FreeAddresses"));
  const MutexLock lock(state_mutex_);
  const auto found = reserved_.find(address);
  if (found == reserved_.end() || found->second != bytes) {
    return Internal("CUDA_ERROR_INVALID_VALUE: no such reservation");
  }
  munmap(address, static_cast<size_t>(bytes));
  reserved_.erase(found);
  return absl::OkStatus();
}

absl::StatusOr<CudaPages> EmulatedCuda::CreatePages(int64_t bytes) {
  TANDEM_RETURN_IF_ERROR(Called("CreatePages"));
  if (bytes <= 0 || bytes % kGranularity != 0) {
    return Internal("CUDA_ERROR_INVALID_VALUE: {} bytes of pages", bytes);
  }
  TANDEM_RETURN_IF_ERROR(TakeBytes(bytes));
  const MutexLock lock(state_mutex_);
  pages_[next_pages_] = bytes;
  return next_pages_++;
}

absl::Status EmulatedCuda::ReleasePages(CudaPages pages) {
  TANDEM_RETURN_IF_ERROR(Called("ReleasePages"));
  const MutexLock lock(state_mutex_);
  const auto found = pages_.find(pages);
  if (found == pages_.end()) return Internal("CUDA_ERROR_INVALID_VALUE: no such pages");
  // The driver keeps pages that are mapped until they are unmapped.
  bool in_use = false;
  for (const auto& [address, mapping] : mapped_) in_use = in_use || mapping.second == pages;
  if (in_use) return Internal("pages are released while they are mapped");
  const int64_t held = std::min(to_hold_, found->second);
  to_hold_ -= held;
  held_ += held;
  used_ -= found->second - held;
  pages_.erase(found);
  return absl::OkStatus();
}

absl::Status EmulatedCuda::MapPages(std::byte* address, int64_t bytes, CudaPages pages) {
  TANDEM_RETURN_IF_ERROR(Called("MapPages"));
  const MutexLock lock(state_mutex_);
  const auto held = pages_.find(pages);
  if (held == pages_.end() || held->second != bytes || mapped_.contains(address)) {
    return Internal("CUDA_ERROR_INVALID_VALUE: pages cannot be mapped there");
  }
  auto within = reserved_.upper_bound(address);
  if (within == reserved_.begin() || (--within)->first + within->second < address + bytes) {
    return Internal("CUDA_ERROR_INVALID_ADDRESS_SPACE: the range is not reserved");
  }
  if (mprotect(address, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE) != 0) {
    return Internal("mprotect: {}", std::strerror(errno));
  }
  std::memset(address, 0xff, static_cast<size_t>(bytes));  // new pages hold anything
  mapped_[address] = {bytes, pages};
  return absl::OkStatus();
}

absl::Status EmulatedCuda::UnmapPages(std::byte* address, int64_t bytes) {
  TANDEM_RETURN_IF_ERROR(Called("UnmapPages"));
  const MutexLock lock(state_mutex_);
  const auto found = mapped_.find(address);
  if (found == mapped_.end() || found->second.first != bytes) {
    return Internal("CUDA_ERROR_INVALID_VALUE: nothing is mapped there");
  }
  madvise(address, static_cast<size_t>(bytes), MADV_DONTNEED);
  mprotect(address, static_cast<size_t>(bytes), PROT_NONE);
  mapped_.erase(found);
  return absl::OkStatus();
}

absl::StatusOr<std::byte*> EmulatedCuda::AllocateHost(int64_t bytes) {
  TANDEM_RETURN_IF_ERROR(Called("AllocateHost"));
  TANDEM_RETURN_IF_ERROR(NotWhileCapturing("cudaHostAlloc"));
  auto* const address = static_cast<std::byte*>(MapAnonymous(bytes, PROT_READ | PROT_WRITE));
  if (address == nullptr) {
    return MakeStatus(absl::StatusCode::kResourceExhausted, "no {} bytes of host memory", bytes);
  }
  const MutexLock lock(state_mutex_);
  host_[address] = bytes;
  return address;
}

absl::Status EmulatedCuda::FreeHost(std::byte* address) {
  TANDEM_RETURN_IF_ERROR(Called("FreeHost"));
  const MutexLock lock(state_mutex_);
  const auto found = host_.find(address);
  if (found == host_.end()) return Internal("CUDA_ERROR_INVALID_VALUE: no such host memory");
  munmap(address, static_cast<size_t>(found->second));
  host_.erase(found);
  return absl::OkStatus();
}

absl::Status EmulatedCuda::RegisterHost(std::byte* address, int64_t bytes) {
  TANDEM_RETURN_IF_ERROR(Called("RegisterHost"));
  const MutexLock lock(state_mutex_);
  const bool registered = registered_.emplace(address, bytes).second;
  return registered ? absl::OkStatus()
                    : Internal("cudaErrorHostMemoryAlreadyRegistered: it is registered");
}
absl::Status EmulatedCuda::UnregisterHost(std::byte* address) {
  TANDEM_RETURN_IF_ERROR(Called("UnregisterHost"));
  const MutexLock lock(state_mutex_);
  const bool registered = registered_.erase(address) > 0;
  return registered ? absl::OkStatus()
                    : Internal("cudaErrorHostMemoryNotRegistered: it is not registered");
}

bool EmulatedCuda::IsPageable(const void* address) const {
  const auto within = [address](const auto& ranges, const auto& bytes_of) {
    auto range = ranges.upper_bound(static_cast<std::byte*>(const_cast<void*>(address)));
    return range != ranges.begin() && (--range)->first + bytes_of(range->second) > address;
  };
  const auto bytes = [](int64_t size) { return size; };
  const MutexLock lock(state_mutex_);
  return !within(host_, bytes) && !within(registered_, bytes) && !within(reserved_, bytes) &&
         !within(shared_, [](const Mapping& mapping) { return mapping.bytes; });
}

}  // namespace tandem::emulator
