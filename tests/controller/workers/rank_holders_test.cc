// What a controller that is started again knows of the workers that outlived the one before.
#include "controller/workers/rank_holders.h"

#include <atomic>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <absl/synchronization/notification.h>
#include <catch2/catch.hpp>

#include "common/base/mutex.h"
#include "common/net/protocol.h"
#include "controller/workers/worker_pool.h"
#include "tests/fakes/fake_clock.h"
#include "tests/support/file_mode.h"
#include "tests/support/patience.h"
#include "tests/support/temp_dir.h"
#include "tests/support/text.h"

namespace tandem {
namespace {

using testing::Says;

const WorkerKey kHeldTrainer{WorkerRole::kTrainer, 0};
const WorkerKey kHeldRollout{WorkerRole::kRollout, 0};

// Returns when it is written.
void WriteAndWait(RankHolders& holders, const WorkerRegistry& registry) {
  absl::Notification written;
  holders.Write(registry, [&written] { written.Notify(); });
  written.WaitForNotification();
}

struct HoldersFixture {
  testing::TempDir dir;
  testing::FakeClock clock;
  std::map<int64_t, std::string> running = {{41, "pid:[1] 100"}, {42, "pid:[1] 200"}};
  RegistryOptions options{
      .heartbeat_timeout = absl::Seconds(10),
      .register_timeout = absl::Minutes(5),
      .host = {.boot_id = "host-a"},
      .process_start = [this](int64_t pid) { return running[pid]; },
      .own_process_start = "pid:[1] 7",
  };
  RankHolders holders{dir.path()};

