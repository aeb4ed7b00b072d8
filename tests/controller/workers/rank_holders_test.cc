// What a controller that is started again knows of the workers that outlived the one before.
#include "controller/workers/rank_holders.h"

#include <fstream>
#include <map>
#include <string>

#include <catch2/catch.hpp>

#include "tests/fakes/fake_clock.h"
#include "tests/support/file_mode.h"
#include "tests/support/temp_dir.h"
#include "tests/support/text.h"

namespace tandem {
namespace {

using testing::Says;

const WorkerKey kHeldTrainer{WorkerRole::kTrainer, 0};
const WorkerKey kHeldRollout{WorkerRole::kRollout, 0};

struct HoldersFixture {
  testing::TempDir dir;
  testing::FakeClock clock;
  std::map<int64_t, std::string> running = {{41, "pid:[1] 100"}, {42, "pid:[1] 200"}};
  RegistryOptions options{
      .heartbeat_timeout = absl::Seconds(10),
      .register_timeout = absl::Minutes(5),
      .boot_id = "host-a",
      .process_start = [this](int64_t pid) { return running[pid]; },
      .own_process_start = "pid:[1] 7",
  };
  RankHolders holders{dir.path()};

  static Announcement Hello(const WorkerKey& key, int64_t pid, const std::string& start) {
    return {.protocol = 1,
            .key = key,
            .address = "unix:/x",
            .boot_id = "host-a",
            .device = "cpu:0",
            .boot_nonce = "nonce of " + std::to_string(pid),
            .pid = pid,
            .numerics_class = "avx2",
            .process_start = start};
  }

  // One controller, whose workers `announcements` are; all that stays of it is the file.
  void Ran(const std::vector<Announcement>& announcements) {
    WorkerRegistry registry(options, clock);
    registry.Reserve(holders.Read());
    for (const Announcement& announcement : announcements) {
      REQUIRE(registry.Register(announcement).ok());
    }
    holders.Write(registry);
  }
};

}  // namespace

TEST_CASE("A living worker's rank waits for it after a restart of the controller", "[holders]") {
  HoldersFixture f;
  const Announcement worker = f.Hello(kHeldTrainer, 41, "pid:[1] 100");
  f.Ran({worker, f.Hello(kHeldRollout, 42, "pid:[1] 200")});
  WorkerRegistry next(f.options, f.clock);
  next.Reserve(f.holders.Read());
  REQUIRE(next.Workers().empty());  // nobody has registered yet

  const Announcement stranger = f.Hello(kHeldTrainer, 50, "pid:[1] 300");
  f.clock.Advance(absl::Seconds(9));
  const absl::Status refused = next.Register(stranger).status();
  REQUIRE(absl::IsAlreadyExists(refused));
  REQUIRE(Says(refused, "trainer 0 is held by process 41 at unix:/x"));
  Announcement liar = stranger;  // says that it had the rank before
  liar.incarnation = 1;
  REQUIRE(absl::IsAlreadyExists(next.Register(liar).status()));
  Announcement again = worker;
  again.incarnation = 1;
  REQUIRE(*next.Register(again) == 1);
  REQUIRE(next.Heartbeat(kHeldTrainer, 1, {}).ok());
  REQUIRE(absl::IsAlreadyExists(next.Register(stranger).status()));

  // The other one stays away: its silence counts as that of a lost worker.
  f.clock.Advance(absl::Seconds(1));
  REQUIRE(*next.Register(f.Hello(kHeldRollout, 51, "")) == 2);
}

TEST_CASE("A worker that ended with its controller is replaced at once", "[holders]") {
  HoldersFixture f;
  f.Ran({f.Hello(kHeldTrainer, 41, "pid:[1] 100")});
  f.running[41] = "pid:[1] 900";  // its number is another process's
  WorkerRegistry next(f.options, f.clock);
  next.Reserve(f.holders.Read());
  // The incarnation tells it from the one before, should that wake up.
  REQUIRE(*next.Register(f.Hello(kHeldTrainer, 50, "")) == 2);
}

TEST_CASE("A worker that the new controller cannot see is waited for", "[holders]") {
  HoldersFixture f;
  f.Ran({f.Hello(kHeldTrainer, 41, "pid:[1] 100")});
  f.running.clear();
  const auto is_held = [&](RegistryOptions options) {
    WorkerRegistry next(std::move(options), f.clock);
    next.Reserve(f.holders.Read());
    const bool held = absl::IsAlreadyExists(next.Register(f.Hello(kHeldTrainer, 50, "")).status());
    f.clock.Advance(absl::Seconds(10));
    REQUIRE(next.Register(f.Hello(kHeldTrainer, 50, "")).ok());
    return held;
  };
  REQUIRE_FALSE(is_held(f.options));
  RegistryOptions elsewhere = f.options;
  elsewhere.own_process_start = "pid:[2] 7";  // in another container
  REQUIRE(is_held(elsewhere));
  elsewhere = f.options;
  elsewhere.boot_id = "host-b";
  REQUIRE(is_held(elsewhere));
}

TEST_CASE("A worker that loads its model is waited for as long as that may take", "[holders]") {
  HoldersFixture f;
  Announcement loading = f.Hello(kHeldTrainer, 41, "");  // not seen from here
  loading.numerics_class.clear();
  f.Ran({loading});
  WorkerRegistry next(f.options, f.clock);
  next.Reserve(f.holders.Read());
  f.clock.Advance(absl::Minutes(5) - absl::Seconds(1));
  REQUIRE(absl::IsAlreadyExists(next.Register(f.Hello(kHeldTrainer, 50, "")).status()));
  // Its first registration may have been answered by nobody.
  REQUIRE(*next.Register(loading) == 1);
}

TEST_CASE("The file of rank holders is its user's alone, and passed over where it is none",
          "[holders]") {
  HoldersFixture f;
  REQUIRE(f.holders.Read().empty());
  f.Ran({f.Hello(kHeldTrainer, 41, "pid:[1] 100")});
  const std::string path = f.dir.path() / "workers.json";
  REQUIRE(testing::ModeOf(path) == 0600);
  REQUIRE(f.holders.Read().size() == 1);
  for (const char* text : {"", "{", "[{}]", "[1]", "{\"role\": 1}", "null"}) {
    INFO(text);
    std::ofstream(path) << text;
    REQUIRE(f.holders.Read().empty());
  }
  RankHolders nowhere(f.dir.path() / "nowhere");
  WorkerRegistry registry(f.options, f.clock);
  nowhere.Write(registry);  // logged
  REQUIRE(nowhere.Read().empty());
}

}  // namespace tandem
