// What a run writes meets a disk without space, and loses nothing.
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <memory>
#include <sstream>

#include <catch2/catch.hpp>

#include "common/base/disk_refusal.h"
#include "common/formats/files.h"
#include "controller/run/trainer_group_counter.h"
#include "controller/store/sample_store.h"
#include "controller/store/sqlite/sqlite_run_store.h"
#include "controller/store/trackers/tensorboard_tracker.h"
#include "controller/store/trackers/trackers.h"
#include "tests/fakes/fake_clock.h"
#include "tests/support/small_disk.h"
#include "tests/support/text.h"

namespace tandem {
namespace {

struct FullDiskFixture {
  FullDiskFixture() {
    if (disk.mounted()) return;
    std::cout << "skipped: only root can mount the small disk that this test fills" << std::endl;
    std::_Exit(77);
  }
  std::string path(const std::string& name) const { return disk.path() / name; }

  testing::TempDir dir;
  testing::SmallDisk disk{dir.path() / "disk", 1024};
};

Sample SampleForFullDisk(uint64_t id) {
  Sample sample;
  sample.sample_id = id;
  sample.tokens = {1, 2, 3};
  sample.prompt_tokens = 3;
  for (int32_t i = 0; i < 1000; ++i) {
    sample.tokens.push_back(static_cast<int32_t>(id) + i);
    sample.log_probs.push_back(-static_cast<float>(i));
    sample.versions.push_back(7);
  }
  sample.segments = {{.begin = 3, .length = 1000, .trained = true, .weight_version = 7}};
  return sample;
}

}  // namespace

TEST_CASE("samples that a full disk refuses are kept, read, and written once there is space",
          "[full_disk]") {
  const FullDiskFixture f;
  const auto store = *SampleStore::Open(f.path("samples"), 0);
  REQUIRE(store->BeginStep(1).ok());
  REQUIRE(store->Put(SampleForFullDisk(1), 7).ok());
  f.disk.Fill(20 << 10);  // room for one more of 16 KiB, and a part of the next
  for (uint64_t id = 2; id <= 4; ++id) REQUIRE(store->Put(SampleForFullDisk(id), 7).ok());
  const std::vector<float> advantages(1000, 0.5f);
  REQUIRE(store->PutArray(1, TokenArray::kAdvantages, 1, advantages).ok());
  const auto require_whole = [&] {
    for (uint64_t id = 1; id <= 4; ++id) {
      const auto read = store->Read(id);
      INFO(read.status());
      REQUIRE(read->tokens == SampleForFullDisk(id).tokens);
      REQUIRE(read->versions == SampleForFullDisk(id).versions);
    }
    REQUIRE(*store->ReadArray(TokenArray::kAdvantages, 1) == advantages);
  };
  REQUIRE(store->held_back_bytes() > 0);
  require_whole();
  const absl::Status refused = store->Flush();
  REQUIRE(IsDiskRefused(refused));
  REQUIRE(testing::Has(std::string(refused.message()), "step_000001.samples"));
  require_whole();
  f.disk.Empty();
  REQUIRE(store->Flush().ok());
  REQUIRE(store->held_back_bytes() == 0);
  require_whole();
  // The next step begins with nothing of this one.
  f.disk.Fill(0);
  REQUIRE(store->Put(SampleForFullDisk(5), 7).ok());
  f.disk.Empty();
  REQUIRE(store->BeginStep(2).ok());
  REQUIRE(store->held_back_bytes() == 0);
}

TEST_CASE("metrics that a full disk refuses are written later, whole and in order", "[full_disk]") {
  const FullDiskFixture f;
  testing::FakeClock clock;
  JsonlTracker jsonl(f.path("metrics.jsonl"));
  f.disk.Fill(0);
  // Its file can be created, and nothing written into it.
  TensorBoardTracker board(f.path("tensorboard"), clock);
  const std::string note(3000, 'a');  // more than what is left of a page
  for (int64_t step = 1; step <= 4; ++step) {
    jsonl.Log(step, {{note, 1.0}});
    board.Log(step, {{note, 1.0}});
  }
  REQUIRE(IsDiskRefused(jsonl.Flush()));
  f.disk.Empty();
  REQUIRE(jsonl.Flush().ok());
  REQUIRE(board.Flush().ok());
  jsonl.Log(5, {});
  std::istringstream lines(*ReadWholeFile(f.path("metrics.jsonl")));
  int64_t step = 0;
  for (std::string line; std::getline(lines, line);) {
    REQUIRE(testing::Has(line, "{\"step\":" + std::to_string(++step) + ","));
    REQUIRE(line.back() == '}');
  }
  REQUIRE(step == 5);
  std::string expected = TfRecord(FileVersionEvent(absl::ToUnixSeconds(clock.WallNow())));
  for (int64_t logged = 1; logged <= 4; ++logged) {
    expected += TfRecord(ScalarsEvent(absl::ToUnixSeconds(clock.WallNow()), logged, {{note, 1.0}}));
  }
  REQUIRE(*ReadWholeFile(board.path()) == expected);
}

TEST_CASE("metrics that a full disk does not let be undone stay as they are until there is space",
          "[full_disk]") {
  const FullDiskFixture f;
  const std::string path = f.path("metrics.jsonl"), undone = f.path("metrics.undone.jsonl");
  JsonlTracker tracker(path);
  const std::string note(100 << 10, 'a');
  for (int64_t step = 1; step <= 3; ++step) tracker.Log(step, {{note, 1.0}});
  const std::string lines = *ReadWholeFile(path);
  // No room for the lines that stay; then for them, not for those that go.
  for (const int64_t left : {0, 150 << 10}) {
    f.disk.Fill(left);
    const absl::Status refused = tracker.Rewind(1);
    INFO(refused);
    REQUIRE(IsDiskRefused(refused));
    REQUIRE(*ReadWholeFile(path) == lines);
    REQUIRE_FALSE(PathExists(undone));
    REQUIRE_FALSE(PathExists(path + ".kept"));
    f.disk.Empty();
  }
  // What is held back is a line of the file, too.
  f.disk.Fill(0);
  tracker.Log(4, {{note, 1.0}});
  REQUIRE(IsDiskRefused(tracker.Rewind(1)));
  f.disk.Empty();
  REQUIRE(tracker.Rewind(1).ok());
  const std::string moved = *ReadWholeFile(undone);
  REQUIRE(moved.starts_with(lines.substr(lines.size() / 3)));
  REQUIRE(testing::Count(moved, "{\"step\":4,") == 1);
  REQUIRE(testing::Count(moved, "\n") == 3);
  REQUIRE(*ReadWholeFile(path) == lines.substr(0, lines.size() / 3));
}

TEST_CASE("a store on a full disk refuses a row whole, and takes it once there is space",
          "[full_disk]") {
  const FullDiskFixture f;
  const auto store = *SqliteRunStore::Open(f.path("run.db"));
  const StepRecord first{.step = 1, .version = 1};
  REQUIRE(store->RecordStep(first).ok());
  f.disk.Fill(0);
  std::vector<SampleRecord> samples(20);
  for (size_t i = 0; i < samples.size(); ++i) {
    samples[i].sample_id = i;
    samples[i].response = std::string(4096, 'x');
  }
  const absl::Status refused = store->RecordSamples(2, samples);
  INFO(refused);
  REQUIRE(IsDiskRefused(refused));
  REQUIRE(absl::IsResourceExhausted(refused));
  REQUIRE(testing::Has(std::string(refused.message()), "run.db"));
  REQUIRE(store->ListSamples({.step = 2, .limit = 1})->total == 0);
  REQUIRE(store->ListSteps({})->size() == 1);
  f.disk.Empty();
  REQUIRE(store->RecordSamples(2, samples).ok());
  REQUIRE(store->RecordStep({.step = 2, .version = 2}).ok());
  REQUIRE(store->ListSamples({.step = 2, .limit = 1})->total == 20);
  REQUIRE(store->ListSteps({})->size() == 2);
}

TEST_CASE("a group of trainers on a full disk gets its number once there is space", "[full_disk]") {
  const FullDiskFixture f;
  TrainerGroupCounter counter(f.path("generation"));
  REQUIRE(*counter.Next() == 1);
  f.disk.Fill(0);
  REQUIRE(IsDiskRefused(counter.Next().status()));
  f.disk.Empty();
  REQUIRE(*counter.Next() == 2);
}

}  // namespace tandem
