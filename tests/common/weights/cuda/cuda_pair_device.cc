#include <algorithm>

#include <unistd.h>

#include "common/base/status.h"
#include "common/device/cuda/cuda_device.h"
#include "common/weights/cuda/cuda_storage_ops.h"
#include "common/weights/cuda/cuda_transport.h"
#include "common/weights/cuda/ipc_slots.h"
#include "tests/common/weights/cuda/device_weights.h"
#include "tests/common/weights/pair_device.h"
#include "tests/emulator/emulated_cuda.h"
#include "tests/gpu/gpu.h"
#include "tests/support/listen_for_slots.h"

namespace tandem::testing {
namespace {

class CudaPairDevice final : public PairDevice {
 public:
  CudaPairDevice(std::unique_ptr<CudaApi> cuda, std::unique_ptr<CudaContext> context)
      : cuda_(std::move(cuda)),
        emulated_(dynamic_cast<emulator::EmulatedCuda*>(cuda_.get())),
        device_(std::move(context)) {}
  absl::Status Choose(const std::string& key) {
    over_tcp_ = key == "tcp";
    TANDEM_ASSIGN_OR_RETURN(transport_, CudaTransport::Create(&device_.context(), key));
    return absl::OkStatus();
  }

  Device& device() override { return device_; }
  WeightTransport* transport() override { return transport_.get(); }
  WeightFormat format() const override { return WeightFormat::kRowMajor; }
  std::string Model(const std::string& size) const override {
    // Every bucket of a matrix of faults starts processes, and a driver takes its time to start.
    return emulated_ == nullptr && size == "full" ? size : "tiny";
  }
  absl::StatusOr<std::unique_ptr<StorageOps>> Storage(const WeightLayout* layout,
                                                      std::byte* storage) override {
    return CreateCudaStorageOps(layout, storage, &device_.context());
  }
  std::unique_ptr<MemoryWeights> Weights(const WeightLayout& layout,
                                         uint64_t seed,
                                         bool direct) override {
    return std::make_unique<DeviceWeights>(
        layout, seed, &device_.context(),
        direct ? DeviceWeights::Use::kShared : DeviceWeights::Use::kGathered);
  }
  // On a GPU half a second of writing, more or less.
  absl::Status Occupy() override {
    if (emulated_ != nullptr) {
      emulated_->HoldEvents(true);
      return absl::OkStatus();
    }
    constexpr int64_t kBytes = int64_t{1} << 30;
    TANDEM_ASSIGN_OR_RETURN(std::byte* const memory, cuda_->Malloc(kBytes));
    for (int fill = 0; fill < 800; ++fill) {
      TANDEM_RETURN_IF_ERROR(cuda_->Fill(memory, 0, kBytes, device_.context().stream()));
    }
    return absl::OkStatus();  // the memory goes with the process
  }
  int64_t UsedBytes() override {
    const absl::StatusOr<int64_t> free = cuda_->FreeBytes();
    return free.ok() ? device_.context().info().total_bytes - *free : -1;
  }
  int FaultStride() const override { return emulated_ == nullptr ? 3 : 1; }
  int64_t SlackBytes() const override {
    return emulated_ == nullptr ? int64_t{16} << 20 : 0;  // what a driver keeps for itself
  }
  bool over_tcp() const override { return over_tcp_; }
  absl::StatusOr<std::unique_ptr<SlotListener>> ListenForSlots() override {
    if (!over_tcp_) return nullptr;
    return ListenOnLoopback();
  }

 private:
  bool over_tcp_ = false;
  const std::unique_ptr<CudaApi> cuda_;
  emulator::EmulatedCuda* const emulated_;  // null: a GPU
  CudaDevice device_;
  std::unique_ptr<CudaTransport> transport_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<PairDevice>> MakePairDevice(const std::string& way) {
  const size_t at = way.find('@');
  TANDEM_ASSIGN_OR_RETURN(auto cuda, OpenGpu());
  int device = 0;
  if (at != std::string::npos) {
    TANDEM_ASSIGN_OR_RETURN(device, DeviceOfUuid(*cuda, way.substr(at + 1)));
  }
  TANDEM_ASSIGN_OR_RETURN(auto context, CudaContext::Create(cuda.get(), device));
  auto made = std::make_unique<CudaPairDevice>(std::move(cuda), std::move(context));
  TANDEM_RETURN_IF_ERROR(made->Choose(way.substr(0, at)));
  return made;
}

std::vector<std::string> PairWays() { return {"ipc", "shm", "tcp"}; }

std::vector<std::string> PairPeerCommand() {
  std::string program(4096, '\0');
  program.resize(static_cast<size_t>(
      std::max<ssize_t>(readlink("/proc/self/exe", program.data(), program.size()), 0)));
  return {program, "--peer"};
}

}  // namespace tandem::testing
