#include "common/process/threads.h"
#include "common/weights/host_slots.h"
#include "tests/common/weights/pair_device.h"
#include "tests/support/build_folder.h"

namespace tandem::testing {
namespace {

class HostPairDevice final : public PairDevice {
 public:
  Device& device() override { return *HostDevice(); }
  WeightTransport* transport() override { return HostTransport(); }
  WeightFormat format() const override { return WeightFormat::kPanels; }
  std::string Model(const std::string& size) const override { return size; }
  absl::StatusOr<std::unique_ptr<StorageOps>> Storage(const WeightLayout* layout,
                                                      std::byte* storage) override {
    return CreateCpuStorageOps(layout, storage, std::make_shared<ThreadPool>(1));
  }
  std::unique_ptr<MemoryWeights> Weights(const WeightLayout& layout,
                                         uint64_t seed,
                                         bool direct) override {
    auto weights = std::make_unique<MemoryWeights>(layout, seed);
    if (direct) weights->Share();
    return weights;
  }
  absl::Status Occupy() override {
    return absl::UnimplementedError("what a host is asked for has happened");
  }
  int64_t UsedBytes() override { return 0; }
  int64_t SlackBytes() const override { return 0; }
};

}  // namespace

absl::StatusOr<std::unique_ptr<PairDevice>> MakePairDevice(const std::string& way) {
  if (way != "host") return absl::InvalidArgumentError("a host has no way \"" + way + "\"");
  return std::make_unique<HostPairDevice>();
}

std::vector<std::string> PairWays() { return {"host"}; }

std::vector<std::string> PairPeerCommand() { return {BuildFolder("tests") + "/pair_peer"}; }

}  // namespace tandem::testing
