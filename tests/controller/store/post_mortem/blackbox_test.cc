#include "controller/store/post_mortem/blackbox.h"

#include <csignal>
#include <filesystem>
#include <fstream>

#include <catch2/catch.hpp>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/fakes/fake_clock.h"
#include "tests/support/file_mode.h"
#include "tests/support/temp_dir.h"

namespace tandem {
namespace {

struct BlackboxFolder {
  testing::FakeClock clock;
  testing::TempDir dir;
  const std::string path = dir.path() / "blackbox";

  std::unique_ptr<Blackbox> Open(const std::string& run_id) {
    return Blackbox::Open(path, run_id, clock).value();
  }
};

TEST_CASE("A blackbox keeps what its controller noted, and that it ended", "[store]") {
  BlackboxFolder f;
  {
    const auto box = f.Open("p/e/1");
    box->NotePhase(3, "train");
    box->NoteCall("trainer 0", "ForwardBackward");
    box->NoteAnswer("trainer 0", "ForwardBackward", absl::StatusCode::kUnavailable);
    box->NoteEnd(RunOutcome::kFailed, "trainer 0 is lost");
  }
  REQUIRE(std::filesystem::file_size(f.path) == kBlackboxBytes);
  REQUIRE(testing::ModeOf(f.path) == 0600);
  const auto records = ReadBlackbox(f.path).value();
  REQUIRE(records.size() == 5);
  REQUIRE(records[0].kind == BlackboxKind::kStart);
  REQUIRE(records[0].text == "p/e/1");
  REQUIRE(records[1].text == "train");
  REQUIRE(records[2].worker == "trainer 0");
  REQUIRE(records[2].step == 3);
  REQUIRE(records[3].code == static_cast<int>(absl::StatusCode::kUnavailable));
  REQUIRE(records[4].kind == BlackboxKind::kEnd);
  REQUIRE(records[4].code == static_cast<int>(RunOutcome::kFailed));
  REQUIRE(records[4].text == "trainer 0 is lost");
}

TEST_CASE("A blackbox survives that its process is killed", "[store]") {
  BlackboxFolder f;
  const pid_t child = fork();
  if (child == 0) {
    auto box = Blackbox::Open(f.path, "killed", f.clock);
    if (box.ok()) (*box)->NotePhase(7, "optimize");
    kill(getpid(), SIGKILL);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  REQUIRE(WIFSIGNALED(status));
  const auto records = ReadBlackbox(f.path).value();
  REQUIRE(records.size() == 2);
  REQUIRE(records[1].text == "optimize");
  REQUIRE(records[1].step == 7);
}

TEST_CASE("Many calls push out older calls, never phases, and a next start goes on", "[store]") {
  BlackboxFolder f;
  {
    const auto box = f.Open("first");
    box->NotePhase(1, "generate");
    for (int i = 0; i < 2000; ++i) box->NoteCall("rollout 0", std::to_string(i));
  }
  f.Open("second");
  REQUIRE(std::filesystem::file_size(f.path) == kBlackboxBytes);
  const auto records = ReadBlackbox(f.path).value();
  REQUIRE(records.size() < kBlackboxBytes / 128);
  REQUIRE(records[0].text == "first");
  REQUIRE(records[1].text == "generate");
  REQUIRE(records[records.size() - 4].text == "1999");
  REQUIRE(records[records.size() - 2].text == "second");
  for (size_t i = 1; i < records.size(); ++i) REQUIRE(records[i].seq > records[i - 1].seq);
}

TEST_CASE("Nothing pushes out the newest start", "[store]") {
  BlackboxFolder f;
  {
    const auto box = f.Open("first");
    box->NoteCall("rollout 0", "Generate");
  }
  {
    const auto box = f.Open("second");
    for (int i = 0; i < 500; ++i) box->NotePhase(i, "train");
  }
  const auto records = ReadBlackbox(f.path).value();
  REQUIRE(records[0].text == "Generate");
  REQUIRE(records[1].kind == BlackboxKind::kStart);
  REQUIRE(records[1].text == "second");
  REQUIRE(records[2].text == "train");
  // A next controller goes on behind all of them.
  f.Open("third");
  const auto later = ReadBlackbox(f.path).value();
  REQUIRE(later[later.size() - 2].text == "third");
  REQUIRE(later.back().seq == records.back().seq + 2);
}

TEST_CASE("A record that was half written is left out, and the next start goes on", "[store]") {
  BlackboxFolder f;
  {
    const auto box = f.Open("run");
    box->NotePhase(1, "generate");
    box->NotePhase(1, "train");
  }
  {
    std::fstream file(f.path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(128 + 2 * 128 + 60);  // in the third record
    file << "torn";
  }
  const auto records = ReadBlackbox(f.path).value();
  REQUIRE(records.size() == 3);
  REQUIRE(records[1].text == "generate");
  REQUIRE(records[2].kind == BlackboxKind::kEnd);
  f.Open("next");
  REQUIRE(ReadBlackbox(f.path).value().size() == 5);
}

TEST_CASE("What is no blackbox is told, and a controller writes it anew", "[store]") {
  BlackboxFolder f;
  REQUIRE(absl::IsNotFound(ReadBlackbox(f.path).status()));
  std::ofstream(f.path) << std::string(kBlackboxBytes, 'x');
  REQUIRE(absl::IsDataLoss(ReadBlackbox(f.path).status()));
  std::ofstream(f.path, std::ios::trunc) << "short";
  REQUIRE_FALSE(ReadBlackbox(f.path).ok());
  f.Open("run");
  REQUIRE(ReadBlackbox(f.path).value().size() == 2);
  REQUIRE_FALSE(Blackbox::Open("/nonexistent/blackbox", "run", f.clock).ok());
}

TEST_CASE("Texts longer than a record are cut", "[store]") {
  BlackboxFolder f;
  const std::string id(500, 'r');
  const auto box = f.Open(id);
  box->NoteCall(std::string(500, 'w'), std::string(500, 'm'));
  const auto records = ReadBlackbox(f.path).value();
  REQUIRE(records[0].text == std::string(64, 'r'));
  REQUIRE(IsStartOf(records[0], id));
  REQUIRE_FALSE(IsStartOf(records[0], id + "r"));
  REQUIRE_FALSE(IsStartOf(records[1], id));
  REQUIRE(records[1].worker == std::string(20, 'w'));
}

}  // namespace
}  // namespace tandem
