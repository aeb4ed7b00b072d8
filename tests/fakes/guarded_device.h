// A device whose memory crashes a process that touches it other than through the device, and whose
// copies to the host arrive as late as they may: what works here leaves a GPU's memory to the GPU.
#pragma once

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <sys/mman.h>

#include "common/base/check.h"
#include "common/base/mutex.h"
#include "common/base/status.h"
#include "common/device/device.h"

namespace tandem::testing {

// The device's calls are one thread's, like any device's; Access is for any.
class GuardedDevice final : public Device {
 public:
  // While one exists the memory is open: an op's, or a collective's.
  class Access {
   public:
    explicit Access(GuardedDevice* device) : device_(device) { device_->Open(); }
    ~Access() { device_->Close(); }
    Access(const Access&) = delete;
    Access& operator=(const Access&) = delete;

   private:
    GuardedDevice* const device_;
  };

  bool is_host() const override { return false; }
  std::string name() const override { return "guarded"; }
  DriverMemory Memory() const override { return {}; }
  absl::Status UseOnThisThread() override { return absl::OkStatus(); }
  absl::StatusOr<std::unique_ptr<MemoryRegion>> Reserve(const std::string& tag,
                                                        int64_t bytes,
                                                        Ledger* ledger) override {
    TANDEM_ASSIGN_OR_RETURN(auto inner, HostDevice()->Reserve(tag, bytes, ledger));
    return std::make_unique<Region>(this, std::move(inner));
  }
  // Another process could read it by its descriptor; this one may not touch it.
  absl::StatusOr<std::unique_ptr<ShareableMemory>> ReserveShareable(const std::string& tag,
                                                                    int64_t bytes,
                                                                    Ledger* ledger) override {
    TANDEM_ASSIGN_OR_RETURN(auto inner, HostDevice()->ReserveShareable(tag, bytes, ledger));
    return std::make_unique<Shareable>(this, std::move(inner));
  }
  absl::StatusOr<std::unique_ptr<MemoryRegion>> ReserveHost(const std::string& tag,
                                                            int64_t bytes,
                                                            Ledger* ledger) override {
    return HostDevice()->ReserveHost(tag, bytes, ledger);
  }

  absl::StatusOr<std::unique_ptr<OffloadStream>> StreamThrough(
      std::vector<OffloadStream::Array> arrays,
      std::vector<OffloadStream::Window> windows,
      Ledger* ledger) override {
    auto stream = std::make_unique<Stream>(this, std::move(arrays), std::move(windows));
    TANDEM_RETURN_IF_ERROR(stream->Map(ledger));
    return stream;
  }

  absl::StatusOr<std::unique_ptr<UploadStream>> OpenUploads() override {
    return std::make_unique<Uploads>(this);
  }

  void Copy(void* to, const void* from, int64_t bytes) override {
    const Access access(this);
    DeliverOver(from, bytes);
    DeliverOver(to, bytes);
    if (Owns(to)) {
      std::memcpy(to, from, static_cast<size_t>(bytes));
      return;
    }
    const auto* first = static_cast<const std::byte*>(from);
    late_.push_back({static_cast<std::byte*>(to), {first, first + bytes}});
    std::memset(to, 0xa5, static_cast<size_t>(bytes));
  }
  void Zero(void* to, int64_t bytes) override {
    const Access access(this);
    std::memset(to, 0, static_cast<size_t>(bytes));
  }
  absl::Status Synchronize() override {
    for (const Late& late : late_) std::memcpy(late.to, late.bytes.data(), late.bytes.size());
    late_.clear();
    return absl::OkStatus();
  }

  // Whether it is an address of this device's memory. Any thread.
  bool Owns(const void* address) {
    const MutexLock lock(mapped_mutex_);
    const auto* at = static_cast<const std::byte*>(address);
    return std::any_of(mapped_.begin(), mapped_.end(), [at](const auto& range) {
      return at >= range.first && at < range.first + range.second;
    });
  }

 private:
  class Region final : public MemoryRegion {
   public:
    Region(GuardedDevice* device, std::unique_ptr<MemoryRegion> inner)
        : MemoryRegion(inner->tag(), inner->data(), inner->bytes()),
          device_(device),
          inner_(std::move(inner)) {}
    ~Region() override { device_->Forget(data()); }
    absl::Status Map() override {
      TANDEM_RETURN_IF_ERROR(inner_->Map());
      if (!mapped()) device_->Guard(data(), bytes());
      set_mapped(true);
      return absl::OkStatus();
    }
    absl::Status Release() override {
      device_->Forget(data());
      set_mapped(false);
      return inner_->Release();
    }
    int64_t ResidentBytes() const override { return inner_->ResidentBytes(); }

