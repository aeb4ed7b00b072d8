// Which workers a registry takes in by their hosts and addresses.
#include <memory>
#include <string>

#include <catch2/catch.hpp>

#include "common/net/protocol.h"
#include "controller/workers/worker_registry.h"
#include "tests/fakes/fake_clock.h"
#include "tests/support/text.h"

namespace tandem {

using testing::Says;

namespace {

struct HostsFixture {
  testing::FakeClock clock;
  RegistryOptions options{.heartbeat_timeout = absl::Seconds(10)};
};

// A worker that is ready, on a node of one kernel.
Announcement OnNode(const WorkerKey& key, const std::string& node) {
  return {.protocol = kProtocolVersion,
          .key = key,
          .address = "127.0.0.1:1",
          .host = {.boot_id = "host-a", .node = node},
          .device = "cpu:" + std::to_string(key.rank),
          .boot_nonce = key.Text(),
          .numerics_class = "avx2",
          .data_address = "127.0.0.1:2"};
}

WorkerKey TrainerOf(int rank) { return {WorkerRole::kTrainer, rank}; }
WorkerKey RolloutOf(int rank) { return {WorkerRole::kRollout, rank}; }

}  // namespace

TEST_CASE("WorkerRegistry takes workers of one kernel for those of two hosts by their nodes",
          "[registry]") {
  HostsFixture f;
  f.options.host = {.boot_id = "host-a", .node = "a"};
  f.options.process_start = [](int64_t) { return std::string("start"); };
  f.options.topology = {.trainers = 2, .rollouts = 2, .trainer_hosts = 2, .rollout_hosts = 2};
  WorkerRegistry registry(f.options, f.clock);
  for (const char* node : {"a", "b"}) {
    Announcement worker = OnNode(TrainerOf(node[0] - 'a'), node);
    worker.process_start = "start";
    REQUIRE(registry.Register(worker).ok());
  }
  // Only on the controller's own node does a number name the same process.
  REQUIRE(registry.Find(TrainerOf(0))->process_start == "start");
  REQUIRE(registry.Find(TrainerOf(1))->process_start == "");
  // A rollout is where its trainer is.
  const absl::Status parted = registry.Register(OnNode(RolloutOf(1), "a")).status();
  REQUIRE(absl::IsFailedPrecondition(parted));
  REQUIRE(Says(parted, "rollout 1 (device cpu:1, host a (boot host-a))"));
  REQUIRE(Says(parted, "trainer 1 (device cpu:1, host b (boot host-a))"));
  REQUIRE(registry.Register(OnNode(RolloutOf(1), "b")).ok());
}

TEST_CASE("WorkerRegistry gives the rank of a process that an agent saw end to the next at once",
          "[registry]") {
  HostsFixture f;
  f.options.host = {.boot_id = "host-a", .node = "a"};
  WorkerRegistry registry(f.options, f.clock);
  const int64_t first = registry.Register(OnNode(TrainerOf(0), "b")).value();
  Announcement next = OnNode(TrainerOf(0), "b");
  next.boot_nonce = "next";
  REQUIRE(absl::IsAlreadyExists(registry.Register(next).status()));
  registry.MarkLost(TrainerOf(0), first);  // a call failed: it may live
  REQUIRE(absl::IsAlreadyExists(registry.Register(next).status()));
  registry.MarkLost(TrainerOf(0), first, WorkerLoss::kEnded);
  REQUIRE(registry.Register(next).value() == first + 1);
  // That news is about the process before.
  registry.MarkLost(TrainerOf(0), first, WorkerLoss::kEnded);
  REQUIRE(registry.ReadyIncarnation(TrainerOf(0)) == first + 1);
}

TEST_CASE("WorkerRegistry wants ranks numbered host by host, on as many hosts as configured",
          "[registry]") {
  HostsFixture f;
  f.options.topology = {
      .trainers = 4, .rollouts = 2, .apart = true, .trainer_hosts = 2, .rollout_hosts = 1};
  WorkerRegistry registry(f.options, f.clock);
  REQUIRE(registry.Register(OnNode(TrainerOf(0), "a")).ok());
  REQUIRE(registry.Register(OnNode(TrainerOf(2), "b")).ok());
  const absl::Status scattered = registry.Register(OnNode(TrainerOf(1), "b")).status();
  REQUIRE(absl::IsFailedPrecondition(scattered));
  REQUIRE(Says(scattered,
               "trainer 1 and trainer 0 are on different hosts, and with trainer.nnodes=2 for 4 "
               "trainers ranks are numbered host by host, 2 on each: trainers are on a (boot "
               "host-a): rank 0; on b (boot host-a): ranks 1, 2"));
  const absl::Status crowded = registry.Register(OnNode(TrainerOf(3), "a")).status();
  REQUIRE(absl::IsFailedPrecondition(crowded));
  REQUIRE(Says(crowded, "trainer 3 and trainer 0 are on one host"));
  // A third host.
  REQUIRE(Says(registry.Register(OnNode(TrainerOf(3), "c")).status(),
               "trainer 3 and trainer 2 are on different hosts"));
  REQUIRE(registry.Register(OnNode(TrainerOf(1), "a")).ok());
  REQUIRE(registry.Register(OnNode(TrainerOf(3), "b")).ok());
  // Rollouts have hosts of their own count, which may be those of trainers.
  REQUIRE(registry.Register(OnNode(RolloutOf(0), "b")).ok());
  REQUIRE(Says(registry.Register(OnNode(RolloutOf(1), "c")).status(),
               "rollout 1 and rollout 0 are on different hosts, and with rollout.nnodes=1 for 2 "
               "rollouts"));
  REQUIRE(registry.Register(OnNode(RolloutOf(1), "b")).ok());
}

TEST_CASE("WorkerRegistry lets the workers of a lost host come back on another", "[registry]") {
  HostsFixture f;
  f.options.topology = {.trainers = 2, .rollouts = 2, .trainer_hosts = 2, .rollout_hosts = 2};
  WorkerRegistry registry(f.options, f.clock);
  for (const char* node : {"a", "b"}) {
    REQUIRE(registry.Register(OnNode(TrainerOf(node[0] - 'a'), node)).ok());
    REQUIRE(registry.Register(OnNode(RolloutOf(node[0] - 'a'), node)).ok());
  }
  f.clock.Advance(absl::Seconds(10));
  REQUIRE(registry.Heartbeat(TrainerOf(0), 1, {.numerics_class = "avx2"}).ok());
  REQUIRE(registry.Heartbeat(RolloutOf(0), 1, {.numerics_class = "avx2"}).ok());
  REQUIRE(registry.DetectLost().size() == 2);
  Announcement again = OnNode(TrainerOf(1), "c");
  again.boot_nonce = "new";
  REQUIRE(*registry.Register(again) == 2);
}

TEST_CASE("WorkerRegistry refuses addresses that other hosts cannot reach", "[registry]") {
  HostsFixture f;
  f.options.host = {.boot_id = "host-a", .node = "a"};
  f.options.topology = {.trainers = 2, .rollouts = 2, .trainer_hosts = 2, .rollout_hosts = 2};
  WorkerRegistry registry(f.options, f.clock);
  Announcement worker = OnNode(TrainerOf(1), "b");
  worker.address = "unix:/run/trainer-1.sock";
  const absl::Status own_socket = registry.Register(worker).status();
  REQUIRE(absl::IsFailedPrecondition(own_socket));
  REQUIRE(Says(own_socket, "trainer 1 on b (boot host-a) listens on unix:/run/trainer-1.sock"));
  REQUIRE(Says(own_socket, "the controller is on a (boot host-a)"));
  worker = OnNode(TrainerOf(1), "b");
  worker.data_address = "";
  REQUIRE(Says(registry.Register(worker).status(), "announces no address for the data"));
  worker.numerics_class = "";  // it does not know yet that it needs one
  REQUIRE(registry.Register(worker).ok());
  worker = OnNode(TrainerOf(0), "a");
  worker.address = "unix:/run/trainer-0.sock";  // on the controller's host
  REQUIRE(registry.Register(worker).ok());
}

TEST_CASE("WorkerRegistry refuses a loopback address where a peer is on another machine",
          "[registry]") {
  HostsFixture f;
  f.options.host = {.boot_id = "host-a", .node = "a"};
  f.options.topology = {
      .trainers = 2, .rollouts = 2, .apart = true, .trainer_hosts = 2, .rollout_hosts = 2};
  WorkerRegistry registry(f.options, f.clock);
  const auto at = [](const WorkerKey& key, const std::string& boot, const std::string& data) {
    Announcement worker = OnNode(key, boot);
    worker.host.boot_id = boot;
    worker.address = boot == "host-a" ? "127.0.0.1:1" : "10.0.0.2:1";
    worker.data_address = data;
    return worker;
  };
  const auto refused = [&](const Announcement& worker, const std::string& called,
                           const std::string& caller) {
    const absl::Status status = registry.Register(worker).status();
    INFO(status);
    REQUIRE(absl::IsFailedPrecondition(status));
    REQUIRE(Says(status, called));
    REQUIRE(Says(status, caller));
    REQUIRE(Says(status, "with --advertise or --interface"));
  };
  // The controller would call itself.
  Announcement far = at(TrainerOf(1), "host-b", "10.0.0.2:2");
  far.address = "[::1]:1";
  refused(far, "trainer 1 on host-b (boot host-b) announces [::1]:1",
          "the controller is on a (boot host-a)");
  // Its peer would: that it shares the controller's machine does not help.
  REQUIRE(registry.Register(at(TrainerOf(0), "host-a", "127.0.0.1:2")).ok());
  refused(at(TrainerOf(1), "host-b", "10.0.0.2:2"),
          "trainer 0 on host-a (boot host-a) announces 127.0.0.1:2",
          "trainer 1 is on host-b (boot host-b): start trainer 0 with --advertise");
  // It is not the comer's fault, so the message says what becomes of both.
  refused(at(TrainerOf(1), "host-b", "10.0.0.2:2"),
          "trainer 0 came first and runs, so stop it before", "trainer 1 is refused until then");
  // Both addresses are wrong: one start mends both.
  refused(at(TrainerOf(1), "host-b", "127.0.0.1:2"),
          "trainer 1 on host-b (boot host-b) announces 127.0.0.1:2",
          "start trainer 0 and trainer 1 with --advertise");
  REQUIRE(registry.Register(at(TrainerOf(0), "host-a", "10.0.0.1:2")).ok());
  refused(at(TrainerOf(1), "host-b", "127.0.0.1:2"),
          "trainer 1 on host-b (boot host-b) announces 127.0.0.1:2", "trainer 0 is on host-a");
  const absl::Status own_fault =
      registry.Register(at(TrainerOf(1), "host-b", "127.0.0.1:2")).status();
  REQUIRE_FALSE(Says(own_fault, "came first"));
  REQUIRE(registry.Register(at(TrainerOf(1), "host-b", "10.0.0.2:2")).ok());
  // A rollout is called by the trainer that sends it weights.
  refused(at(RolloutOf(1), "host-a", ""), "rollout 1 on host-a (boot host-a) announces 127.0.0.1:1",
          "trainer 1 is on host-b");
  REQUIRE(registry.Register(at(RolloutOf(0), "host-a", "")).ok());
}

TEST_CASE("WorkerRegistry gives the ranks of a lost host to another at once, and ends those there",
          "[registry]") {
  HostsFixture f;
  f.options.topology = {.trainers = 2, .rollouts = 2, .trainer_hosts = 2, .rollout_hosts = 2};
  f.options.any_host = true;
  WorkerRegistry registry(f.options, f.clock);
  int64_t incarnation = 0;
  for (const WorkerKey& key : {TrainerOf(0), RolloutOf(0), RolloutOf(1), TrainerOf(1)}) {
    incarnation = *registry.Register(OnNode(key, key.rank == 0 ? "a" : "b"));
  }
  registry.MarkLost(TrainerOf(1), incarnation, WorkerLoss::kReplaced);
  REQUIRE(registry.Missing().size() == 1);
  // The process there may be alive, cut off for a while.
  REQUIRE(
      absl::IsAborted(registry.Heartbeat(TrainerOf(1), incarnation, {.numerics_class = "avx2"})));
  const absl::Status again = registry.Register(OnNode(TrainerOf(1), "b")).status();
  REQUIRE(absl::IsAborted(again));
  REQUIRE(Says(again, "trainer 1 on b (boot host-a) counted as lost with its host"));
  // Its partner on the old host has to be let go of as well, before another may share its device.
  Announcement successor = OnNode(TrainerOf(1), "a");
  successor.boot_nonce = "another process";
  REQUIRE(absl::IsFailedPrecondition(registry.Register(successor).status()));
  registry.MarkLost(RolloutOf(1), registry.Find(RolloutOf(1))->incarnation, WorkerLoss::kReplaced);
  REQUIRE(*registry.Register(successor) == incarnation + 1);
  REQUIRE(absl::IsAborted(registry.Heartbeat(TrainerOf(1), incarnation, {})));
  REQUIRE(registry.Heartbeat(TrainerOf(1), incarnation + 1, {}).ok());
}

TEST_CASE("WorkerRegistry misses no rollout that is left out", "[registry]") {
  HostsFixture f;
  const auto rollouts = std::make_shared<ActiveRollouts>(2);
  f.options.topology = {.trainers = 1, .rollouts = 2, .apart = true};
  f.options.rollouts = rollouts;
  const WorkerRegistry registry(f.options, f.clock);
  REQUIRE(registry.Missing().size() == 3);
  rollouts->LeaveOut(1);
  REQUIRE(registry.Missing() ==
          std::vector<std::string>{"trainer 0 (never registered)", "rollout 0 (never registered)"});
}

}  // namespace tandem
