#include <filesystem>
#include <fstream>
#include <limits>
#include <optional>
#include <sstream>
#include <utility>

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>
#include <sys/resource.h>
#include <unistd.h>

#include "common/base/log.h"
#include "common/formats/files.h"
#include "controller/store/trackers/tensorboard_tracker.h"
#include "controller/store/trackers/trackers.h"
#include "tests/common/formats/file_size_limit.h"
#include "tests/fakes/fake_clock.h"
#include "tests/support/captured_output.h"
#include "tests/support/temp_dir.h"
#include "tests/support/text.h"

namespace tandem {
namespace {

// What goes to the standard error stream, as the log does, while this object lives. A pipe, which
// no limit on the size of files concerns.
class CapturedLog {
 public:
  CapturedLog() {
    InitLog("test", -1);
    REQUIRE(pipe(pipe_) == 0);
    REQUIRE(dup2(pipe_[1], STDERR_FILENO) == STDERR_FILENO);
  }
  ~CapturedLog() { Text(); }
  // Ends the capture. At most a pipe full.
  std::string Text() {
    if (before_ < 0) return text_;
    dup2(before_, STDERR_FILENO);
    close(std::exchange(before_, -1));
    close(pipe_[1]);
    char part[4096];
    for (ssize_t got; (got = read(pipe_[0], part, sizeof part)) > 0;) text_.append(part, got);
    close(pipe_[0]);
    return text_;
  }

 private:
  int before_ = dup(STDERR_FILENO);
  int pipe_[2] = {-1, -1};
  std::string text_;
};

// The process can open no further file while this object lives.
class NoMoreFiles {
 public:
  NoMoreFiles() {
    getrlimit(RLIMIT_NOFILE, &old_limit_);
    const int next = dup(STDERR_FILENO);
    close(next);
    rlimit limit = old_limit_;
    limit.rlim_cur = static_cast<rlim_t>(next);
    setrlimit(RLIMIT_NOFILE, &limit);
  }
  ~NoMoreFiles() { setrlimit(RLIMIT_NOFILE, &old_limit_); }
  NoMoreFiles(const NoMoreFiles&) = delete;
  NoMoreFiles& operator=(const NoMoreFiles&) = delete;

