// What the suite of a host's pair of processes, beside this, has no words for: weights that sleep
// between two updates, handles that are not what they should be, and GPUs in another order.
#include <cstdlib>

#include "common/weights/cuda/ipc_slots.h"
#include "tests/common/weights/pair_processes.h"
#include "tests/gpu/gpu.h"
#include "tests/support/patience.h"

namespace tandem {
namespace {

using testing::Pair;

constexpr int64_t kSlotBytes = 512 << 10;

void Order(Pair& pair, bool sleep) {
  const auto stub = v1::RolloutService::NewStub(pair.channel);
  grpc::ClientContext context;
  SetDeadline(context, testing::kPatience);
  v1::SleepResponse slept;
  v1::WakeResponse woken;
  REQUIRE((sleep ? stub->Sleep(&context, {}, &slept) : stub->Wake(&context, {}, &woken)).ok());
}

// Slots whose handle is another's when it is passed.
class ForgedSlots final : public ProducerSlots {
 public:
  ForgedSlots(const ProducerSlots& slots, SlotHandle handle)
      : ProducerSlots(slots.shape()), handle_(std::move(handle)) {}
  std::byte* slot(int) const override { return nullptr; }
  bool persistent() const override { return false; }
  int64_t bytes() const override { return 0; }
  bool must_be_closed() const override { return false; }
  SlotHandle handle() const override { return handle_; }
  absl::Status BeginFill(int, const PeerConnection&) override { return absl::OkStatus(); }
  absl::Status Copy(std::byte*, const void*, int64_t) override { return absl::OkStatus(); }
  absl::Status EndFill(int, int64_t) override { return absl::OkStatus(); }

 private:
  const SlotHandle handle_;
};

}  // namespace

TEST_CASE("weights that slept between two updates are whole after the next, slots kept or not") {
  Pair pair("small", GENERATE(from_range(testing::PairWays())));
  const auto rollout = pair.StartRollout();
  const bool direct = GENERATE(false, true), kept = GENERATE(false, true);
  if (kept) pair.keep_bytes = int64_t{1} << 40;
  INFO(pair.way << (direct ? ", direct" : "") << (kept ? ", kept" : ""));
  const auto weights = pair.Weights(3, direct);
  for (int version = 1; version <= 3; ++version) {
    for (const TensorPlace& place : pair.layout.places()) {
      weights->tensor(place.name)[0] ^= std::byte{0x5a};
    }
    const auto report = pair.Publish(version, *weights, kSlotBytes);
    INFO(report.status().ToString());
    REQUIRE(report.ok());
    REQUIRE(report->direct == (direct && pair.way == "ipc"));
    REQUIRE(pair.Check(*weights).ok());
    Order(pair, /*sleep=*/true);
    REQUIRE(pair.Status().version() == -1);
    Order(pair, /*sleep=*/false);
  }
}

TEST_CASE("a shard that its trainer left behind is closed before the next update") {
  Pair pair("small", "ipc");
  const auto rollout = pair.StartRollout();
  const std::string there = std::to_string(rollout->pid());
  const auto open_after = [&](int version, bool direct) {
    REQUIRE(pair.StartTrainer(4, version, "none", -1, kSlotBytes, direct)->Wait() == 0);
    REQUIRE(pair.Status().version() == version);
    return testing::OpenDescriptors(there, "emulated-cuda");
  };
  const int slots = open_after(1, false), shard = open_after(2, true);
  if (testing::kEmulated) REQUIRE(slots == shard);  // a real driver's descriptors have no such name
  const auto weights = pair.Weights(3);
  REQUIRE(pair.Publish(3, *weights, kSlotBytes).ok());
  REQUIRE(pair.Check(*weights).ok());
}

TEST_CASE("a handle of other memory, cut short or spoilt is refused, and the next update works") {
  Pair pair("small", "ipc");
  const auto rollout = pair.StartRollout();
  const auto weights = pair.Weights(3);
  const auto slots = pair.device->transport()->Create({1 << 20, 1}, SlotLife::kOneUpdate, nullptr);
  REQUIRE(slots.ok());
  const SlotHandle whole = (*slots)->handle();
  const auto changed = [&whole](const auto& change) {
    IpcPayload payload = IpcPayload::FromBytes(whole.payload).value();
    change(payload);
    return SlotHandle{.kind = whole.kind, .payload = payload.ToBytes()};
  };
  SlotHandle cut = whole, host = whole;
  cut.payload.resize(cut.payload.size() / 2);
  host.kind = SlotHandle::Kind::kSharedMemory;
  const SlotHandle spoilt = changed([](IpcPayload& payload) {
    for (std::byte& byte : payload.memory.bytes) byte ^= std::byte{0x55};
  });
  const SlotHandle elsewhere = changed([](IpcPayload& payload) { payload.uuid.assign(32, 'f'); });
  int64_t version = 0;
  for (const SlotHandle& handle : {cut, host, spoilt, elsewhere}) {
    GrpcUpdateClient client(pair.channel, {});
    const ForgedSlots forged(**slots, handle);
    const auto link = client.Begin({.id = {++version, absl::ToUnixMicros(absl::Now())},
                                    .slots = forged.shape(),
                                    .manifest = ManifestOf(pair.layout),
                                    .group_generation = Pair::kGeneration},
                                   forged);
    REQUIRE(link.ok());
    REQUIRE(client.StartApply(0, {}).ok());
    const absl::Status refused = client.WaitApply(0);
    INFO(refused.ToString());
    REQUIRE(!refused.ok());
    REQUIRE(!absl::IsUnavailable(refused));
    REQUIRE(client.Abort("refused").ok());
    REQUIRE(pair.Publish(++version, *weights, kSlotBytes).ok());
    REQUIRE(pair.Check(*weights).ok());
  }
}

TEST_CASE("a pair that counts its GPUs differently meets on one of them") {
  const auto gpu = *testing::OpenGpu();
  const auto second = gpu->Describe(1);
  if (!second.ok() || std::getenv("CUDA_VISIBLE_DEVICES") != nullptr) {
    WARN("not run: it needs two GPUs, and CUDA_VISIBLE_DEVICES not to be set");
    return;
  }
  // Of the trainer here it is device 1, of the rollout device 0.
  Pair pair("small", "ipc@" + second->uuid);
  REQUIRE(setenv("CUDA_VISIBLE_DEVICES", "1,0", 1) == 0);
  const auto rollout = pair.StartRollout();
  REQUIRE(unsetenv("CUDA_VISIBLE_DEVICES") == 0);
  const auto weights = pair.Weights(3);
  const auto report = pair.Publish(1, *weights, kSlotBytes);
  INFO(report.status().ToString());
  REQUIRE(report.ok());
  REQUIRE(pair.Check(*weights).ok());
}

}  // namespace tandem