  static Announcement Hello(const WorkerKey& key, int64_t pid, const std::string& start) {
    return {.protocol = kProtocolVersion,
            .key = key,
            .address = "host-a:1",
            .host = {.boot_id = "host-a"},
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
    WriteAndWait(holders, registry);
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
  REQUIRE(Says(refused, "trainer 0 is held by process 41 at host-a:1"));
  Announcement liar = stranger;  // says that it had the rank before
  liar.incarnation = 1;
  REQUIRE(absl::IsAlreadyExists(next.Register(liar).status()));
  Announcement again = worker;
  again.incarnation = 1;
  REQUIRE(*next.Register(again) == 1);
  REQUIRE(next.Heartbeat(kHeldTrainer, 1, {}).ok());
  REQUIRE(absl::IsAlreadyExists(next.Register(stranger).status()));

  // The other one lives and stays away. Without a controller it ends; one that hangs is given up.
  const Announcement other = f.Hello(kHeldRollout, 51, "");
  f.clock.Advance(absl::Minutes(3) - absl::Seconds(10));
  REQUIRE(absl::IsAlreadyExists(next.Register(other).status()));
  f.clock.Advance(absl::Seconds(1));
  REQUIRE(*next.Register(other) == 2);
}

TEST_CASE("A living worker that stays away is replaced as soon as it has been killed",
          "[holders]") {
  HoldersFixture f;
  f.Ran({f.Hello(kHeldTrainer, 41, "pid:[1] 100")});
  WorkerRegistry next(f.options, f.clock);
  next.Reserve(f.holders.Read());
  f.clock.Advance(absl::Minutes(1));
  const Announcement fresh = f.Hello(kHeldTrainer, 50, "");
  REQUIRE(absl::IsAlreadyExists(next.Register(fresh).status()));
  f.running.erase(41);
  REQUIRE(*next.Register(fresh) == 2);
}

TEST_CASE("Ranks and incarnations outlive several controllers in a row", "[holders]") {
  HoldersFixture f;
  const Announcement trainer = f.Hello(kHeldTrainer, 41, "pid:[1] 100");
  const Announcement rollout = f.Hello(kHeldRollout, 42, "pid:[1] 200");
  f.Ran({trainer, rollout});
  f.Ran({trainer});  // the rollout had not come back when this one died
  {
    WorkerRegistry next(f.options, f.clock);
    next.Reserve(f.holders.Read());
    REQUIRE(absl::IsAlreadyExists(next.Register(f.Hello(kHeldRollout, 51, "")).status()));
    REQUIRE(*next.Register(rollout) == 1);
  }
  f.running.clear();
  f.Ran({f.Hello(kHeldTrainer, 52, "")});
  f.Ran({});
  f.clock.Advance(absl::Seconds(10));
  WorkerRegistry last(f.options, f.clock);
  last.Reserve(f.holders.Read());
  f.clock.Advance(absl::Seconds(10));
  REQUIRE(*last.Register(f.Hello(kHeldTrainer, 53, "")) == 3);
  REQUIRE(*last.Register(f.Hello(kHeldRollout, 54, "")) == 2);
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
  elsewhere.host.boot_id = "host-b";
  REQUIRE(is_held(elsewhere));
}

TEST_CASE("A worker that is seen to load its model is waited for as long as that may take",
          "[holders]") {
  HoldersFixture f;
  Announcement loading = f.Hello(kHeldTrainer, 41, "pid:[1] 100");
  loading.numerics_class.clear();
  f.Ran({loading});
  WorkerRegistry next(f.options, f.clock);
  next.Reserve(f.holders.Read());
  f.clock.Advance(absl::Minutes(5) - absl::Seconds(1));
  REQUIRE(absl::IsAlreadyExists(next.Register(f.Hello(kHeldTrainer, 50, "")).status()));
  // Its first registration may have been answered by nobody.
  REQUIRE(*next.Register(loading) == 1);
}

TEST_CASE("A start after the host's restart waits for its workers beyond the ranks that are held",
          "[holders]") {
  HoldersFixture f;
  Announcement gone = f.Hello(kHeldTrainer, 41, "");  // and nobody sees that
  gone.numerics_class.clear();
  f.Ran({gone, f.Hello(kHeldRollout, 42, "")});
  WorkerRegistry next(f.options, f.clock);
  next.Reserve(f.holders.Read());
  REQUIRE(next.Missing() ==
          std::vector<std::string>{"trainer 0 (held by process 41 for up to 10s more)",
                                   "rollout 0 (held by process 42 for up to 10s more)"});
  WorkerPool pool(next, {}, {}, f.clock);
  f.clock.OnSleep([&] {
    // As workers do, which try again until they are accepted.
    (void)next.Register(f.Hello(kHeldTrainer, 50, ""));
    (void)next.Register(f.Hello(kHeldRollout, 51, ""));
  });
  REQUIRE(pool.WaitUntilComplete(absl::Seconds(2), nullptr).ok());
  REQUIRE(next.Find(kHeldTrainer)->incarnation == 2);
}

TEST_CASE("The wait for workers that stay away ends after the ranks are free", "[holders]") {
  HoldersFixture f;
  f.Ran({f.Hello(kHeldTrainer, 41, "")});
  WorkerRegistry next(f.options, f.clock);
  next.Reserve(f.holders.Read());
  WorkerPool pool(next, {}, {}, f.clock);
  const Instant start = f.clock.Now();
  const absl::Status gave_up = pool.WaitUntilComplete(absl::Seconds(2), nullptr);
  REQUIRE(WorkerDidNotReturn(gave_up));
  REQUIRE(Says(gave_up, "trainer 0 (process 41 has not come back, no other registered)"));
  REQUIRE(Says(gave_up, "rollout 0 (never registered)"));
  REQUIRE(f.clock.Now() - start < absl::Seconds(13));
}

TEST_CASE("A run that has ended holds no ranks", "[holders]") {
  HoldersFixture f;
  f.Ran({f.Hello(kHeldTrainer, 41, "pid:[1] 100")});
  f.holders.Remove();
  REQUIRE_FALSE(std::filesystem::exists(f.dir.path() / "workers.json"));
  REQUIRE(f.holders.Read().empty());
  f.holders.Remove();  // there is none
}

TEST_CASE("Workers that register while the file is written share the next write of it",
          "[holders]") {
  HoldersFixture f;
  f.options.topology.trainers = 8;
  WorkerRegistry registry(f.options, f.clock);
  struct {
    Mutex mutex;
    std::string text ABSL_GUARDED_BY(mutex);
    int writes ABSL_GUARDED_BY(mutex) = 0;  // each syncs a file and a folder
  } file;
  const auto writes = [&] {
    const MutexLock lock(file.mutex);
    return file.writes;
  };
  absl::Notification begun, go_on;
  RankHolders holders(f.dir.path(), [&](const std::string&, const std::string& text) {
    if (!begun.HasBeenNotified()) {
      begun.Notify();
      go_on.WaitForNotificationWithTimeout(testing::kPatience);
    }
    const MutexLock lock(file.mutex);
    ++file.writes;
    file.text = text;
    return absl::OkStatus();
  });
  std::atomic<int> answered = 0, answered_from_the_file = 0;
  const auto join = [&](int rank) {
    REQUIRE(registry.Register(f.Hello({WorkerRole::kTrainer, rank}, 41 + rank, "")).ok());
    holders.Write(registry, [&, rank] {
      const MutexLock lock(file.mutex);
      answered_from_the_file +=
          testing::Has(file.text, "\"rank\": " + std::to_string(rank)) ? 1 : 0;
      ++answered;
    });
  };
  join(0);
  begun.WaitForNotificationWithTimeout(testing::kPatience);
  for (int rank = 1; rank < 8; ++rank) join(rank);  // none of them waits here
  REQUIRE(holders.waiting() == 7);
  REQUIRE(answered == 0);
  go_on.Notify();
  testing::WaitUntil("eight workers that are answered", [&] { return answered == 8; });
  REQUIRE(answered_from_the_file == 8);
  REQUIRE(writes() == 2);
  WriteAndWait(holders, registry);
  REQUIRE(writes() == 2);  // nothing has changed
  REQUIRE(registry.Register(f.Hello({WorkerRole::kRollout, 0}, 60, "")).ok());
  WriteAndWait(holders, registry);
  REQUIRE(writes() == 3);
}

TEST_CASE("What was asked for is written and answered before the holders' end", "[holders]") {
  HoldersFixture f;
  WorkerRegistry registry(f.options, f.clock);
  REQUIRE(registry.Register(f.Hello(kHeldTrainer, 41, "")).ok());
  int answered = 0;
  {
    RankHolders holders(f.dir.path());
    for (int i = 0; i < 3; ++i) holders.Write(registry, [&] { ++answered; });
  }
  REQUIRE(answered == 3);
  REQUIRE(f.holders.Read().size() == 1);
}

TEST_CASE("The file of rank holders has their hosts, and of earlier builds no nodes", "[holders]") {
  HoldersFixture f;
  f.options.host.node = "a";
  Announcement worker = f.Hello(kHeldTrainer, 41, "pid:[1] 100");
  worker.host.node = "a";
  f.Ran({worker});
  REQUIRE(f.holders.Read().front().announcement.host == worker.host);
  const std::string path = f.dir.path() / "workers.json";
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  std::string earlier = text.str();
  const std::string node = "\"node\": \"a\",";
  const size_t at = earlier.find(node);
  REQUIRE(at != std::string::npos);
  std::ofstream(path) << earlier.erase(at, node.size());
  REQUIRE(f.holders.Read().front().announcement.host == HostId{.boot_id = "host-a"});
}

TEST_CASE("The file of rank holders is its user's alone, and passed over where it is none",
          "[holders]") {
  HoldersFixture f;
  REQUIRE(f.holders.Read().empty());
  f.Ran({f.Hello(kHeldTrainer, 41, "pid:[1] 100")});
  const std::string path = f.dir.path() / "workers.json";
  REQUIRE(testing::ModeOf(path) == 0600);
  REQUIRE(f.holders.Read().size() == 1);
  std::stringstream good_text;
  good_text << std::ifstream(path).rdbuf();
  const std::string good = good_text.str();
  for (const char* text : {"", "{", "[{}]", "[1]", "{\"role\": 1}", "null"}) {
    INFO(text);
    std::ofstream(path) << text;
    REQUIRE(f.holders.Read().empty());
  }
  // Numbers that no field holds: to take them for one would be undefined.
  for (const auto& [field, wrong] :
       {std::pair{"\"rank\": 0", "\"rank\": 1e300"}, std::pair{"\"rank\": 0", "\"rank\": 0.5"},
        std::pair{"\"pid\": 41", "\"pid\": 1e99"}, std::pair{"\"pid\": 41", "\"pid\": \"41\""}}) {
    INFO(wrong);
    std::string text = good;
    const size_t at = text.find(field);
    REQUIRE(at != std::string::npos);
    std::ofstream(path) << text.replace(at, std::string(field).size(), wrong);
    REQUIRE(f.holders.Read().empty());
  }
  std::ofstream(path) << good;
  REQUIRE(f.holders.Read().size() == 1);
  RankHolders nowhere(f.dir.path() / "nowhere");
  WorkerRegistry registry(f.options, f.clock);
  WriteAndWait(nowhere, registry);  // logged
  REQUIRE(nowhere.Read().empty());
}

}  // namespace tandem