 private:
  rlimit old_limit_ = {};
};

}  // namespace

TEST_CASE("JsonlTracker writes one object per step and null for NaN", "[observe]") {
  testing::TempDir dir;
  const std::string path = dir.path() / "metrics.jsonl";
  JsonlTracker tracker(path);
  tracker.Log(1, {{"actor/lr", 1e-6}, {"b", std::numeric_limits<double>::quiet_NaN()}});
  tracker.Log(2, {{"actor/lr", 2e-6}});
  std::istringstream lines(ReadWholeFile(path).value());
  std::string line;
  REQUIRE(std::getline(lines, line));
  const auto first = nlohmann::json::parse(line);
  REQUIRE(first["step"] == 1);
  REQUIRE(first["data"]["actor/lr"] == 1e-6);
  REQUIRE(first["data"]["b"].is_null());
  REQUIRE(std::getline(lines, line));
  REQUIRE(nlohmann::json::parse(line)["step"] == 2);
}

TEST_CASE("JsonlTracker moves what comes after the step that a run goes back to", "[observe]") {
  testing::TempDir dir;
  const std::string path = dir.path() / "metrics.jsonl";
  std::ofstream(path) << "{\"step\": 1, \"data\": {}}\n{\"step\": 2, \"data\": {\"a\": 1.5}}\n"
                         "{\"step\": 3, \"data\": {}}\n{\"step\": 4, \"da";
  JsonlTracker tracker(path);
  REQUIRE(tracker.Rewind(2).ok());
  tracker.Log(3, {{"b", 2}});
  REQUIRE(ReadWholeFile(path).value() ==
          "{\"step\": 1, \"data\": {}}\n{\"step\": 2, \"data\": {\"a\": 1.5}}\n"
          "{\"step\":3,\"data\":{\"b\":2.0}}\n");
  const std::string undone = JsonlTracker::UndonePath(path);
  REQUIRE(undone == (dir.path() / "metrics.undone.jsonl").string());
  REQUIRE(ReadWholeFile(undone).value() == "{\"step\": 3, \"data\": {}}\n");
  REQUIRE(tracker.Rewind(-1).ok());
  tracker.Log(0, {});
  REQUIRE(ReadWholeFile(path).value() == "{\"step\":0,\"data\":{}}\n");
  REQUIRE(ReadWholeFile(undone).value() ==
          "{\"step\": 3, \"data\": {}}\n{\"step\": 1, \"data\": {}}\n"
          "{\"step\": 2, \"data\": {\"a\": 1.5}}\n{\"step\":3,\"data\":{\"b\":2.0}}\n");
}

TEST_CASE("JsonlTracker makes no file for undone lines where there are none", "[observe]") {
  testing::TempDir dir;
  const std::string path = dir.path() / "metrics.jsonl";
  JsonlTracker tracker(path);
  tracker.Log(1, {});
  // The file itself stays, too: it has another name here.
  std::filesystem::create_hard_link(path, dir.path() / "the_same");
  REQUIRE(tracker.Rewind(1).ok());
  REQUIRE(std::filesystem::equivalent(path, dir.path() / "the_same"));
  REQUIRE_FALSE(std::filesystem::exists(JsonlTracker::UndonePath(path)));
  REQUIRE(ReadWholeFile(path).value() == "{\"step\":1,\"data\":{}}\n");
}

TEST_CASE("JsonlTracker ends a line that a kill left without its line break", "[observe]") {
  testing::TempDir dir;
  const std::string path = dir.path() / "metrics.jsonl";
  std::ofstream(path) << "{\"step\":1,\"data\":{}}";
  JsonlTracker tracker(path);
  REQUIRE(tracker.Rewind(1).ok());
  tracker.Log(2, {});
  REQUIRE(ReadWholeFile(path).value() == "{\"step\":1,\"data\":{}}\n{\"step\":2,\"data\":{}}\n");
}

TEST_CASE("JsonlTracker loses no line where its file cannot be read or replaced", "[observe]") {
  testing::TempDir dir;
  const std::string path = dir.path() / "metrics.jsonl";
  const std::string undone = JsonlTracker::UndonePath(path);
  JsonlTracker tracker(path);
  for (const int64_t step : {1, 2, 3}) tracker.Log(step, {});
  const std::string lines = ReadWholeFile(path).value();
  std::ofstream(undone) << "{}\n";
  {
    const NoMoreFiles none;
    const absl::Status status = tracker.Rewind(1);
    REQUIRE_FALSE(status.ok());
    REQUIRE(testing::Has(std::string(status.message()), path + ": reading failed: "));
  }
  REQUIRE(ReadWholeFile(path).value() == lines);
  {
    const testing::FileSizeLimit full(8);  // the lines that stay do not fit
    REQUIRE(absl::IsResourceExhausted(tracker.Rewind(1)));
  }
  {
    const testing::FileSizeLimit full(30);  // those that go do not fit
    REQUIRE(absl::IsResourceExhausted(tracker.Rewind(1)));
  }
  REQUIRE(ReadWholeFile(path).value() == lines);
  REQUIRE(ReadWholeFile(undone).value() == "{}\n");
  REQUIRE_FALSE(std::filesystem::exists(path + ".kept"));
  REQUIRE(tracker.Rewind(1).ok());
  REQUIRE(ReadWholeFile(path).value() == "{\"step\":1,\"data\":{}}\n");
  REQUIRE(ReadWholeFile(undone).value() ==
          "{}\n{\"step\":2,\"data\":{}}\n{\"step\":3,\"data\":{}}\n");
}

TEST_CASE("JsonlTracker tells a file that opens and cannot be read", "[observe]") {
  testing::TempDir dir;
  JsonlTracker tracker(dir.path());  // a folder
  REQUIRE_FALSE(tracker.Rewind(0).ok());
}

TEST_CASE("TensorBoardTracker marks where a run goes on", "[observe]") {
  testing::TempDir dir;
  testing::FakeClock clock(absl::FromUnixSeconds(1000));
  TensorBoardTracker tracker(dir.path(), clock);
  tracker.Log(7, {{"reward", 0.5}});
  REQUIRE(tracker.Rewind(6).ok());
  tracker.Log(7, {{"reward", 0.25}});
  REQUIRE(ReadWholeFile(tracker.path()).value() ==
          TfRecord(FileVersionEvent(1000)) + TfRecord(ScalarsEvent(1000, 7, {{"reward", 0.5}})) +
              TfRecord(SessionStartEvent(1000, 7)) +
              TfRecord(ScalarsEvent(1000, 7, {{"reward", 0.25}})));
}

TEST_CASE("JsonlTracker goes on after a disk that was full, and says how much it lost",
          "[observe]") {
  testing::TempDir dir;
  const std::string path = dir.path() / "metrics.jsonl";
  JsonlTracker tracker(path);
  CapturedLog log;
  for (const int64_t step : {1, 4}) {
    tracker.Log(step, {});
    // There is room for a part of the next record only.
    const testing::FileSizeLimit full(ReadWholeFile(path).value().size() + 5);
    tracker.Log(step + 1, {});
    tracker.Log(step + 2, {});
  }
  tracker.Log(7, {});
  REQUIRE(ReadWholeFile(path).value() ==
          "{\"step\":1,\"data\":{}}\n{\"step\":4,\"data\":{}}\n{\"step\":7,\"data\":{}}\n");
  const std::string text = log.Text();
  INFO(text);
  REQUIRE(testing::Count(text, "cannot write") == 2);
  REQUIRE(testing::Count(text, "2 records of metrics were dropped") == 2);
}

TEST_CASE("TensorBoardTracker goes on after a disk that was full", "[observe]") {
  testing::TempDir dir;
  testing::FakeClock clock(absl::FromUnixSeconds(1000));
  // Not even the first record of the file fits.
  std::optional<testing::FileSizeLimit> full(std::in_place, 5);
  TensorBoardTracker tracker(dir.path(), clock);
  tracker.Log(1, {{"reward", 0.5}});
  full.reset();
  tracker.Log(2, {{"reward", 0.5}});
  full.emplace(ReadWholeFile(tracker.path()).value().size() + 5);
  tracker.Log(3, {{"reward", 0.5}});
  full.reset();
  tracker.Log(4, {{"reward", 0.5}});
  REQUIRE(ReadWholeFile(tracker.path()).value() ==
          TfRecord(FileVersionEvent(1000)) + TfRecord(ScalarsEvent(1000, 2, {{"reward", 0.5}})) +
              TfRecord(ScalarsEvent(1000, 4, {{"reward", 0.5}})));
}

TEST_CASE("Trackers that cannot write warn once and leave nothing", "[observe]") {
  testing::TempDir dir;
  const std::string file = dir.path() / "a_file";
  std::ofstream(file) << "kept";
  testing::FakeClock clock;
  testing::CapturedOutput output;
  JsonlTracker jsonl(file + "/metrics.jsonl");
  TensorBoardTracker board(file + "/tensorboard", clock);
  for (const int64_t step : {1, 2}) {
    for (Tracker* tracker : {static_cast<Tracker*>(&jsonl), static_cast<Tracker*>(&board)}) {
      REQUIRE(tracker->Rewind(step - 1).ok());
      tracker->Log(step, {{"a", 1}});
      REQUIRE(tracker->Flush().ok());
    }
  }
  const std::string said = output.Text();
  INFO(said);
  REQUIRE(testing::Count(said, "cannot write metrics to " + file + "/metrics.jsonl") == 1);
  REQUIRE(testing::Count(said, "cannot write TensorBoard events to " + board.path()) == 1);
  REQUIRE(testing::Count(said, "cannot write") == 2);
  REQUIRE(ReadWholeFile(file).value() == "kept");
  REQUIRE_FALSE(std::filesystem::exists(board.path()));
}

TEST_CASE("FanoutTracker reaches all, ConsoleTracker writes verl's line", "[observe]") {
  std::ostringstream first, second;
  std::vector<std::unique_ptr<Tracker>> trackers;
  trackers.push_back(std::make_unique<ConsoleTracker>(first));
  trackers.push_back(std::make_unique<ConsoleTracker>(second));
  FanoutTracker fanout(std::move(trackers));
  fanout.Log(3, {{"actor/lr", 1e-6}, {"b", 2}});
  REQUIRE(fanout.Flush().ok());
  REQUIRE(first.str() == "step:3 - actor/lr:1e-06 - b:2\n");
  REQUIRE(second.str() == first.str());
}

TEST_CASE("TensorBoardTracker writes records that a reader accepts", "[observe]") {
  testing::TempDir dir;
  testing::FakeClock clock(absl::FromUnixSeconds(1000));
  TensorBoardTracker tracker(dir.path() / "tb", clock);
  clock.Advance(absl::Seconds(5));
  tracker.Log(7, {{"reward", 0.5}});
  REQUIRE(tracker.Flush().ok());
  REQUIRE(tracker.path().find("events.out.tfevents.1000.") != std::string::npos);
  REQUIRE(ReadWholeFile(tracker.path()).value() ==
          TfRecord(FileVersionEvent(1000)) + TfRecord(ScalarsEvent(1005, 7, {{"reward", 0.5}})));
}

TEST_CASE("A second TensorBoardTracker starts a file of its own", "[observe]") {
  testing::TempDir dir;
  testing::FakeClock clock;
  TensorBoardTracker first(dir.path(), clock);
  TensorBoardTracker second(dir.path(), clock);
  REQUIRE(first.path() != second.path());
}

}  // namespace tandem
