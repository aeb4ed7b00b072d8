// What only a GPU's transport does: handles that are opened once, events instead of waits, falling
// back, devices that are counted differently, and faults of every call.
#include "common/weights/cuda/cuda_transport.h"

#include <algorithm>
#include <set>

#include <catch2/catch.hpp>

#include "common/base/status.h"
#include "common/weights/cuda/ipc_slots.h"
#include "tests/common/weights/cuda/pair_rig.h"
#include "tests/support/text.h"

namespace tandem {
namespace {

using emulator::EmulatedCuda;
using testing::CallsOf;
using testing::MemoryWeights;
using testing::NameOf;
using testing::OddSpec;
using testing::PairClient;
using testing::PairRig;
using testing::Says;
using testing::Way;

absl::Status Sync(PairRig& rig, WeightPublisher& publisher, MemoryWeights& weights, int version) {
  PairClient client(&rig.states, rig.updates.get());
  return publisher.Publish(version, weights, &client).status();
}

}  // namespace

TEST_CASE("slots that are kept, and shards, are exported and opened once") {
  for (const bool direct : {false, true}) {
    for (const int64_t keep : {int64_t{0}, int64_t{1} << 30}) {
      INFO((direct ? "direct, " : "") << keep << " bytes kept");
      PairRig rig(Way::kIpc, OddSpec(true));
      const auto weights = rig.Weights(1, direct);
      const int64_t before = rig.trainer.cuda.used_bytes();
      {
        WeightPublisher publisher(&rig.layout, rig.Options(8192, 2, keep));
        rig.trainer.cuda.ForgetCalls();
        for (int version = 1; version <= 3; ++version) {
          REQUIRE(Sync(rig, publisher, *weights, version).ok());
          publisher.ReleaseSlots();
        }
        const bool lasting = direct || keep > 0;
        REQUIRE(CallsOf(rig.trainer.cuda, "ExportMemory") == (lasting ? 1 : 3));
        REQUIRE(CallsOf(rig.rollout.cuda, "OpenMemory") == (lasting ? 1 : 3));
        REQUIRE(CallsOf(rig.rollout.cuda, "CloseMemory") == (lasting ? 0 : 3));
        REQUIRE(CallsOf(rig.trainer.cuda, "CreateEvent") == (lasting ? 4 : 12));
        REQUIRE(CallsOf(rig.rollout.cuda, "OpenEvent") == (lasting ? 4 : 12));
        // Whole blocks of the driver's.
        const int64_t held = keep > 0 && !direct ? int64_t{2} << 20 : 0;
        REQUIRE(BytesOf(rig.ledger.Snapshot(), "bucket") == held);
        REQUIRE(rig.trainer.cuda.used_bytes() == before + held);
      }
      rig.rollout.transport->Forget();
      REQUIRE(CallsOf(rig.rollout.cuda, "OpenMemory") == CallsOf(rig.rollout.cuda, "CloseMemory"));
      REQUIRE(rig.trainer.cuda.used_bytes() == before);
    }
  }
}

TEST_CASE("buckets are ordered by events: neither host waits for the device between them") {
  PairRig rig(Way::kIpc, OddSpec(true));
  const auto weights = rig.Weights(1, false);
  WeightPublisher publisher(&rig.layout, rig.Options(4096, 2, 1 << 30));
  REQUIRE(Sync(rig, publisher, *weights, 1).ok());
  rig.trainer.cuda.ForgetCalls();
  rig.rollout.cuda.ForgetCalls();
  PairClient client(&rig.states, rig.updates.get());
  const auto report = publisher.Publish(2, *weights, &client);
  REQUIRE(report.ok());
  REQUIRE(report->buckets > 10);
  REQUIRE(CallsOf(rig.trainer.cuda, "Synchronize") == 0);
  for (EmulatedCuda* cuda : {&rig.trainer.cuda, &rig.rollout.cuda}) {
    // It has happened when it is asked for, and no stream waits for another process.
    REQUIRE(CallsOf(*cuda, "HasHappened") == report->buckets);
    REQUIRE(CallsOf(*cuda, "WaitEvent") == 0);
    REQUIRE(CallsOf(*cuda, "Record") == report->buckets);
  }
  // At the commit alone: the digests are read, and the update's view of the slots goes.
  const std::vector<std::string> calls = rig.rollout.cuda.calls();
  const auto first = std::find(calls.begin(), calls.end(), "Synchronize");
  REQUIRE(std::find(first, calls.end(), "Record") == calls.end());
}

TEST_CASE("weight_sync.transport decides on a GPU, and says why") {
  const auto reach = [](emulator::EmulatedCudaOptions options, const std::string& key,
                        const char* fail = nullptr) {
    EmulatedCuda cuda(options);
    const auto context = CudaContext::Create(&cuda, 0).value();
    if (fail != nullptr) cuda.FailCall(fail, absl::FailedPreconditionError("not permitted"));
    const auto transport = CudaTransport::Create(context.get(), key);
    REQUIRE(cuda.used_bytes() == 0);
    return transport.ok() ? std::string((*transport)->ipc() ? "ipc" : "shm")
                          : transport.status().ToString();
  };
  REQUIRE(reach({}, "auto") == "ipc");
  REQUIRE(reach({}, "ipc") == "ipc");
  REQUIRE(reach({}, "shm") == "shm");
  REQUIRE(reach({.legacy_ipc = false}, "auto") == "shm");
  for (const char* call : {"ExportMemory", "CreateEvent", "ExportEvent"}) {
    REQUIRE(reach({}, "auto", call) == "shm");
    REQUIRE(reach({}, "ipc", call).find("not permitted; set auto or shm") != std::string::npos);
  }
  REQUIRE(reach({.legacy_ipc = false}, "ipc").find("FAILED_PRECONDITION") == 0);
  REQUIRE(reach({}, "rdma").find("INVALID_ARGUMENT") == 0);
}

TEST_CASE("where the rollout may not open the memory, the same update goes through the host") {
  for (const bool direct : {false, true}) {
    for (const char* call : {"OpenMemory", "OpenEvent"}) {
      INFO((direct ? "direct, " : "") << call);
      PairRig rig(Way::kIpc, OddSpec(true));
      const auto weights = rig.Weights(1, direct);
      WeightPublisher publisher(&rig.layout, rig.Options(8192, 2));
      rig.rollout.cuda.FailCall(call, absl::FailedPreconditionError("no ptrace"));
      REQUIRE(Sync(rig, publisher, *weights, 1).ok());
      REQUIRE(!rig.trainer.cuda_transport->ipc());
      REQUIRE(weights->gathered().size() == rig.layout.places().size());
      REQUIRE(rig.Holds(*weights));
      REQUIRE(Sync(rig, publisher, *weights, 2).ok());
      REQUIRE(CallsOf(rig.rollout.cuda, "OpenMemory") == 1);
      REQUIRE(CallsOf(rig.rollout.cuda, "CloseMemory") == (call == std::string("OpenEvent")));
    }
  }
}

TEST_CASE("no memory to open a handle with, or a device that is lost, is no reason to fall back") {
  for (const bool lost : {false, true}) {
    PairRig rig(Way::kIpc, OddSpec(true));
    const auto weights = rig.Weights(1, false);
    WeightPublisher publisher(&rig.layout, rig.Options(8192, 2));
    const absl::Status why = lost ? absl::InternalError("the device is lost")
                                  : absl::ResourceExhaustedError("out of memory");
    rig.rollout.cuda.FailCall("OpenMemory", why);
    if (lost) rig.rollout.cuda.FailCall("Synchronize", why);
    const absl::Status status = Sync(rig, publisher, *weights, 1);
    REQUIRE(status.code() == why.code());
    REQUIRE(Says(status, std::string(why.message())));
    REQUIRE(rig.trainer.cuda_transport->ipc());
    REQUIRE(Sync(rig, publisher, *weights, 2).ok());
  }
}

TEST_CASE("what the trainer's device never fills, or the rollout's never reads, ends the wait") {
  for (const bool dies : {false, true}) {
    for (const bool of_trainer : {false, true}) {
      INFO((of_trainer ? "trainer" : "rollout") << (dies ? " dies" : " hangs"));
      PairRig rig(Way::kIpc, OddSpec(true));
      const auto slots = rig.trainer.transport->Create({8192, 1}, SlotLife::kOneUpdate, nullptr);
      REQUIRE(slots.ok());
      PairClient client(&rig.states, rig.updates.get());
      auto link = client.Begin({{2, 7}, (*slots)->shape(), ManifestOf(rig.layout)}, **slots);
      REQUIRE(link.ok());
      link->timeout = absl::Milliseconds(20);
      (of_trainer ? rig.trainer : rig.rollout).cuda.HoldEvents(true);
      REQUIRE((*slots)->BeginFill(0, *link).ok());
      REQUIRE((*slots)->EndFill(0, 8192).ok());
      if (of_trainer && dies) link->socket.Reset();
      const absl::Status read = rig.updates->Apply({2, 7}, 0, {{0, 0, 1, 0}});
      INFO(read.ToString());
      if (of_trainer) {
        REQUIRE(read.code() ==
                (dies ? absl::StatusCode::kUnavailable : absl::StatusCode::kDeadlineExceeded));
        REQUIRE(Says(read, dies ? "the trainer died during the update to version 2"
                                : "the trainer's GPU has not filled slot 0 within 200ms"));
        REQUIRE(rig.updates->transaction().version() == kNoVersion);
        REQUIRE(!rig.updates->transaction().applied());
      } else {
        REQUIRE(read.ok());
        if (dies) rig.updates.reset();
        const absl::Status fill = (*slots)->BeginFill(0, *link);
        INFO(fill.ToString());
        REQUIRE(fill.code() ==
                (dies ? absl::StatusCode::kUnavailable : absl::StatusCode::kDeadlineExceeded));
        REQUIRE(Says(fill, dies ? "the rollout died before its GPU read slot 0"
                                : "the rollout's GPU has not read slot 0 within 20ms"));
        REQUIRE(OriginOf(fill) == FailureOrigin::kPartner);
      }
      // Its work gets done in the end.
      (of_trainer ? rig.trainer : rig.rollout).cuda.HoldEvents(false);
      if (!dies) REQUIRE((*slots)->BeginFill(0, *link).ok());
    }
  }
}

TEST_CASE("slots that a rollout may have open are freed after it has opened others") {
  PairRig rig(Way::kIpc, OddSpec(true));
  const auto weights = rig.Weights(1, true), gathered = rig.Weights(1, false);
  WeightPublisher publisher(&rig.layout, rig.Options(8192, 2, 1 << 30));
  const int64_t before = rig.trainer.cuda.used_bytes();
  const auto freed = [&rig] { return CallsOf(rig.trainer.cuda, "Free"); };
  const int64_t block = int64_t{2} << 20;

  // Kept slots give way to the shard, and the other way round.
  REQUIRE(Sync(rig, publisher, *gathered, 1).ok());
  rig.trainer.cuda.ForgetCalls();
  rig.rollout.cuda.ForgetCalls();
  PairClient client(&rig.states, rig.updates.get());
  client.before_commit = [&] {
    REQUIRE(CallsOf(rig.rollout.cuda, "CloseMemory") == 1);
    REQUIRE(freed() == 0);
  };
  REQUIRE(publisher.Publish(2, *weights, &client).ok());
  REQUIRE(freed() == 1);
  REQUIRE(rig.trainer.cuda.used_bytes() == before);
  REQUIRE(Sync(rig, publisher, *gathered, 3).ok());
  REQUIRE(rig.trainer.cuda.used_bytes() == before + block);

  // A rollout that does not answer may be reading: the slots stay until it has committed others.
  PairClient silent(&rig.states, rig.updates.get());
  silent.silent = true;
  silent.partner_timeout = absl::Milliseconds(20);
  silent.fail_at_bucket = 3;
  REQUIRE(absl::IsUnavailable(publisher.Publish(4, *gathered, &silent).status()));
  REQUIRE(rig.trainer.cuda.used_bytes() == before + block);
  REQUIRE(rig.updates->transaction().updating());
  const int64_t freed_before = freed();
  client.before_commit = [&] {
    REQUIRE(freed() == freed_before);
    REQUIRE(rig.trainer.cuda.used_bytes() == before + 2 * block);
  };
  REQUIRE(publisher.Publish(5, *gathered, &client).ok());
  REQUIRE(freed() == freed_before + 1);
  REQUIRE(rig.trainer.cuda.used_bytes() == before + block);
  REQUIRE(rig.Holds(*gathered));
}

TEST_CASE("memory that is not pinned is copied all the same") {
  PairRig rig(Way::kPinned, OddSpec(true));
  const auto weights = rig.Weights(1, false);
  for (EmulatedCuda* cuda : {&rig.trainer.cuda, &rig.rollout.cuda}) {
    cuda->FailCall("RegisterHost", absl::FailedPreconditionError("locked memory is limited"));
  }
  WeightPublisher publisher(&rig.layout, rig.Options(8192, 2));
  REQUIRE(Sync(rig, publisher, *weights, 1).ok());
  REQUIRE(rig.Holds(*weights));
  REQUIRE(CallsOf(rig.rollout.cuda, "UnregisterHost") == 0);
}

TEST_CASE("a device is known by its uuid, whatever number it has in either process") {
  // The trainer sees the GPUs 0 and 1, and computes on 0; the rollout's device 1 is that GPU.
  PairRig same(Way::kIpc, OddSpec(true), DType::kBFloat16, {.devices = 2, .first_device = -1}, 1);
  const auto weights = same.Weights(1, false);
  WeightPublisher publisher(&same.layout, same.Options(8192, 2));
  REQUIRE(Sync(same, publisher, *weights, 1).ok());
  const std::string uuid = same.trainer.context->info().uuid;
  REQUIRE(DeviceOfUuid(same.rollout.cuda, uuid).value() == 1);

  // It computes on another one.
  PairRig other(Way::kIpc, OddSpec(true), DType::kBFloat16, {.devices = 2, .first_device = -1}, 0);
  WeightPublisher to_other(&other.layout, other.Options(8192, 2));
  const absl::Status wrong = Sync(other, to_other, *weights, 1);
  REQUIRE(absl::IsFailedPrecondition(wrong));
  REQUIRE(Says(wrong, uuid));
  REQUIRE(Says(wrong, other.rollout.context->info().uuid));
  REQUIRE(Says(wrong, "it is device 1 of this process"));

  // It does not see it.
  PairRig blind(Way::kIpc, OddSpec(true), DType::kBFloat16, {.devices = 2, .first_device = 5}, 0);
  WeightPublisher to_blind(&blind.layout, blind.Options(8192, 2));
  const absl::Status unseen = Sync(blind, to_blind, *weights, 1);
  REQUIRE(absl::IsFailedPrecondition(unseen));
  REQUIRE(Says(unseen, uuid));
  REQUIRE(Says(unseen, blind.rollout.context->info().uuid));
  REQUIRE(Says(unseen, "does not see it"));
  REQUIRE(absl::IsFailedPrecondition(DeviceOfUuid(blind.rollout.cuda, uuid).status()));
}

TEST_CASE("a payload that is not what a producer writes is refused") {
  IpcPayload payload = {.mapping = 3, .persistent = true, .uuid = std::string(32, 'a')};
  payload.filled.resize(2);
  payload.drained.resize(2);
  payload.drained[1].bytes[5] = std::byte{9};
  const std::string bytes = payload.ToBytes();
  const auto read = IpcPayload::FromBytes(bytes);
  REQUIRE(read.ok());
  REQUIRE(read->mapping == 3);
  REQUIRE(read->uuid == payload.uuid);
  REQUIRE(read->drained == payload.drained);
  REQUIRE(read->filled == payload.filled);
  for (const size_t size : {size_t{0}, size_t{7}, bytes.size() - 1, bytes.size() - 64}) {
    REQUIRE(absl::IsInvalidArgument(IpcPayload::FromBytes(bytes.substr(0, size)).status()));
  }
  REQUIRE(absl::IsInvalidArgument(IpcPayload::FromBytes(bytes + "x").status()));
}

TEST_CASE("a fault of any call on either side ends the update, frees its memory, and is healed") {
  // What gives back cannot fail an update.
  const std::set<std::string> freeing = {"Free", "CloseMemory", "DestroyEvent", "UnregisterHost"};
  for (const Way way : {Way::kIpc, Way::kPinned}) {
    for (const bool of_trainer : {true, false}) {
      PairRig rig(way, OddSpec(true));
      const auto weights = rig.Weights(1, false), other = rig.Weights(2, false);
      WeightPublisher publisher(&rig.layout, rig.Options(16384, 2));
      REQUIRE(Sync(rig, publisher, *weights, 1).ok());
      EmulatedCuda& cuda = of_trainer ? rig.trainer.cuda : rig.rollout.cuda;
      const int64_t used[] = {rig.trainer.cuda.used_bytes(), rig.rollout.cuda.used_bytes()};
      cuda.ForgetCalls();
      REQUIRE(Sync(rig, publisher, *weights, 2).ok());
      const std::vector<std::string> calls = cuda.calls();
      std::map<std::string, int> seen;
      int failed = 0;
      for (const std::string& call : calls) {
        const int skipped = seen[call]++;
        if (freeing.contains(call) || (skipped > 2 && skipped % 5 != 0)) continue;
        INFO(NameOf(way) << ", " << (of_trainer ? "trainer" : "rollout") << ", " << call << " "
                         << skipped);
        cuda.FailCall(call, absl::InternalError("the device is lost"), skipped);
        const absl::Status status = Sync(rig, publisher, *other, 3);
        REQUIRE(!rig.updates->transaction().updating());
        // Pinning that fails, and waiting in a destructor, do not end an update.
        if (!status.ok()) {
          ++failed;
          REQUIRE(Says(status, "the device is lost"));
          REQUIRE(rig.updates->transaction().version() != 3);
        } else {
          REQUIRE(rig.Holds(*other));
        }
        REQUIRE(rig.trainer.cuda.used_bytes() == used[0]);
        REQUIRE(rig.rollout.cuda.used_bytes() == used[1]);
        REQUIRE(BytesOf(rig.ledger.Snapshot(), "bucket") == 0);
        REQUIRE(Sync(rig, publisher, *weights, 4).ok());
        REQUIRE(rig.Holds(*weights));
      }
      REQUIRE(failed > 5);
    }
  }
}

}  // namespace tandem
