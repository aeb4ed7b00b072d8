#include <cstdlib>
#include <filesystem>

#include "common/process/threads.h"
#include "common/weights/host_slots.h"
#include "tests/common/weights/pair_device.h"
#include "tests/support/build_folder.h"
#include "tests/support/certificates.h"
#include "tests/support/listen_for_slots.h"
#include "tests/support/temp_dir.h"

namespace tandem::testing {
namespace {

// The folder of the certificates of both ends: made by the test, named to the peers that it starts.
std::filesystem::path Certificates() {
  constexpr const char* kVariable = "TANDEM_TEST_CERTIFICATES";
  if (const char* made = std::getenv(kVariable); made != nullptr) return made;
  static const TempDir dir;
  const Authority authority(dir.path(), "pair");
  for (const char* role : {"trainer", "rollout"}) authority.Issue(role, NamesOf(role));
  setenv(kVariable, dir.path().c_str(), 1);
  return dir.path();
}

class HostPairDevice final : public PairDevice {
 public:
  explicit HostPairDevice(std::string way) : way_(std::move(way)) {}
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
  bool over_tcp() const override { return way_ != "host"; }
  TcpSecurity DataSecurity(const std::string& peer) const override {
    if (way_ != "tls") return {};
    const std::string own = peer == "rollout" ? "trainer" : "rollout";
    const std::string base = (Certificates() / ("pair-" + own)).string();
    return {.cert = base + ".pem",
            .key = base + ".key",
            .ca = (Certificates() / "pair-ca.pem").string(),
            .project = "demo",
            .peer_roles = {peer}};
  }
  absl::StatusOr<std::unique_ptr<SlotListener>> ListenForSlots() override {
    if (!over_tcp()) return nullptr;
    return ListenOnLoopback(DataSecurity("trainer"));
  }

 private:
  const std::string way_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<PairDevice>> MakePairDevice(const std::string& way) {
  if (way != "host" && way != "tcp" && way != "tls") {
    return absl::InvalidArgumentError("a host has no way \"" + way + "\"");
  }
  if (way == "tls") Certificates();  // before a peer starts, which would make others
  return std::make_unique<HostPairDevice>(way);
}

std::vector<std::string> PairWays() { return {"host", "tcp", "tls"}; }

std::vector<std::string> PairPeerCommand() { return {BuildFolder("tests") + "/pair_peer"}; }

}  // namespace tandem::testing
