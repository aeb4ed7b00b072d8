#include "controller/workers/worker_registry.h"

#include <map>
#include <optional>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "common/net/protocol.h"
#include "tests/fakes/fake_clock.h"
#include "tests/support/text.h"

namespace tandem {
namespace {

using testing::Says;

const WorkerKey kRegisteredTrainer{WorkerRole::kTrainer, 0};
const WorkerKey kRollout0{WorkerRole::kRollout, 0};

Announcement Hello(const WorkerKey& key, const std::string& nonce) {
  return {.protocol = kProtocolVersion,
          .key = key,
          .address = "unix:/x",
          .host = {.boot_id = "host-a"},
          .device = "cpu:0",
          .boot_nonce = nonce,
          .numerics_class = "avx2",
          .kernel_set = key.role == WorkerRole::kRollout ? "amx" : "avx2",
          .tokenizer_digest = key.role == WorkerRole::kRollout ? "digest" : ""};
}

std::vector<WorkerKey> Keys(const std::vector<WorkerEntry>& workers) {
  std::vector<WorkerKey> keys;
  for (const WorkerEntry& worker : workers) keys.push_back(worker.key());
  return keys;
}

struct WorkerRegistryFixture {
  testing::FakeClock clock;
  RegistryOptions options{.topology = {.trainers = 1, .rollouts = 1},
                          .heartbeat_timeout = absl::Seconds(10),
                          .tokenizer_digest = "digest"};
  WorkerRegistry registry{options, clock};
};

}  // namespace

TEST_CASE("GrowthRate looks about once a second, and forgets a process that began anew",
          "[registry]") {
  testing::FakeClock clock;
  GrowthRate rate;
  rate.Look(100, clock.Now());
  REQUIRE(rate.per_second == 0);
  clock.Advance(absl::Milliseconds(500));
  rate.Look(200, clock.Now());
  REQUIRE(rate.per_second == 0);
  clock.Advance(absl::Milliseconds(1500));
  rate.Look(700, clock.Now());
  REQUIRE(rate.per_second == 300);
  clock.Advance(absl::Seconds(1));
  rate.Look(10, clock.Now());
  REQUIRE(rate.per_second == 0);
  clock.Advance(absl::Seconds(2));
  rate.Look(30, clock.Now());
  REQUIRE(rate.per_second == 10);
}

TEST_CASE("WorkerRegistry keeps the loads that heartbeats tell", "[registry]") {
  WorkerRegistryFixture f;
  REQUIRE(f.registry.Register(Hello(kRollout0, "n2")).ok());
  REQUIRE_FALSE(f.registry.Find(kRollout0)->news.generation.has_value());
  HeartbeatNews news{.numerics_class = "avx2", .generation = GeneratorLoad{.running = 3}};
  news.generation->generated_tokens = 10;
  REQUIRE(f.registry.Heartbeat(kRollout0, 1, news).ok());
  f.clock.Advance(absl::Seconds(2));
  news.generation->generated_tokens = 110;
  REQUIRE(f.registry.Heartbeat(kRollout0, 1, news).ok());
  REQUIRE(f.registry.Find(kRollout0)->news.generation->running == 3);
  REQUIRE(f.registry.Find(kRollout0)->generated_tokens.per_second == 50);
}

TEST_CASE("WorkerRegistry is complete when every rank is ready", "[registry]") {
  WorkerRegistryFixture f;
  REQUIRE(f.registry.Missing() ==
          std::vector<std::string>{"trainer 0 (never registered)", "rollout 0 (never registered)"});
  Announcement starting = Hello(kRegisteredTrainer, "n1");
  starting.numerics_class.clear();
  REQUIRE(*f.registry.Register(starting) == 1);
  REQUIRE(f.registry.Missing().front() == "trainer 0 (registered, still starting)");
  REQUIRE(*f.registry.Register(Hello(kRegisteredTrainer, "n1")) ==
          1);  // same process: same incarnation
  REQUIRE(*f.registry.Register(Hello(kRollout0, "n2")) == 1);
  REQUIRE(f.registry.Missing().empty());
  REQUIRE(f.registry.numerics_class() == "avx2");
  REQUIRE(f.registry.kernel_sets() == "amx, avx2");
}

TEST_CASE("WorkerRegistry replaces a rank by a new process under a new incarnation", "[registry]") {
  WorkerRegistryFixture f;
  REQUIRE(*f.registry.Register(Hello(kRegisteredTrainer, "n1")) == 1);
  f.registry.MarkLost(kRegisteredTrainer, 1);
  f.clock.Advance(absl::Seconds(10));
  REQUIRE(*f.registry.Register(Hello(kRegisteredTrainer, "n2")) == 2);
  REQUIRE(absl::IsAborted(f.registry.Heartbeat(kRegisteredTrainer, 1, {})));
  REQUIRE(f.registry.Heartbeat(kRegisteredTrainer, 2, {}).ok());
}

TEST_CASE("WorkerRegistry gives workers apart no device twice", "[registry]") {
  WorkerRegistryFixture f;
  f.options.topology = {.trainers = 1, .rollouts = 2, .apart = true};
  WorkerRegistry registry(f.options, f.clock);
  const auto on = [](WorkerKey key, const std::string& uuid) {
    Announcement worker = Hello(key, key.Text());
    worker.device_uuid = uuid;
    return worker;
  };
  REQUIRE(registry.Register(on(kRegisteredTrainer, "GPU-1")).ok());
  const absl::Status twice = registry.Register(on(kRollout0, "GPU-1")).status();
  REQUIRE(absl::IsFailedPrecondition(twice));
  REQUIRE(Says(twice, "rollout 0 and trainer 0 are both on device"));
  REQUIRE(registry.Register(on(kRollout0, "GPU-2")).ok());
  REQUIRE(registry.Missing() == std::vector<std::string>{"rollout 1 (never registered)"});
  // CPU devices have no identity: their numbers only tell workers apart.
  REQUIRE(registry.Register(on({WorkerRole::kRollout, 1}, "")).ok());
  REQUIRE(
      Says(registry.Register(on({WorkerRole::kRollout, 2}, "")).status(), "cluster.rollouts is 2"));
}

TEST_CASE("WorkerRegistry keeps a rank for the process that beats, and says who has it",
          "[registry]") {
  WorkerRegistryFixture f;
  Announcement holder = Hello(kRegisteredTrainer, "n1");
  holder.pid = 41;
  REQUIRE(*f.registry.Register(holder) == 1);
  Announcement stranger = Hello(kRegisteredTrainer, "n2");
  stranger.pid = 42;
  f.clock.Advance(absl::Seconds(9));
  REQUIRE(f.registry.Heartbeat(kRegisteredTrainer, 1, {}).ok());
  f.clock.Advance(absl::Seconds(9));
  const absl::Status refused = f.registry.Register(stranger).status();
  REQUIRE(absl::IsAlreadyExists(refused));
  for (const char* part : {"trainer 0 is held by process 41 at unix:/x", "last message 9s ago",
                           "process 42", "--rank"}) {
    REQUIRE(Says(refused, part));
  }
  REQUIRE(f.registry.Heartbeat(kRegisteredTrainer, 1, {}).ok());
  REQUIRE(*f.registry.Register(Hello(kRegisteredTrainer, "n1")) == 1);  // the same process
  // Nobody has seen it end, so its silence decides.
  f.clock.Advance(absl::Seconds(10));
  REQUIRE(*f.registry.Register(stranger) == 2);
}

TEST_CASE("WorkerRegistry sees at once that a process of its host has ended", "[registry]") {
  WorkerRegistryFixture f;
  std::map<int64_t, std::string> running = {{41, "start 1"}};
  f.options.host.boot_id = "host-a";
  f.options.process_start = [&running](int64_t pid) { return running[pid]; };
  WorkerRegistry registry(f.options, f.clock);
  Announcement holder = Hello(kRegisteredTrainer, "n1");
  holder.pid = 41;
  holder.process_start = "start 1";
  holder.numerics_class.clear();  // it loads its model, for as long as that takes
  REQUIRE(*registry.Register(holder) == 1);
  Announcement next = Hello(kRegisteredTrainer, "n2");
  next.pid = 43;
  next.process_start = "start 3";
  f.clock.Advance(absl::Minutes(5));
  REQUIRE(absl::IsAlreadyExists(registry.Register(next).status()));
  running[41] = "start 2";  // killed, and its number is another process's
  running[43] = "start 3";
  REQUIRE(*registry.Register(next) == 2);
  running.erase(43);
  REQUIRE(*registry.Register(Hello(kRegisteredTrainer, "n3")) == 3);
}

TEST_CASE("WorkerRegistry trusts no process that is not certainly the worker's", "[registry]") {
  WorkerRegistryFixture f;
  std::map<int64_t, std::string> running = {{41, "namespace 1 start 1"}};
  f.options.host.boot_id = "host-a";
  f.options.process_start = [&running](int64_t pid) { return running[pid]; };
  struct Elsewhere {
    const char* boot_id;
    const char* process_start;
  };
  // Another host; a container of this one; one that says nothing of itself.
  for (const Elsewhere& place :
       {Elsewhere{"host-b", "namespace 1 start 1"}, Elsewhere{"host-a", "namespace 2 start 1"},
        Elsewhere{"host-a", ""}}) {
    WorkerRegistry registry(f.options, f.clock);
    Announcement holder = Hello(kRegisteredTrainer, "n1");
    holder.pid = 41;
    holder.address = "host-b:1";
    holder.host.boot_id = place.boot_id;
    holder.process_start = place.process_start;
    REQUIRE(*registry.Register(holder) == 1);
    Announcement next = holder;
    next.boot_nonce = "n2";
    // Somebody else's process 41 ends: the worker lives on.
    running.clear();
    f.clock.Advance(absl::Seconds(9));
    REQUIRE(absl::IsAlreadyExists(registry.Register(next).status()));
    // Somebody else's process 41 lives on: the worker is silent.
    running[41] = "namespace 1 start 1";
    f.clock.Advance(absl::Seconds(1));
    REQUIRE(*registry.Register(next) == 2);
  }
  // Two hosts whose boot ids are both unknown are not one.
  f.options.host.boot_id.clear();
  WorkerRegistry registry(f.options, f.clock);
  Announcement holder = Hello(kRegisteredTrainer, "n1");
  holder.pid = 41;
  holder.host.boot_id.clear();
  holder.process_start = running[41];
  REQUIRE(*registry.Register(holder) == 1);
  running.clear();
  holder.boot_nonce = "n2";
  REQUIRE(absl::IsAlreadyExists(registry.Register(holder).status()));
}

TEST_CASE("WorkerRegistry keeps the rank of a worker that loads out of its sight", "[registry]") {
  WorkerRegistryFixture f;
  f.options.register_timeout = absl::Minutes(5);
  WorkerRegistry registry(f.options, f.clock);
  Announcement far = Hello(kRegisteredTrainer, "n1");
  far.host.boot_id = "host-b";
  far.numerics_class.clear();  // it beats when it has loaded
  REQUIRE(*registry.Register(far) == 1);
  Announcement next = far;
  next.boot_nonce = "n2";
  f.clock.Advance(absl::Minutes(5) - absl::Seconds(1));
  REQUIRE(registry.DetectLost().empty());
  REQUIRE(absl::IsAlreadyExists(registry.Register(next).status()));
  far.numerics_class = "avx2";  // ready, so its beats count from here
  REQUIRE(*registry.Register(far) == 1);
  f.clock.Advance(absl::Seconds(9));
  REQUIRE(absl::IsAlreadyExists(registry.Register(next).status()));
  f.clock.Advance(absl::Seconds(1));
  REQUIRE(*registry.Register(next) == 2);
  f.clock.Advance(absl::Minutes(5));
  Announcement last = next;
  last.boot_nonce = "n3";
  REQUIRE(*registry.Register(last) == 3);
}

TEST_CASE("WorkerRegistry frees no rank of a process that lives because a call to it failed",
          "[registry]") {
  WorkerRegistryFixture f;
  std::map<int64_t, std::string> running = {{41, "start 1"}};
  f.options.host.boot_id = "host-a";
  f.options.process_start = [&running](int64_t pid) { return running[pid]; };
  WorkerRegistry registry(f.options, f.clock);
  Announcement holder = Hello(kRegisteredTrainer, "n1");
  holder.pid = 41;
  for (const char* seen : {"start 1", ""}) {
    holder.boot_nonce += seen;
    holder.process_start = seen;
    const int64_t incarnation = *registry.Register(holder);
    f.clock.Advance(absl::Seconds(9));
    registry.MarkLost(kRegisteredTrainer, incarnation);
    REQUIRE(absl::IsAlreadyExists(registry.Register(Hello(kRegisteredTrainer, "n2")).status()));
    REQUIRE(registry.Heartbeat(kRegisteredTrainer, incarnation, {}).ok());
    registry.MarkLost(kRegisteredTrainer, incarnation);
    f.clock.Advance(absl::Seconds(10));  // now it is silent as well
    REQUIRE(registry.Register(Hello(kRegisteredTrainer, "n2")).ok());
    f.clock.Advance(absl::Seconds(10));
  }
  // One that is seen to have ended is replaced at once.
  holder.boot_nonce = "n3";
  holder.process_start = "start 1";
  const int64_t incarnation = *registry.Register(holder);
  registry.MarkLost(kRegisteredTrainer, incarnation);
  running.clear();
  REQUIRE(*registry.Register(Hello(kRegisteredTrainer, "n4")) == incarnation + 1);
}

TEST_CASE("WorkerRegistry takes GPUs for the same by their UUID, not by their number") {
  WorkerRegistryFixture f;
  Announcement trainer = Hello(kRegisteredTrainer, "n1");
  trainer.device = "cuda:0";
  trainer.device_uuid = "7a";
  REQUIRE(f.registry.Register(trainer).ok());
  Announcement rollout = Hello(kRollout0, "n2");
  rollout.device = "cuda:0";
  rollout.device_uuid = "7b";
  REQUIRE(Says(f.registry.Register(rollout).status(), "must share one device"));
  rollout.device = "cuda:1";
  rollout.device_uuid = "7a";
  REQUIRE(f.registry.Register(rollout).ok());
}

TEST_CASE("WorkerRegistry refuses what does not fit, with the reason", "[registry]") {
  WorkerRegistryFixture f;
  Announcement other = Hello(kRegisteredTrainer, "n");
  other.protocol = 9;
  REQUIRE(absl::IsInvalidArgument(f.registry.Register(other).status()));
  other = Hello({WorkerRole::kTrainer, 3}, "n");
  REQUIRE(Says(f.registry.Register(other).status(), "cluster.trainers is 1"));

  REQUIRE(f.registry.Register(Hello(kRegisteredTrainer, "n1")).ok());
  other = Hello(kRollout0, "n2");
  other.host.boot_id = "host-b";
  REQUIRE(Says(f.registry.Register(other).status(), "must share one device"));
  other = Hello(kRollout0, "n2");
  other.device_uuid = "7a";  // "cpu:0" of the trainer is not a GPU
  REQUIRE(Says(f.registry.Register(other).status(), "GPU 7a"));
  other = Hello(kRollout0, "n2");
  other.device = "cpu:1";
  REQUIRE(absl::IsFailedPrecondition(f.registry.Register(other).status()));
  other = Hello(kRollout0, "n2");
  other.numerics_class = "avx512";
  REQUIRE(Says(f.registry.Register(other).status(), "one kind of machine"));
  other = Hello(kRollout0, "n2");
  other.tokenizer_digest = "another";
  REQUIRE(Says(f.registry.Register(other).status(), "another tokenizer"));
}

TEST_CASE("A heartbeat that tells another class of numerics than the others is refused",
          "[registry]") {
  WorkerRegistryFixture f;
  REQUIRE(f.registry.Register(Hello(kRegisteredTrainer, "n1")).ok());
  REQUIRE(f.registry.Register(Hello(kRollout0, "n2")).ok());
  const auto beat = [&](const WorkerKey& key, const std::string& numerics) {
    return f.registry.Heartbeat(key, 1, {.numerics_class = numerics});
  };
  REQUIRE(beat(kRollout0, "avx2").ok());
  REQUIRE(Says(beat(kRollout0, "avx512"), "one kind of machine"));
  REQUIRE(beat(kRollout0, "avx2").ok());
  // While one is lost, the others may go on as another class; it does not come back to them.
  f.registry.MarkLost(kRegisteredTrainer, 1);
  REQUIRE(beat(kRollout0, "avx512").ok());
  REQUIRE(Says(beat(kRegisteredTrainer, "avx2"), "one kind of machine"));
  REQUIRE_FALSE(f.registry.ReadyIncarnation(kRegisteredTrainer));
  REQUIRE(beat(kRegisteredTrainer, "avx512").ok());
  REQUIRE(f.registry.ReadyIncarnation(kRegisteredTrainer) == 1);
}

TEST_CASE("WorkerRegistry refuses a worker that computes a part otherwise, with both choices",
          "[registry]") {
  WorkerRegistryFixture f;
  Announcement trainer = Hello(kRegisteredTrainer, "n1");
  trainer.numerics_choices = {{"input [8 x 24]", "own kernels"},
                              {"linear [24 x 8]", "cuBLASLt algorithm 66 tile 20 up to 16 rows"}};
  REQUIRE(f.registry.Register(trainer).ok());
  Announcement rollout = Hello(kRollout0, "n2");
  rollout.numerics_choices = {{"linear [24 x 8]", "own kernels"}};
  const absl::Status refused = f.registry.Register(rollout).status();
  REQUIRE(absl::IsFailedPrecondition(refused));
  REQUIRE(Says(refused, "rollout 0 computes linear [24 x 8] by own kernels"));
  REQUIRE(Says(refused, "trainer 0 by cuBLASLt algorithm 66 tile 20 up to 16 rows"));
  REQUIRE(Says(refused, "TANDEM_CUDA_LINEAR=own"));
  REQUIRE_FALSE(f.registry.Find(kRollout0).has_value());
  // What a rollout does not compute is not compared.
  rollout.numerics_choices.at("linear [24 x 8]") = trainer.numerics_choices.at("linear [24 x 8]");
  REQUIRE(f.registry.Register(rollout).ok());
  // A trainer that is replaced is not compared with itself.
  f.registry.MarkLost(kRegisteredTrainer, 1);
  f.clock.Advance(absl::Seconds(10));
  trainer.boot_nonce = "n3";
  trainer.numerics_choices.at("input [8 x 24]") = "cuBLASLt";
  REQUIRE(f.registry.Register(trainer).ok());
}

TEST_CASE("WorkerRegistry refuses a worker of another build, with both builds and the way out",
          "[registry]") {
  WorkerRegistryFixture f;
  f.options.build = "tandem 1, commit a";
  f.options.build_id = "1 aa";
  WorkerRegistry strict(f.options, f.clock);
  Announcement other = Hello(kRegisteredTrainer, "n1");
  other.build = "tandem 1, commit b";
  other.build_id = "1 bb";
  const absl::Status refused = strict.Register(other).status();
  REQUIRE(absl::IsFailedPrecondition(refused));
  REQUIRE(Says(refused,
               "trainer 0 is of another build (tandem 1, commit b) than this "
               "controller (tandem 1, commit a)"));
  REQUIRE(Says(refused, "cluster.allow_other_build=true"));
  REQUIRE_FALSE(strict.Find(kRegisteredTrainer).has_value());
  Announcement same = Hello(kRollout0, "n2");
  same.build = "tandem 1, commit c";  // of the same sources and flags
  same.build_id = "1 aa";
  REQUIRE(strict.Register(same).ok());
  REQUIRE(strict.builds() == "tandem 1, commit a");

  f.options.allow_other_build = true;
  WorkerRegistry open(f.options, f.clock);
  REQUIRE(open.Register(other).ok());
  REQUIRE(open.Register(same).ok());
  REQUIRE_FALSE(open.OtherBuild(other).empty());
  REQUIRE(open.OtherBuild(same).empty());
  REQUIRE(open.builds() == "tandem 1, commit a; trainer 0: tandem 1, commit b");
}

TEST_CASE("WorkerRegistry loses a silent worker and takes it back", "[registry]") {
  WorkerRegistryFixture f;
  REQUIRE(f.registry.Register(Hello(kRegisteredTrainer, "n1")).ok());
  f.clock.Advance(absl::Seconds(9));
  REQUIRE(f.registry.DetectLost().empty());
  f.clock.Advance(absl::Seconds(2));
  REQUIRE(Keys(f.registry.DetectLost()) == std::vector<WorkerKey>{kRegisteredTrainer});
  REQUIRE(f.registry.DetectLost().empty());
  REQUIRE_FALSE(f.registry.ReadyIncarnation(kRegisteredTrainer));
  REQUIRE(f.registry.Heartbeat(kRegisteredTrainer, 1, {.phase = "train"}).ok());
  REQUIRE(f.registry.Find(kRegisteredTrainer)->news.phase == "train");
}

TEST_CASE(
    "WorkerRegistry loses a worker whose engine stands still, and not one that moves or waits",
    "[registry]") {
  WorkerRegistryFixture f;
  f.options.progress_limit = absl::Seconds(130);
  WorkerRegistry registry(f.options, f.clock);
  REQUIRE(*registry.Register(Hello(kRollout0, "n1")) == 1);
  const auto try_beat = [&](int64_t moves, const std::string& activity, absl::Duration still_for) {
    f.clock.Advance(absl::Seconds(1));
    const EngineProgress progress{.moves = moves, .activity = activity, .still_for = still_for};
    return registry.Heartbeat(kRollout0, 1, {.phase = "serving", .progress = progress});
  };
  const auto beat = [&](int64_t moves, const std::string& activity, absl::Duration still_for) {
    REQUIRE(try_beat(moves, activity, still_for).ok());
    return Keys(registry.DetectLost());
  };
  const std::string place = "attention, layer 7";
  REQUIRE(beat(5, place, absl::Seconds(129)).empty());
  REQUIRE(registry.Find(kRollout0)->news.progress.activity == place);
  REQUIRE(beat(5, "", absl::ZeroDuration()).empty());
  REQUIRE(beat(5, place, absl::Seconds(150)) == std::vector<WorkerKey>{kRollout0});
  const std::optional<WorkerEntry> lost = registry.Find(kRollout0);
  REQUIRE(lost->state == WorkerEntry::State::kLost);
  REQUIRE(StandstillText(lost->news.progress) == "no progress for 2m30s, in attention, layer 7");
  REQUIRE(testing::Has(registry.Missing().back(), "no progress for 2m30s, in attention, layer 7"));
  // Its heartbeats do not bring it back, and tell it to end; its progress does bring it back.
  const absl::Status told = try_beat(5, place, absl::Seconds(151));
  REQUIRE(absl::IsInternal(told));
  REQUIRE(
      Says(told, "rollout 0 (incarnation 1, process 0) is lost, as it made no progress for 2m31s"));
  REQUIRE(registry.DetectLost().empty());
  REQUIRE_FALSE(registry.ReadyIncarnation(kRollout0));
  REQUIRE(beat(6, place, absl::ZeroDuration()).empty());
  REQUIRE(registry.ReadyIncarnation(kRollout0));
}

TEST_CASE(
    "WorkerRegistry frees the rank of a worker that stands still and cannot end, wherever it is",
    "[registry]") {
  for (const std::string host : {"host-a", "host-b"}) {
    INFO(host);
    WorkerRegistryFixture f;
    f.options.progress_limit = absl::Seconds(130);
    f.options.host.boot_id = host;  // the worker's is host-a, where the controller sees its process
    f.options.process_start = [](int64_t) { return "pid:[1] 7"; };
    WorkerRegistry registry(f.options, f.clock);
    Announcement stuck = Hello(kRollout0, "n1");
    stuck.address = "host-a:1";
    stuck.process_start = "pid:[1] 7";
    REQUIRE(registry.Register(stuck).ok());
    const auto beat = [&] {
      f.clock.Advance(absl::Seconds(1));
      return registry.Heartbeat(
          kRollout0, 1,
          {.phase = "serving", .progress = {.activity = "sync", .still_for = absl::Minutes(3)}});
    };
    REQUIRE(beat().ok());
    REQUIRE(registry.DetectLost().size() == 1);
    Announcement next = Hello(kRollout0, "n2");
    next.address = "host-a:1";
    for (int second = 1; second < 10; ++second) {
      REQUIRE(absl::IsInternal(beat()));
      REQUIRE(absl::IsAlreadyExists(registry.Register(next).status()));
    }
    REQUIRE(absl::IsInternal(beat()));
    REQUIRE(*registry.Register(next) == 2);
    REQUIRE(absl::IsAborted(beat()));  // it has been replaced
  }
}

TEST_CASE("WorkerRegistry sees a process that comes back to a controller of its own namespace",
          "[registry]") {
  WorkerRegistryFixture f;
  f.options.host.boot_id = "host-a";
  f.options.process_start = [](int64_t) { return "pid:[1] 7"; };
  f.options.own_process_start = "pid:[1] 3";
  WorkerRegistry registry(f.options, f.clock);
  WorkerEntry unseen;  // the controller before was in another container
  unseen.announcement = Hello(kRegisteredTrainer, "n1");
  unseen.incarnation = 4;
  unseen.state = WorkerEntry::State::kLost;
  registry.Reserve({unseen});
  Announcement back = Hello(kRegisteredTrainer, "n1");
  back.incarnation = 4;
  back.process_start = "pid:[1] 7";
  REQUIRE(*registry.Register(back) == 4);
  REQUIRE(registry.Find(kRegisteredTrainer)->process_start == "pid:[1] 7");
}

TEST_CASE("WorkerRegistry keeps the incarnation of workers that outlived a controller",
          "[registry]") {
  WorkerRegistryFixture f;
  REQUIRE(absl::IsNotFound(f.registry.Heartbeat(kRegisteredTrainer, 4, {})));
  Announcement again = Hello(kRegisteredTrainer, "n1");
  again.incarnation = 4;
  REQUIRE(*f.registry.Register(again) == 4);
  f.registry.MarkLost(kRegisteredTrainer, 4);
  f.clock.Advance(absl::Seconds(10));
  REQUIRE(*f.registry.Register(Hello(kRegisteredTrainer, "n2")) == 5);
  REQUIRE(absl::IsAborted(f.registry.Register(again).status()));
}

TEST_CASE("No change of the machine's date loses a worker, or hides a loss", "[registry]") {
  for (const absl::Duration change : {absl::Hours(1), -absl::Hours(1)}) {
    WorkerRegistryFixture f;
    const int64_t incarnation = *f.registry.Register(Hello(kRegisteredTrainer, "n1"));
    f.clock.Advance(absl::Seconds(9));
    f.clock.SetDate(change);
    REQUIRE(f.registry.DetectLost().empty());
    REQUIRE(f.registry.Heartbeat(kRegisteredTrainer, incarnation, {}).ok());
    f.clock.SetDate(-change);
    f.clock.Advance(absl::Seconds(9));
    REQUIRE(f.registry.DetectLost().empty());
    f.clock.Advance(absl::Seconds(2));
    f.clock.SetDate(change);
    REQUIRE(Keys(f.registry.DetectLost()) == std::vector<WorkerKey>{kRegisteredTrainer});
  }
}

}  // namespace tandem