   private:
    GuardedDevice* const device_;
    const std::unique_ptr<MemoryRegion> inner_;
  };
  class Shareable final : public ShareableMemory {
   public:
    Shareable(GuardedDevice* device, std::unique_ptr<ShareableMemory> inner)
        : device_(device), inner_(std::move(inner)) {
      device_->Guard(data(), bytes());
    }
    ~Shareable() override { device_->Forget(data()); }
    std::byte* data() const override { return inner_->data(); }
    int64_t bytes() const override { return inner_->bytes(); }
    int fd() const override { return inner_->fd(); }

   private:
    GuardedDevice* const device_;
    const std::unique_ptr<ShareableMemory> inner_;
  };
  // One buffer for each array: windows come and go in the order of the calls.
  class Stream final : public OffloadStream {
   public:
    Stream(GuardedDevice* device, std::vector<Array> arrays, std::vector<Window> windows)
        : device_(device), arrays_(std::move(arrays)), windows_(std::move(windows)) {}
    ~Stream() override { TANDEM_CHECK(Finish().ok(), "copies"); }
    absl::Status Map(Ledger* ledger) {
      int64_t largest = 1;
      for (const Window& window : windows_) largest = std::max(largest, window.bytes);
      for (const Array& array : arrays_) {
        TANDEM_ASSIGN_OR_RETURN(auto buffer, device_->Reserve(array.tag, largest, ledger));
        TANDEM_RETURN_IF_ERROR(buffer->Map());
        buffers_.push_back(std::move(buffer));
      }
      return absl::OkStatus();
    }
    absl::StatusOr<std::vector<std::byte*>> Open(size_t window) override {
      std::vector<std::byte*> places;
      for (size_t i = 0; i < arrays_.size(); ++i) {
        places.push_back(buffers_[i]->data());
        device_->Copy(places.back(), arrays_[i].home + windows_[window].offset,
                      windows_[window].bytes);
      }
      return places;
    }
    absl::Status Close(size_t window) override {
      for (size_t i = 0; i < arrays_.size(); ++i) {
        device_->Copy(arrays_[i].home + windows_[window].offset, buffers_[i]->data(),
                      windows_[window].bytes);
      }
      return absl::OkStatus();
    }
    absl::Status Finish() override { return device_->Synchronize(); }

   private:
    GuardedDevice* const device_;
    const std::vector<Array> arrays_;
    const std::vector<Window> windows_;
    std::vector<std::unique_ptr<MemoryRegion>> buffers_;
  };
  // What is copied arrives when somebody waits for it.
  class Uploads final : public UploadStream {
   public:
    explicit Uploads(GuardedDevice* device) : device_(device) {}
    ~Uploads() override { Deliver(); }
    absl::Status Begin() override { return absl::OkStatus(); }
    absl::Status Copy(void* to, const void* from, int64_t bytes) override {
      copies_.push_back({to, from, bytes});
      return absl::OkStatus();
    }
    absl::Status Join() override {
      Deliver();
      return absl::OkStatus();
    }

   private:
    struct Waiting {
      void* to;
      const void* from;
      int64_t bytes;
    };
    void Deliver() {
      for (const Waiting& copy : copies_) device_->Copy(copy.to, copy.from, copy.bytes);
      copies_.clear();
    }
    GuardedDevice* const device_;
    std::vector<Waiting> copies_;
  };
  // A copy to the host that nobody has waited for.
  struct Late {
    std::byte* to;
    std::vector<std::byte> bytes;
  };

  static void Protect(std::byte* data, int64_t bytes, bool open) {
    const int done =
        mprotect(data, static_cast<size_t>(bytes), open ? PROT_READ | PROT_WRITE : PROT_NONE);
    TANDEM_CHECK(done == 0, "memory of a guarded device");
  }
  void Open() {
    const MutexLock lock(mapped_mutex_);
    if (open_++ > 0) return;
    for (const auto& [data, bytes] : mapped_) Protect(data, bytes, true);
  }
  void Close() {
    const MutexLock lock(mapped_mutex_);
    if (--open_ > 0) return;
    for (const auto& [data, bytes] : mapped_) Protect(data, bytes, false);
  }
  void Guard(std::byte* data, int64_t bytes) {
    const MutexLock lock(mapped_mutex_);
    mapped_[data] = bytes;
    Protect(data, bytes, open_ > 0);
  }
  void Forget(std::byte* data) {
    const MutexLock lock(mapped_mutex_);
    mapped_.erase(data);
  }
  // Work on host memory comes after earlier copies to it.
  void DeliverOver(const void* address, int64_t bytes) {
    const auto* first = static_cast<const std::byte*>(address);
    const bool overlaps = std::any_of(late_.begin(), late_.end(), [&](const Late& late) {
      return late.to < first + bytes && first < late.to + late.bytes.size();
    });
    if (overlaps) TANDEM_CHECK(Synchronize().ok(), "copies");
  }

  Mutex mapped_mutex_;
  std::map<std::byte*, int64_t> mapped_ ABSL_GUARDED_BY(mapped_mutex_);  // bytes
  int open_ ABSL_GUARDED_BY(mapped_mutex_) = 0;                          // accesses now
  std::vector<Late> late_;
};

}  // namespace tandem::testing
