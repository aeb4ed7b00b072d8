#include "controller/store/post_mortem/run_state.h"

#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>

#include <catch2/catch.hpp>

#include "common/base/disk_refusal.h"
#include "common/process/directory_lock.h"
#include "controller/report/run_figures.h"
#include "controller/store/post_mortem/event_log.h"
#include "controller/store/sqlite/run_reader.h"
#include "controller/store/sqlite/sqlite_run_store.h"
#include "tests/fakes/fake_clock.h"
#include "tests/support/temp_dir.h"
#include "tests/support/text.h"

namespace tandem {
namespace {

using testing::Has;

// A run directory in which a controller is at work until Kill.
struct PostMortemFolder {
  testing::FakeClock clock;
  testing::TempDir dir;
  const std::string run_dir = dir.path();
  const std::string database = dir.path() / "run.db";
  std::optional<DirectoryLock> lock =
      DirectoryLock::Take(run_dir, "controller.lock", "a controller", "").value();
  std::unique_ptr<Blackbox> box = Blackbox::Open(run_dir + "/blackbox", "run 1", clock).value();
  std::unique_ptr<SqliteRunStore> store = SqliteRunStore::Open(database).value();
  RunInfo info{.run_id = "run 1", .total_steps = 9};

  // What SIGKILL leaves: neither an end in the blackbox nor one in the records.
  void Kill() {
    const std::string left = run_dir + "/left";
    std::filesystem::copy_file(run_dir + "/blackbox", left);
    box.reset();
    std::filesystem::rename(left, run_dir + "/blackbox");
    lock.reset();
  }
  RunDirState State() const {
    const auto records = SqliteRunReader::Open(database).value();
    return ReadRunDirState(run_dir, records.get()).value();
  }
};

TEST_CASE("A run whose controller holds its lock goes on", "[store]") {
  PostMortemFolder f;
  RunDirState state = f.State();
  REQUIRE(state.state == "running");
  REQUIRE(state.run_id == "run 1");
  REQUIRE(Has(state.note, "it starts"));
  REQUIRE(f.store->RecordRun(f.info).ok());
  state = f.State();
  REQUIRE(state.state == "running");
  REQUIRE(state.note.empty());
}

TEST_CASE("A killed run tells its phase and the last call to each worker", "[store]") {
  PostMortemFolder f;
  REQUIRE(f.store->RecordRun(f.info).ok());
  f.box->NotePhase(4, "generate");
  f.box->NoteCall("rollout 0", "Generate");
  f.box->NoteAnswer("rollout 0", "Generate", absl::StatusCode::kOk);
  f.box->NotePhase(4, "train");
  f.box->NoteCall("trainer 0", "ForwardBackward");
  f.Kill();
  const RunDirState state = f.State();
  REQUIRE(state.state == "killed");
  REQUIRE(state.phase == "train");
  REQUIRE(state.phase_step == 4);
  REQUIRE(state.calls.size() == 2);
  REQUIRE(state.calls[0].worker == "rollout 0");
  REQUIRE(state.calls[0].answered_us != 0);
  REQUIRE(state.calls[1].worker == "trainer 0");
  REQUIRE(state.calls[1].method == "ForwardBackward");
  REQUIRE(state.calls[1].answered_us == 0);
  // A launcher that goes on starts the controller again.
  const auto launcher = DirectoryLock::Take(f.run_dir, "launcher.lock", "a launcher", "").value();
  REQUIRE(f.State().state == "restarting");
}

TEST_CASE("A killed controller of another host may go on there", "[store]") {
  PostMortemFolder f;
  REQUIRE(f.store->RecordRun(f.info).ok());
  f.Kill();
  std::ofstream(f.run_dir + "/controller.lock") << "a controller, process 7 on elsewhere";
  REQUIRE(f.State().state == "unknown");
  REQUIRE(Has(f.State().note, "ran on elsewhere"));
}

TEST_CASE("A recorded end is told, also after its controller is gone", "[store]") {
  PostMortemFolder f;
  f.info.outcome = RunOutcome::kFailed;
  f.info.error = "trainer 0 is lost";
  REQUIRE(f.store->RecordRun(f.info).ok());
  f.box->NoteEnd(RunOutcome::kFailed, "trainer 0 is lost");
  f.lock.reset();
  REQUIRE(f.State().state == "failed");
  REQUIRE(f.State().error == "trainer 0 is lost");
  // A next start that ends before it records anything is the newest, and says so.
  {
    const auto next = Blackbox::Open(f.run_dir + "/blackbox", "run 2", f.clock).value();
    next->NoteEnd(RunOutcome::kFailed, "no workers came");
  }
  const RunDirState state = f.State();
  REQUIRE(state.state == "failed");
  REQUIRE(state.run_id == "run 2");
  REQUIRE(state.error == "no workers came");
  REQUIRE(Has(state.note, "before it recorded anything"));
  // Who stops a start has not made it fail, and an end without an outcome is neither.
  Blackbox::Open(f.run_dir + "/blackbox", "run 3", f.clock)
      .value()
      ->NoteEnd(RunOutcome::kStopped, "");
  REQUIRE(f.State().state == "stopped");
  REQUIRE(f.State().error.empty());
  Blackbox::Open(f.run_dir + "/blackbox", "run 4", f.clock).value().reset();
  REQUIRE(f.State().state == "unknown");
  REQUIRE(Has(f.State().note, "without telling an outcome"));
}

TEST_CASE("An end that run.db has no place for is told by the blackbox", "[store]") {
  PostMortemFolder f;
  REQUIRE(f.store->RecordRun(f.info).ok());
  f.box->NotePhase(9, "save");
  f.box->NoteEnd(RunOutcome::kFinished, "");
  f.lock.reset();
  const RunDirState state = f.State();
  REQUIRE(state.state == "finished");
  REQUIRE(state.error.empty());
  REQUIRE(state.phase.empty());
  REQUIRE(Has(state.note, "could not be recorded in run.db"));
}

TEST_CASE("Runs with long ids are told apart by all of the id", "[store]") {
  PostMortemFolder f;
  f.box.reset();
  const std::string blackbox = f.run_dir + "/blackbox";
  const std::string id = std::string(99, 'n') + "1";
  f.info.run_id = id;
  f.info.outcome = RunOutcome::kFinished;
  REQUIRE(f.store->RecordRun(f.info).ok());
  Blackbox::Open(blackbox, id, f.clock).value()->NoteEnd(RunOutcome::kFinished, "");
  f.lock.reset();
  REQUIRE(f.State().state == "finished");
  REQUIRE(f.State().note.empty());
  REQUIRE(f.State().run_id == id);
  // Only behind the bytes that a record keeps is the next start's id another.
  Blackbox::Open(blackbox, std::string(99, 'n') + "2", f.clock)
      .value()
      ->NoteEnd(RunOutcome::kFailed, "no workers came");
  REQUIRE(f.State().state == "failed");
  REQUIRE(f.State().error == "no workers came");
  REQUIRE(f.State().run_id == std::string(64, 'n'));
}

TEST_CASE("Calls of an earlier start are not shown, however many phases came since", "[store]") {
  PostMortemFolder f;
  f.box->NoteCall("rollout 0", "Generate");
  f.box.reset();
  f.box = Blackbox::Open(f.run_dir + "/blackbox", "run 2", f.clock).value();
  f.box->NoteCall("trainer 0", "ForwardBackward");
  for (int64_t step = 1; step <= 500; ++step) f.box->NotePhase(step, "train");
  f.Kill();
  const RunDirState state = f.State();
  REQUIRE(state.run_id == "run 2");
  REQUIRE(state.calls.size() == 1);
  REQUIRE(state.calls[0].worker == "trainer 0");
}

TEST_CASE("Records without an end or a blackbox of a build that kept neither say so", "[store]") {
  const testing::TempDir dir;
  std::filesystem::copy_file("tests/controller/store/sqlite/data/schema_4.db",
                             dir.path() / "run.db");
  const auto records = SqliteRunReader::Open(dir.path() / "run.db").value();
  const RunDirState state = ReadRunDirState(dir.path(), records.get()).value();
  REQUIRE(state.state == "unknown");
  REQUIRE(Has(state.note, "recorded no ends"));
  REQUIRE(state.run_id == "tandem/old/20260102-110000");
}

TEST_CASE("The tails of logs are their last lines", "[store]") {
  const testing::TempDir dir;
  std::filesystem::create_directories(dir.path() / "logs");
  std::ofstream(dir.path() / "logs/trainer-0.log") << "a\nb\nc\n";
  std::ofstream(dir.path() / "logs/controller-0.log") << std::string(100'000, 'x') << "\nend";
  const auto tails = ReadLogTails(dir.path(), 2);
  REQUIRE(tails.size() == 2);
  REQUIRE(tails[0].file == "controller-0.log");
  REQUIRE(tails[0].lines.back() == "end");
  REQUIRE(tails[1].lines == std::vector<std::string>{"b", "c"});
  REQUIRE(ReadLogTails("/nonexistent", 2).empty());
}

TEST_CASE("Events wait until the run has records, and while the store refuses them", "[store]") {
  PostMortemFolder f;
  EventLog events(*f.store, f.box.get(), f.clock);
  events.OnRunStart(f.info);
  REQUIRE(f.store->ListEvents(9).value().empty());
  events.StartWriting();
  events.OnStep({.step = 1});
  events.OnMessage("warning: low space");
  events.OnEvent({.severity = "warning", .kind = "loss", .worker = "trainer 1", .text = "lost"});
  events.OnRunEnd({.error = "gone", .steps = 1}, RunFigures());
  const auto written = f.store->ListEvents(9).value();
  REQUIRE(written.size() == 4);
  REQUIRE(written[0].kind == "start");
  REQUIRE(written[1].severity == "warning");
  REQUIRE(written[1].step == 1);
  REQUIRE(written[2].worker == "trainer 1");
  REQUIRE(written[3].kind == "end");
  REQUIRE(written[3].text == "failed: gone after step 1");
  const BlackboxRecord end = ReadBlackbox(f.run_dir + "/blackbox").value().back();
  REQUIRE(end.code == static_cast<int>(RunOutcome::kFailed));
  REQUIRE(end.text == "gone");
}

TEST_CASE("The newest events are known without the store, those of earlier starts too", "[store]") {
  PostMortemFolder f;
  REQUIRE(f.store->RecordEvents({{.kind = "start", .text = "earlier"}}).ok());
  EventLog events(*f.store, f.box.get(), f.clock);
  events.OnMessage("before the records");
  const auto texts = [&events] {
    std::vector<std::string> found;
    for (const EventRecord& event : events.Newest()) found.push_back(event.text);
    return found;
  };
  REQUIRE(texts() == std::vector<std::string>{"before the records"});
  events.StartWriting();
  REQUIRE(texts() == std::vector<std::string>{"earlier", "before the records"});
  for (const char* text : {"a", "b", "c", "d"}) events.OnMessage(text);
  REQUIRE(texts() == std::vector<std::string>{"before the records", "a", "b", "c", "d"});
}

}  // namespace
}  // namespace tandem
