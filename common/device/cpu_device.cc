#include <cstring>
#include <utility>
#include <vector>

#include "common/device/cpu_region.h"
#include "common/device/device.h"
#include "common/device/shared_region.h"

namespace tandem {
namespace {

// What is at home is on the device already.
class HostStream final : public OffloadStream {
 public:
  HostStream(std::vector<Array> arrays, std::vector<Window> windows)
      : arrays_(std::move(arrays)), windows_(std::move(windows)) {}
  absl::StatusOr<std::vector<std::byte*>> Open(size_t window) override {
    std::vector<std::byte*> places;
    for (const Array& array : arrays_) places.push_back(array.home + windows_[window].offset);
    return places;
  }
  absl::Status Close(size_t /*window*/) override { return absl::OkStatus(); }
  absl::Status Finish() override { return absl::OkStatus(); }

 private:
  const std::vector<Array> arrays_;
  const std::vector<Window> windows_;
};

// The host's memory is the device's, and its work is done when it is asked for.
class HostUploads final : public UploadStream {
 public:
  absl::Status Begin() override { return absl::OkStatus(); }
  absl::Status Copy(void* to, const void* from, int64_t bytes) override {
    if (bytes > 0) std::memcpy(to, from, static_cast<size_t>(bytes));
    return absl::OkStatus();
  }
  absl::Status Join() override { return absl::OkStatus(); }
};

class CpuDevice final : public Device {
 public:
  bool is_host() const override { return true; }
  std::string name() const override { return "CPU"; }
  DriverMemory Memory() const override { return {}; }
  absl::Status UseOnThisThread() override { return absl::OkStatus(); }
  absl::StatusOr<std::unique_ptr<MemoryRegion>> Reserve(const std::string& tag,
                                                        int64_t bytes,
                                                        Ledger* ledger) override {
    return CpuRegion::Reserve(tag, bytes, ledger, Location::kDevice);
  }
  absl::StatusOr<std::unique_ptr<ShareableMemory>> ReserveShareable(const std::string& tag,
                                                                    int64_t bytes,
                                                                    Ledger* ledger) override {
    return SharedRegion::Create(tag, bytes, ledger, Location::kDevice, SharedRegion::Pages::kHuge);
  }
  absl::StatusOr<std::unique_ptr<MemoryRegion>> ReserveHost(const std::string& tag,
                                                            int64_t bytes,
                                                            Ledger* ledger) override {
    return CpuRegion::Reserve(tag, bytes, ledger, Location::kHost);
  }
  absl::StatusOr<std::unique_ptr<OffloadStream>> StreamThrough(
      std::vector<OffloadStream::Array> arrays,
      std::vector<OffloadStream::Window> windows,
      Ledger* /*ledger*/) override {
    return std::make_unique<HostStream>(std::move(arrays), std::move(windows));
  }
  absl::StatusOr<std::unique_ptr<UploadStream>> OpenUploads() override {
    return std::make_unique<HostUploads>();
  }
  void Copy(void* to, const void* from, int64_t bytes) override {
    std::memcpy(to, from, static_cast<size_t>(bytes));
  }
  void Zero(void* to, int64_t bytes) override { std::memset(to, 0, static_cast<size_t>(bytes)); }
  absl::Status Synchronize() override { return absl::OkStatus(); }
};

}  // namespace

Device* HostDevice() {
  static CpuDevice device;
  return &device;
}

}  // namespace tandem
