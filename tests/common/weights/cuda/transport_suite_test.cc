// The same updates over every transport: shared memory between CPUs, a GPU's memory by handle, and
// pinned shared memory between GPUs, through slots and direct.
#include <catch2/catch.hpp>

#include "tests/common/weights/cuda/pair_rig.h"
#include "tests/common/weights/layout_zoo.h"

namespace tandem {
namespace {

using testing::CallsOf;
using testing::MemoryWeights;
using testing::NameOf;
using testing::OddSpec;
using testing::PairClient;
using testing::PairRig;
using testing::Way;

constexpr Way kWays[] = {Way::kHost, Way::kIpc, Way::kPinned};

}  // namespace

TEST_CASE("W2: a rollout holds the trainer's bytes after a sync, whatever the transport") {
  for (const testing::ZooModel& model : testing::LayoutZoo()) {
    for (const Way way : kWays) {
      for (const bool direct : {false, true}) {
        PairRig rig(way, model.spec, model.dtype);
        const auto weights = rig.Weights(1, direct);
        const int64_t before = rig.trainer.cuda.used_bytes();
        {
          INFO(model.name << " by " << NameOf(way) << (direct ? ", direct" : ""));
          PairClient client(&rig.states, rig.updates.get());
          client.scramble = true;
          WeightPublisher publisher(&rig.layout, rig.Options(24080, 2));
          const auto report = publisher.Publish(7, *weights, &client);
          INFO(report.status().ToString());
          REQUIRE(report.ok());
          // Without IPC a GPU's shard goes through slots.
          REQUIRE(report->direct == (direct && way != Way::kPinned));
          REQUIRE(rig.updates->transaction().version() == 7);
          REQUIRE(rig.Holds(*weights));
          REQUIRE(BytesOf(rig.ledger.Snapshot(), "bucket") == 0);
        }
        REQUIRE(rig.trainer.cuda.used_bytes() == before);
      }
    }
  }
}

TEST_CASE("W6: an update that is lost at any bucket leaves no version and the next one works") {
  for (const Way way : kWays) {
    for (const bool direct : {false, true}) {
      PairRig rig(way, OddSpec(true));
      const auto old_weights = rig.Weights(1, direct), weights = rig.Weights(2, direct);
      int64_t trainers = 0;  // each update comes from a new one
      const auto publish = [&](int64_t version, MemoryWeights& source, int fail_at) {
        PairClient client(&rig.states, rig.updates.get());
        client.fail_at_bucket = fail_at;
        PublishOptions options = rig.Options(8192, 2);
        options.group_generation = ++trainers;
        return WeightPublisher(&rig.layout, options).Publish(version, source, &client);
      };
      const auto first = publish(1, *old_weights, -1);
      REQUIRE(first.ok());
      for (int bucket = 0; bucket < first->buckets; bucket += 3) {
        INFO(NameOf(way) << (direct ? ", direct" : "") << ", bucket " << bucket);
        REQUIRE(absl::IsUnavailable(publish(2, *weights, bucket).status()));
        REQUIRE(!rig.updates->transaction().updating());
        REQUIRE(rig.updates->transaction().version() == (bucket == 0 ? 1 : kNoVersion));
        REQUIRE(publish(3, *old_weights, -1).ok());
        REQUIRE(rig.Holds(*old_weights));
      }
    }
  }
}

TEST_CASE("W6: a byte that is not what was meant is data loss, names the tensor, and is healed") {
  for (const Way way : kWays) {
    INFO(NameOf(way));
    PairRig rig(way, OddSpec(false));
    const auto weights = rig.Weights(1, false);
    WeightPublisher publisher(&rig.layout, rig.Options(1 << 16, 2));
    PairClient client(&rig.states, rig.updates.get());
    const TensorPlace& place = rig.layout.places()[9];
    client.before_commit = [&] {
      rig.storage[rig.layout.group_offset(place.layer) + place.offset] ^= std::byte{4};
    };
    const absl::Status status = publisher.Publish(1, *weights, &client).status();
    INFO(status.ToString());
    REQUIRE(absl::IsDataLoss(status));
    REQUIRE(std::string(status.message()).find("of version 1 arrived damaged") !=
            std::string::npos);
    REQUIRE(rig.updates->transaction().version() == kNoVersion);
    client.before_commit = nullptr;
    REQUIRE(publisher.Publish(2, *weights, &client).ok());
    REQUIRE(rig.Holds(*weights));
    REQUIRE(rig.updates->transaction().Verify().ok());
  }
}

TEST_CASE("a rank that publishes nothing gathers every tensor, whatever the transport") {
  for (const Way way : kWays) {
    PairRig rig(way, OddSpec(true));
    const auto weights = rig.Weights(1, false);
    WeightPublisher publisher(&rig.layout, rig.Options(8192, 2));
    const int64_t before = rig.trainer.cuda.used_bytes();
    REQUIRE(publisher.Publish(1, *weights, nullptr).ok());
    REQUIRE(weights->gathered().size() == rig.layout.places().size());
    REQUIRE(rig.trainer.cuda.used_bytes() == before);
  }
}

TEST_CASE("slots of another update, size or device are not taken") {
  for (const Way way : kWays) {
    INFO(NameOf(way));
    PairRig rig(way, OddSpec(true));
    const Manifest manifest = ManifestOf(rig.layout);
    const auto slots = rig.trainer.transport->Create({1 << 20, 1}, SlotLife::kOneUpdate, nullptr);
    REQUIRE(slots.ok());
    REQUIRE(rig.updates->Begin({1, 100, {1 << 20, 1}, manifest}).ok());
    const auto stale = PassSlots(rig.updates->pair_socket(), 99, **slots);
    REQUIRE(absl::IsDeadlineExceeded(rig.updates->Apply({1, 100}, 0, {})));
    REQUIRE(PeerClosed(stale->get()));
    const auto right = PassSlots(rig.updates->pair_socket(), 100, **slots);
    REQUIRE(rig.updates->Apply({1, 100}, 0, {}).ok());
    REQUIRE(rig.updates->Begin({1, 101, {2 << 20, 1}, manifest}).ok());
    const auto large = PassSlots(rig.updates->pair_socket(), 101, **slots);
    REQUIRE(absl::IsInvalidArgument(rig.updates->Apply({1, 101}, 0, {})));
  }
  // What a host made is not a GPU's, and the other way round.
  PairRig host(Way::kHost, OddSpec(true)), gpu(Way::kIpc, OddSpec(true));
  for (auto [from, to] : {std::pair(&host, &gpu), std::pair(&gpu, &host)}) {
    const auto slots = from->trainer.transport->Create({1 << 20, 1}, SlotLife::kOneUpdate, nullptr);
    REQUIRE(to->updates->Begin({1, 7, {1 << 20, 1}, ManifestOf(to->layout)}).ok());
    const auto passed = PassSlots(to->updates->pair_socket(), 7, **slots);
    const absl::Status status = to->updates->Apply({1, 7}, 0, {});
    REQUIRE(absl::IsInvalidArgument(status));
    REQUIRE(std::string(status.message()).find("run both on the same device") != std::string::npos);
  }
}

TEST_CASE("W11: the trainer's death ends the update, closes what is open, and the next one works") {
  for (const Way way : kWays) {
    for (const int64_t keep : {int64_t{0}, int64_t{1} << 30}) {
      INFO(NameOf(way) << ", " << keep << " bytes kept");
      PairRig rig(way, OddSpec(true));
      const auto weights = rig.Weights(1, false);
      PairClient client(&rig.states, rig.updates.get());
      {
        WeightPublisher publisher(&rig.layout, rig.Options(8192, 2, keep));
        REQUIRE(publisher.Publish(1, *weights, &client).ok());
        const auto slots =
            rig.trainer.transport->Create({8192, 2}, SlotLife::kManyUpdates, nullptr);
        const auto link =
            client.Begin({{2, 7}, (*slots)->shape(), ManifestOf(rig.layout)}, **slots);
        REQUIRE(link.ok());
        REQUIRE(client.StartApply(0, {{0, 0, 1, 0}}).ok());
        REQUIRE(client.WaitApply(0).ok());
      }
      REQUIRE(absl::IsUnavailable(rig.updates->Poll()));
      REQUIRE(!rig.updates->transaction().updating());
      REQUIRE(rig.updates->transaction().version() == kNoVersion);
      REQUIRE(CallsOf(rig.rollout.cuda, "OpenMemory") == CallsOf(rig.rollout.cuda, "CloseMemory"));
      REQUIRE(CallsOf(rig.rollout.cuda, "RegisterHost") ==
              CallsOf(rig.rollout.cuda, "UnregisterHost"));
      WeightPublisher restarted(&rig.layout, rig.Options(8192, 2, keep));
      REQUIRE(restarted.Publish(3, *weights, &client).ok());
      REQUIRE(rig.Holds(*weights));
    }
  }
}

TEST_CASE("W11: a trainer that is gone between two updates leaves nothing open in its rollout") {
  for (const Way way : {Way::kIpc, Way::kPinned}) {
    for (const bool direct : {false, true}) {
      INFO(NameOf(way) << (direct ? ", direct" : ""));
      PairRig rig(way, OddSpec(true));
      const auto weights = rig.Weights(1, direct);
      PairClient client(&rig.states, rig.updates.get());
      const auto opened = [&rig] {
        return CallsOf(rig.rollout.cuda, "OpenMemory") - CallsOf(rig.rollout.cuda, "CloseMemory") +
               CallsOf(rig.rollout.cuda, "RegisterHost") -
               CallsOf(rig.rollout.cuda, "UnregisterHost");
      };
      {
        WeightPublisher publisher(&rig.layout, rig.Options(8192, 2, 1 << 30));
        for (int version = 1; version <= 2; ++version) {
          REQUIRE(publisher.Publish(version, *weights, &client).ok());
          REQUIRE(rig.updates->Poll().ok());
          REQUIRE(rig.updates->needs_polling());
          REQUIRE(opened() == 1);
        }
      }
      REQUIRE(rig.updates->Poll().ok());
      REQUIRE(!rig.updates->needs_polling());
      REQUIRE(opened() == 0);
      REQUIRE(rig.updates->transaction().version() == 2);
      WeightPublisher restarted(&rig.layout, rig.Options(8192, 2, 1 << 30));
      REQUIRE(restarted.Publish(3, *weights, &client).ok());
      REQUIRE(rig.Holds(*weights));
    }
  }
}

}  // namespace tandem
